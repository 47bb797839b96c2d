"""How a damaged replica is healed: the action for each damaged range, and the replicas to copy from.

    the damaged range is      on the leader                   on a follower
    ------------------------  ------------------------------  -----------------------------------------------
    committed                 FETCH                           FETCH
    uncommitted, with valid   DEMOTE                          FETCH_AGAIN
      records behind it
    uncommitted, at the end   DEMOTE                          CUT
      of the log

FETCH copies the range from any replica with a good copy (storage/recovery/segment_repair.py). FETCH_AGAIN sends the
leader a fetch offset before the range, and takes only the damaged range from the response. DEMOTE lets another replica
lead. CUT truncates the log there once the replica is not in sync.

"Committed" means below this replica's high watermark. Every replica that has been in sync has a copy of such a range,
and its CRC shows whether the copy is good, so a copy of the leader counts no more than another one.

Valid records are never cut: a follower's high watermark lags behind, so a range that it takes for uncommitted may have
been acknowledged, and behind the damage may be the last good copy of a batch that is damaged on all other replicas.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from trioka.storage.segments.quarantine import Damage

from ..image.partition import Partition

HEALER: Final = -2
"""The replica id in a Fetch that a broker sends to copy damaged records."""


class RepairAction(Enum):
    FETCH = auto()
    """From any replica that is alive."""
    FETCH_AGAIN = auto()
    """From the leader, as a follower."""
    CUT = auto()
    """Truncate there, as soon as the replica is not in sync: the damage is the end of its log."""
    DEMOTE = auto()
    """The next leader has the records, or they were never acknowledged."""


def repair_action(damage: Damage, *, leads: bool, high_watermark: int, log_end_offset: int) -> RepairAction:
    if damage.end_offset <= high_watermark:
        return RepairAction.FETCH
    if leads:
        return RepairAction.DEMOTE
    return RepairAction.CUT if damage.end_offset >= log_end_offset else RepairAction.FETCH_AGAIN


def first_uncommitted_damage(damages: Iterable[Damage], high_watermark: int) -> Damage | None:
    """The first damage that is not committed: the follower fetches from there. Records below it are committed; the
    follower continues with them while their damage is repaired."""
    return next((damage for damage in damages if damage.end_offset > high_watermark), None)


def known_committed(high_watermark: int, damage: Damage, *, latest_epoch: int, leader_epoch: int, end: int) -> int:
    """How far a follower may use its leader's high watermark, if it fetched from its damage on: up to there the logs
    have been compared. Records that the same leader wrote in its epoch are the same in both."""
    return min(high_watermark, end if latest_epoch == leader_epoch else damage.first_offset)


def sources(partition: Partition, node_id: int, is_active: Callable[[int], bool]) -> tuple[int, ...]:
    """The replicas to request a good copy from, in order: the leader, the ISR, the ELR, all others."""
    ranked = (partition.leader, *partition.isr, *partition.eligible_leader_replicas, *partition.replicas)
    return tuple(
        node for node in dict.fromkeys(ranked) if node != node_id and node in partition.replicas and is_active(node)
    )
