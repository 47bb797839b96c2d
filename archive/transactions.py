"""Which records of the archive are of aborted transactions, and which are not decided yet. Pure.

An entry of a transaction index stands in the segment that has the abort marker, not in those that have the records: so
a reader of one segment needs the indexes of the later ones, up to an entry whose last stable offset reaches the end of
what it reads.

The last segment of the archive may hold records of a transaction whose marker is in no object yet. Whether they count
is not known, so read_committed ends before the first of them, as a consumer ends at the last stable offset. The
producer snapshot of the last segment names them. Before a hole the marker may be lost with it, and records that no
marker will decide are treated as aborted.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from trioka.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from trioka.protocol.remote_segment.indexes import MAX_ABORTED_TRANSACTIONS, AbortedTransaction

from .errors import DamagedSegment, MissingOffsets
from .lineage import Slice

AbortedIn: TypeAlias = Callable[[Slice], Sequence[AbortedTransaction]]
OpenAtEndOf: TypeAlias = Callable[[Slice], dict[int, int]]

NO_TRANSACTION: Final = (-1, -1)


class SearchIncomplete(Exception):
    """The slices that were given do not tell which transactions were aborted; there are more."""


class AbortedTransactions:
    """Looks up batches of a slice; all transactions that may have records in it must be given."""

    __slots__ = ("_by_producer",)

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for number, transaction in enumerate(sorted(transactions, key=lambda each: each.first_offset)):
            if number == MAX_ABORTED_TRANSACTIONS:
                raise DamagedSegment(f"more than {MAX_ABORTED_TRANSACTIONS} aborted transactions in one segment")
            ranges = self._by_producer.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))

    def has(self, batch: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if batch.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL:
            return False
        ranges = self._by_producer.get(batch.producer_id)
        if ranges is None:
            return False
        place = bisect_right(ranges, batch.base_offset, key=lambda each: each[0])
        first, last = ranges[place - 1] if place else NO_TRANSACTION
        return first <= batch.base_offset <= last


def aborted_transactions(
    slices: Sequence[Slice],
    number: int,
    aborted_in: AbortedIn,
    open_at_end_of: OpenAtEndOf,
    *,
    fail_on_data_loss: bool,
    has_more: bool = False,
) -> list[AbortedTransaction]:
    """The aborted transactions with records in a slice, from its own index and those of later ones.

    `has_more`: behind these slices are others, and SearchIncomplete is raised if they are needed.
    """
    upper_bound = slices[number].end_offset
    found: list[AbortedTransaction] = []
    for place in range(number, len(slices)):
        current = slices[place]
        for entry in aborted_in(current):
            # Another leader may have written the rest of this segment.
            if not current.start_offset <= entry.last_offset < current.end_offset:
                continue
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found
        if place + 1 < len(slices) and slices[place + 1].start_offset != current.end_offset:
            lost = _undecided(slices, place, open_at_end_of)
            lost = [entry for entry in lost if entry.first_offset < upper_bound]
            if lost and fail_on_data_loss:
                partition = current.manifest.segment.topic_id_partition
                after = slices[place + 1].start_offset
                raise MissingOffsets(partition.topic, partition.partition, current.end_offset, after)
            return found + lost
    if has_more:
        raise SearchIncomplete
    return found


def _undecided(slices: Sequence[Slice], place: int, open_at_end_of: OpenAtEndOf) -> list[AbortedTransaction]:
    """The transactions that are open at the end of a slice, before a hole, as if they had been aborted there."""
    last = slices[place]
    if last.end_offset != last.manifest.next_offset:
        raise DamagedSegment(
            f"{last.manifest.segment}: its rest is of another leader's log, and the offsets behind "
            f"{last.end_offset} are not in the archive: which transactions were open there is not known"
        )
    return [
        AbortedTransaction(producer_id, first_offset, last.end_offset - 1, last.end_offset)
        for producer_id, first_offset in open_at_end_of(last).items()
    ]


def stable_end(last: Slice, open_transactions: dict[int, int]) -> int:
    """The end of what is decided, exclusive: the archive's last stable offset."""
    return min([*open_transactions.values(), last.end_offset])
