"""The error that stops replay: a record contradicts the records before it.

Every node replays the same records from the same start, so the record alone is never the cause: a log is damaged, a
snapshot does not belong to it, or a node has a bug. To continue would mean a different state than the other nodes have.
"""


class ReplayError(Exception):
    """The metadata log contradicts itself at a record. The message names what was expected."""
