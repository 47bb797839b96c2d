"""When replay must stop: a record that contradicts what was replayed before it.

Every node replays the same records from the same start, so that this is never the record's fault alone: a log was
damaged, a snapshot does not belong to it, or one of us is wrong. To go on would mean to disagree with the others.
"""


class ReplayError(Exception):
    """The metadata log contradicts itself at a record. The message names what was expected."""
