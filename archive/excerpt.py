"""One slice of a partition, with what a task on another machine needs to read it: pickled, and without a list.

The planner of a job lists the partition once and gives each task its slice and the `LATER_SLICES` behind it, whose
transaction indexes may name aborted records. If the search does not end there, the task lists the partition itself.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from trioka.protocol.lazy_dataclass import frozen

from .archive import Archive
from .lineage import Lineage, Slice
from .partition import ArchivedPartition, OffsetRange, TimeRange
from .records import ArchivedRecord, Isolation, RecordIterator
from .store import ReadOnlyStore
from .transactions import AbortedTransactions, SearchIncomplete, aborted_transactions

LATER_SLICES: Final = 8


@frozen
class SliceExcerpt:
    """The offsets from `start_offset` up to `end_offset`, exclusive, of one slice."""

    url: str
    options: Mapping[str, str]
    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    end_offset: int
    isolation: Isolation
    fail_on_data_loss: bool
    times: TimeRange
    lineage: Lineage
    slices: tuple[Slice, ...]  # the slice itself, and later ones
    has_more: bool  # whether there are slices behind the last of `slices`

    def batches(self) -> Iterator[list[ArchivedRecord]]:
        """The records, batch by batch."""
        offsets = OffsetRange(self.start_offset, self.end_offset)
        records = self._records(_ExcerptPartition(ReadOnlyStore(self.url, self.options), self), offsets)
        try:
            yield from records.batches()
        except SearchIncomplete:
            archive = Archive(self.url, self.options)
            whole = archive.partition(self.topic, self.partition, topic_id=self.topic_id)
            rest = OffsetRange(records.position, self.end_offset)
            yield from self._records(whole, rest).batches()

    def _records(self, partition: ArchivedPartition, offsets: OffsetRange) -> RecordIterator:
        return RecordIterator(
            partition,
            offsets=offsets,
            times=self.times,
            isolation=self.isolation,
            fail_on_data_loss=self.fail_on_data_loss,
        )


class _ExcerptPartition(ArchivedPartition):
    """A partition of which only the first slice is read."""

    def __init__(self, store: ReadOnlyStore, excerpt: SliceExcerpt) -> None:
        super().__init__(store, excerpt.topic, excerpt.partition, (), excerpt.lineage)
        self.slices = list(excerpt.slices)
        self._excerpt = excerpt

    @property
    def last_stable_offset(self) -> int:
        return self._excerpt.end_offset  # already limited by the one of the whole partition

    def aborted(self, number: int, *, fail_on_data_loss: bool) -> AbortedTransactions:
        return AbortedTransactions(
            aborted_transactions(
                self.slices,
                number,
                self._aborted_in,
                self._open_at_end_of,
                fail_on_data_loss=fail_on_data_loss,
                has_more=self._excerpt.has_more,
            )
        )


def excerpts(
    archive: Archive,
    topic_id: bytes,
    partition: ArchivedPartition,
    *,
    offsets: OffsetRange,
    times: TimeRange,
    isolation: Isolation,
    fail_on_data_loss: bool,
) -> Iterator[SliceExcerpt]:
    """A task for each segment that may have such records."""
    stable = partition.last_stable_offset if isolation is Isolation.READ_COMMITTED else partition.end_offset
    start = partition.start_offset if offsets.start is None else offsets.start
    end = stable if offsets.end is None else min(offsets.end, stable)
    for number in partition.chosen(OffsetRange(start, end), times, fail_on_data_loss=fail_on_data_loss):
        each = partition.slices[number]
        later = partition.slices[number + 1 : number + 1 + LATER_SLICES]
        yield SliceExcerpt(
            url=archive.url,
            options=archive.store.options,
            topic=partition.topic,
            topic_id=topic_id,
            partition=partition.partition,
            start_offset=max(start, each.start_offset),
            end_offset=min(end, each.end_offset),
            isolation=isolation,
            fail_on_data_loss=fail_on_data_loss,
            times=times,
            lineage=partition.lineage,
            slices=(each, *later),
            has_more=number + 1 + LATER_SLICES < len(partition.slices),
        )
