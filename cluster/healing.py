"""How a damaged replica comes by good copies: what is to be done about each damaged range, and who is asked.

    the range is          on a leader               on a follower
    committed             fetched from any replica that has a good copy, and put in its place
    (storage/segment_repair.py) not committed,        somebody else leads       its leader sends it again: this replica
    says that it has what lies
      records behind it                             before, and takes of the answer what is damaged here
    not committed,        somebody else leads       the log is cut there, once the replica is not in sync
      nothing behind it

"Committed" is what this replica knows to be: it lies before its high watermark. Of such a range every replica that has
been in sync has a copy, and whose copy is good is shown by its CRC, so the leader's word counts no more than another's.

Nothing sound is ever cut: a follower's high watermark lags behind, and what it takes for uncommitted may have been
acknowledged; behind its damage may stand the last good copy of a batch that is damaged everywhere else.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from trioka.storage.quarantine import Damage

from .partition import Partition

HEALER: Final = -2
"""The replica id in a Fetch of a broker that looks for good copies of damaged records."""


class Cure(Enum):
    FETCH = auto()
    """From any replica that is alive."""
    FETCH_AGAIN = auto()
    """From the leader, as a follower."""
    CUT = auto()
    """As soon as nobody counts on this replica: what is missing is its end."""
    STEP_ASIDE = auto()
    """Whoever leads next has it, or it was never acknowledged."""


def cure_of(damage: Damage, *, leads: bool, high_watermark: int, log_end_offset: int) -> Cure:
    if damage.end_offset <= high_watermark:
        return Cure.FETCH
    if leads:
        return Cure.STEP_ASIDE
    return Cure.CUT if damage.end_offset >= log_end_offset else Cure.FETCH_AGAIN


def unclaimed(damages: Iterable[Damage], high_watermark: int) -> Damage | None:
    """The first damage that is not committed: a follower does not say that it has what lies there or behind it. What is
    committed it has had, and goes on with; meanwhile the damage is mended."""
    return next((damage for damage in damages if damage.end_offset > high_watermark), None)


def known_committed(high_watermark: int, damage: Damage, *, latest_epoch: int, leader_epoch: int, end: int) -> int:
    """How far a follower may believe its leader's high watermark, when it has asked from its damage on: only so far
    have their logs been compared. What the same leader has written in its epoch is the same in both."""
    return min(high_watermark, end if latest_epoch == leader_epoch else damage.first_offset)


def sources(partition: Partition, node_id: int, is_active: Callable[[int], bool]) -> tuple[int, ...]:
    """Who is asked for a good copy, one after the other: the leader, who is in sync, who is eligible, all others."""
    ranked = (partition.leader, *partition.isr, *partition.eligible_leader_replicas, *partition.replicas)
    return tuple(
        node for node in dict.fromkeys(ranked) if node != node_id and node in partition.replicas and is_active(node)
    )
