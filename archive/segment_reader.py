"""The batches of one `.log` object, each checked before it is handed out.

A batch's CRC covers neither its base offset nor its leader epoch. Both are compared with what they must be: offsets
follow one another up to the end offset of the manifest, and the epoch is that of the lineage. Offsets that are missing
between two batches are possible (the topic was compacted once), and could as well be a damaged base offset: then the
whole object is checked. So a damaged bit raises `DamagedSegment`, wherever it is.

Memory: the ranges in flight (ranges.py), and one batch, which is at most as large as the segment.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trioka.protocol.batch import HEADER_SIZE, BatchHeader, check_crc, read_header
from trioka.protocol.checksum import crc32c
from trioka.protocol.errors import ProtocolError, UnsupportedForMessageFormat
from trioka.protocol.remote_segment.indexes import OffsetPosition
from trioka.protocol.remote_segment.manifest import SegmentManifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix

from .errors import DamagedSegment
from .lineage import Lineage
from .ranges import Ranges, Window
from .store import ReadOnlyStore


class Batch(NamedTuple):
    """A batch that was checked. `data` begins with its header, whose `position` is 0."""

    position: int  # in the object
    header: BatchHeader
    data: memoryview


class SegmentReader:
    """Reads the `.log` object of a manifest. Without a lineage the leader epochs are not compared."""

    def __init__(self, store: ReadOnlyStore, manifest: SegmentManifest, lineage: Lineage | None = None) -> None:
        self._store = store
        self._manifest = manifest
        self._lineage = lineage
        self._key = manifest.segment.key(ObjectSuffix.LOG)

    def batches(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        start: OffsetPosition | None = None,
        read_to: int | None = None,
        may_have_gaps: bool = False,
        begun: Ranges | None = None,
        on_last: Callable[[], None] | None = None,
    ) -> Iterator[Batch]:
        """The batches that have offsets from `start_offset` up to `end_offset`, exclusive.

        `start` is an entry of the offset index at or before `start_offset`, `read_to` a position behind the last batch,
        if the caller knows them: less is read then. `begun` are the ranges of `ranges()`, `on_last` is called when the
        last one is used.
        """
        manifest = self._manifest
        first = manifest.start_offset if start_offset is None else start_offset
        end = manifest.next_offset if end_offset is None else end_offset
        to_end = end >= manifest.next_offset
        position = 0 if start is None else start.position
        expected = manifest.start_offset if start is None else None
        with begun or Ranges(self._store, self._key, position, manifest.size, read_to=read_to) as ranges:
            ranges.on_last = on_last
            window = Window(ranges)
            while position < manifest.size and (to_end or expected is None or expected < end):
                header = self._header(window, position)
                if expected is not None and header.base_offset > expected and not may_have_gaps:
                    self.check_object()
                    may_have_gaps = True
                if not to_end and expected is not None and header.base_offset >= end:
                    return
                self._check(header, window.view, position, expected, start)
                if header.next_offset > first:
                    self._check_epoch(header, position, max(header.base_offset, first))
                    yield Batch(position, header, window.view[: header.size])
                window.skip(header.size)
                expected = header.next_offset
                position += header.size
        if expected is not None and expected < end and not may_have_gaps:
            self.check_object()

    def ranges(self) -> Ranges:
        """Of the whole object."""
        return Ranges(self._store, self._key, 0, self._manifest.size)

    def check_object(self) -> None:
        """DamagedSegment unless the whole object has the checksum of the manifest. If that has none, it must be
        readable to its end: a wrong offset then overlaps with the next batch."""
        if self._manifest.content is None:
            for _ in SegmentReader(self._store, self._manifest).batches(may_have_gaps=True):
                pass
            return
        crc = 0
        with self.ranges() as ranges:
            for piece in ranges:
                crc = crc32c(piece, crc)
        if crc != self._manifest.content.crc32c:
            raise DamagedSegment(f"{self._store.name}: {self._key} fails the checksum of its manifest")

    def _header(self, window: Window, position: int) -> BatchHeader:
        """The header at the start of the window, which then has the whole batch."""
        left = self._manifest.size - position
        if not window.grow(HEADER_SIZE):
            raise self._damaged(position, f"{left} bytes of a batch are left")
        try:
            header = read_header(window.view)
        except (ProtocolError, UnsupportedForMessageFormat) as error:
            raise self._damaged(position, str(error)) from error
        if header.size > left or not window.grow(header.size):
            raise self._damaged(position, f"a batch of {header.size} bytes where {left} are left")
        return header

    def _check(
        self, header: BatchHeader, data: memoryview, position: int, expected: int | None, start: OffsetPosition | None
    ) -> None:
        if not check_crc(data, header):
            raise self._damaged(position, "a batch fails its CRC")
        first, last = header.base_offset, header.last_offset
        lowest = self._manifest.start_offset if expected is None else expected
        if not lowest <= first <= last <= self._manifest.end_offset:
            limits = f"{lowest} to {self._manifest.end_offset}"
            raise self._damaged(position, f"a batch has the offsets {first} to {last}, outside of {limits}")
        if expected is None and start is not None and not first <= start.offset <= last:
            raise self._damaged(position, f"the index says offset {start.offset}, the batch has {first} to {last}")

    def _check_epoch(self, header: BatchHeader, position: int, offset: int) -> None:
        epoch = header.leader_epoch if self._lineage is None else self._lineage.epoch_at(offset)
        if epoch != header.leader_epoch:
            what = f"the batch at offset {header.base_offset} has the leader epoch {header.leader_epoch}, not {epoch}"
            raise self._damaged(position, what)

    def _damaged(self, position: int, what: str) -> DamagedSegment:
        return DamagedSegment(f"{self._store.name}: {self._key}, byte {position}: {what}")
