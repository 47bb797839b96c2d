"""One partition of the archive: its lineage, the slices of segments that make it up, and their indexes."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from trioka.protocol.checksum import crc32c
from trioka.protocol.errors import ProtocolError
from trioka.protocol.remote_segment.indexes import (
    MAX_INDEXES_BYTES,
    AbortedTransaction,
    OffsetPosition,
    SegmentIndexes,
    decode_indexes,
    decode_leader_epochs,
    decode_offset_index,
    decode_open_transactions,
    decode_transactions,
)
from trioka.protocol.remote_segment.manifest import SegmentManifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix

from .errors import DamagedSegment, MissingOffsets
from .lineage import Chain, Hole, Lineage, Slice, find_lineage, plan, usable_range
from .ranges import Ranges
from .segment_reader import Batch, SegmentReader
from .store import ReadOnlyStore
from .transactions import AbortedTransactions, aborted_transactions, stable_end

CACHED_INDEXES: Final = 8

NO_ABORTED: Final = AbortedTransactions(())


class OffsetRange(NamedTuple):
    """From `start` up to `end`, exclusive; None: no limit."""

    start: int | None = None
    end: int | None = None


class TimeRange(NamedTuple):
    """Timestamps in milliseconds, from `start` up to `end`, exclusive; None: no limit."""

    start: int | None = None
    end: int | None = None

    def has(self, timestamp: int) -> bool:
        return (self.start is None or timestamp >= self.start) and (self.end is None or timestamp < self.end)

    def may_be_in(self, manifest: SegmentManifest) -> bool:
        """Whether the segment may have a record of this time. Without a lower limit of its times, it may."""
        if self.start is not None and manifest.max_timestamp_ms < self.start:
            return False
        lowest = -1 if manifest.content is None else manifest.content.min_timestamp_ms
        return self.end is None or lowest < self.end


ALL_OFFSETS: Final = OffsetRange()
ALL_TIMES: Final = TimeRange()


class ArchivedPartition:
    """A partition as it was when its manifests were listed. Not for several threads at once."""

    def __init__(
        self,
        store: ReadOnlyStore,
        topic: str,
        partition: int,
        manifests: Sequence[SegmentManifest],
        lineage: Lineage | None = None,
    ) -> None:
        self._store = store
        self.topic = topic
        self.partition = partition
        self.manifests = tuple(manifests)
        self._indexes: OrderedDict[SegmentManifest, SegmentIndexes] = OrderedDict()
        self._stable_end: int | None = None
        self.lineage = find_lineage(manifests, self._chain) if lineage is None else lineage
        self.slices, self.holes = plan(manifests, self.lineage)

    @property
    def start_offset(self) -> int:
        return self.slices[0].start_offset if self.slices else self.lineage.end_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the last record."""
        return self.slices[-1].end_offset if self.slices else self.lineage.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed: the first record of a transaction that the archive does not decide."""
        if self._stable_end is None:
            last = self.last_slice()
            self._stable_end = self.end_offset if last is None else stable_end(last, self._open_at_end_of(last))
        return self._stable_end

    def last_slice(self) -> Slice | None:
        """The last one, with a segment that ends there: only its snapshot says which transactions are open."""
        if not self.slices or self.slices[-1].end_offset == self.slices[-1].manifest.next_offset:
            return self.slices[-1] if self.slices else None
        for manifest in self.manifests:
            start, end = usable_range(manifest, self.lineage)
            if start < end == manifest.next_offset == self.end_offset:
                return Slice(manifest=manifest, start_offset=start, end_offset=end)
        raise DamagedSegment(f"{self.topic}-{self.partition}: no segment ends at offset {self.end_offset}")

    def chosen(self, offsets: OffsetRange, times: TimeRange = ALL_TIMES, *, fail_on_data_loss: bool) -> list[int]:
        """The numbers of the slices that may have such records. MissingOffsets if some of them are in no segment."""
        start = self.start_offset if offsets.start is None else offsets.start
        end = self.end_offset if offsets.end is None else offsets.end
        if fail_on_data_loss:
            for hole in self.missing(start, end):
                raise MissingOffsets(self.topic, self.partition, hole.start_offset, hole.end_offset)
        return [
            number
            for number, each in enumerate(self.slices)
            if each.start_offset < end and each.end_offset > start and times.may_be_in(each.manifest)
        ]

    def missing(self, start: int, end: int) -> Iterator[Hole]:
        """What the archive lacks between two offsets: what was deleted at its beginning, and holes."""
        if self.slices and start < min(self.start_offset, end):
            yield Hole(start_offset=start, end_offset=min(self.start_offset, end))
        for hole in self.holes:
            first, last = max(start, hole.start_offset), min(end, hole.end_offset)
            if first < last:
                yield Hole(start_offset=first, end_offset=last)

    def aborted(self, number: int, *, fail_on_data_loss: bool) -> AbortedTransactions:
        """The aborted transactions with records in a slice."""
        found = aborted_transactions(
            self.slices, number, self._aborted_in, self._open_at_end_of, fail_on_data_loss=fail_on_data_loss
        )
        return AbortedTransactions(found) if found else NO_ABORTED

    def batches(
        self,
        number: int,
        start_offset: int,
        end_offset: int,
        *,
        begun: Ranges | None = None,
        on_last: Callable[[], None] | None = None,
    ) -> Iterator[Batch]:
        """The batches of a slice that have offsets in a range. `begun` are those of `ranges()`, `on_last` is called
        when the last of its ranges is used."""
        each = self.slices[number]
        first, end = max(start_offset, each.start_offset), min(end_offset, each.end_offset)
        start, read_to = None, None
        if first > each.manifest.start_offset or end < each.manifest.next_offset:
            start, read_to = self._positions(each.manifest, first, end)
        reader = SegmentReader(self._store, each.manifest, self.lineage)
        return reader.batches(
            start_offset=first, end_offset=end, start=start, read_to=read_to, begun=begun, on_last=on_last
        )

    def ranges(self, number: int) -> Ranges | None:
        """Of a slice that is read from its start; None if it is only a part of its segment."""
        each = self.slices[number]
        if each.start_offset != each.manifest.start_offset:
            return None
        return SegmentReader(self._store, each.manifest, self.lineage).ranges()

    def indexes(self, manifest: SegmentManifest) -> SegmentIndexes:
        found = self._indexes.get(manifest)
        if found is None:
            found = self._indexes[manifest] = read_indexes(self._store, manifest)
            if len(self._indexes) > CACHED_INDEXES:
                self._indexes.popitem(last=False)
        return found

    def _positions(self, manifest: SegmentManifest, first: int, end: int) -> tuple[OffsetPosition | None, int]:
        """The index entry from which the offset is found, and a position behind the last batch that is needed."""
        try:
            entries = decode_offset_index(self.indexes(manifest).offset, manifest.start_offset)
        except ProtocolError as error:
            raise self._damaged(manifest, error) from error
        before = bisect_right(entries, first, key=lambda entry: entry.offset)
        behind = bisect_left(entries, end, key=lambda entry: entry.offset)
        start = entries[before - 1] if before else None
        return start, entries[behind].position if behind < len(entries) else manifest.size

    def _chain(self, manifest: SegmentManifest) -> Chain:
        try:
            return decode_leader_epochs(self.indexes(manifest).leader_epoch)
        except ProtocolError as error:
            raise self._damaged(manifest, error) from error

    def _aborted_in(self, each: Slice) -> Sequence[AbortedTransaction]:
        place = each.manifest.indexes.transaction
        if place is None or place.size == 0:
            return ()
        try:
            return decode_transactions(self.indexes(each.manifest).transaction or b"")
        except ProtocolError as error:
            raise self._damaged(each.manifest, error) from error

    def _open_at_end_of(self, each: Slice) -> dict[int, int]:
        try:
            return decode_open_transactions(self.indexes(each.manifest).producer_snapshot)
        except ProtocolError as error:
            raise self._damaged(each.manifest, error) from error

    def _damaged(self, manifest: SegmentManifest, error: ProtocolError) -> DamagedSegment:
        return DamagedSegment(f"{self._store.name}: {manifest.segment.key(ObjectSuffix.INDEXES)}: {error}")


def read_indexes(store: ReadOnlyStore, manifest: SegmentManifest) -> SegmentIndexes:
    """The `.indexes` object, with its checksum compared if the manifest has one."""
    key = manifest.segment.key(ObjectSuffix.INDEXES)
    data = store.read(key, limit=MAX_INDEXES_BYTES)
    if manifest.content is not None and crc32c(data) != manifest.content.indexes_crc32c:
        raise DamagedSegment(f"{store.name}: {key} fails the checksum of its manifest")
    try:
        return decode_indexes(data, manifest.indexes)
    except ProtocolError as error:
        raise DamagedSegment(f"{store.name}: {key}: {error}") from error
