"""A segment: one `.log` file, its two sparse indexes and its transaction index.

Appending is one write at the end of the file, and an index entry for each `index.interval.bytes`. Finding an offset is
the other half; planning a read on top of it is in `storage/read_plan.py`:

    offset ──▶ index: the last entry at or below it ──▶ headers, from there on ──▶ the batch that holds the offset

**Every read is verified.** The batch to which an index entry points must begin at or before the entry's offset,
else the index is damaged (`CorruptIndex`), and the log rebuilds it. Headers must follow one another, and bytes that
were not checked since the process began have their CRCs checked before they are handed out
(`storage/verified_ranges.py`): `BadBatch` has the position of the failure. So a wrong bit in any of these files costs a
rebuild or an error, never wrong bytes.

Opening a segment looks at its size only and holds no file. `bench/log.py` prints what planning a read costs.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from trioka.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, read_header
from trioka.protocol.errors import ProtocolError, UnsupportedForMessageFormat

from .batch_scan import MAX_OFFSET, MAX_RELATIVE_OFFSET, NO_EPOCH, NO_OFFSET, BadBatch, ScannedBatch, scan
from .disk import Buffer
from .file_pool import FilePool, FileRange
from .index import CorruptIndex, OffsetIndex, TimeIndex
from .layout import SEGMENT_KINDS, Kind, Suffix, segment_file
from .txn_index import TransactionIndex
from .verified_ranges import VerifiedRanges

NO_TIMESTAMP: Final = -1
UNKNOWN: Final = -2

HEADER_READ_BYTES: Final = 4096
"""Read at once when headers are looked for: an index interval, by default."""

NEXT_ENTRY_BYTES: Final = 2 * HEADER_READ_BYTES

JOINED_BYTES: Final = 2048
"""Batches below this size are copied together before they are written."""

FOLLOWED_LIMIT: Final = 64
"""The number of ends of earlier reads that are kept, for readers that continue there; then the list is emptied."""

NO_HOLES: Final[dict[int, int]] = {}

PLACE: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta: the first 27 bytes of a batch
PLACE_SIZE: Final = PLACE.size
_unpack_place: Final = PLACE.unpack


class BatchPosition(NamedTuple):
    """The position of a batch in its segment, and its range."""

    position: int
    size: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


class Segment:
    __slots__ = (
        "_first_timestamp",
        "_largest_offset",
        "_largest_timestamp",
        "_since_entry",
        "_starts",
        "base_offset",
        "checked",
        "created_ms",
        "directory",
        "files",
        "holes",
        "index",
        "index_is_warm",
        "jitter_ms",
        "log_path",
        "next_offset",
        "ready",
        "size",
        "suffix",
        "synced",
        "time_index",
        "txn_checked",
        "txn_index",
    )

    def __init__(
        self,
        files: FilePool,
        directory: str,
        base_offset: int,
        *,
        size: int,
        created_ms: int,
        jitter_ms: int = 0,
        suffix: Suffix = Suffix.NONE,
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.size = size
        self.created_ms = created_ms  # by this process, as in Kafka: records without timestamps age from here
        self.jitter_ms = jitter_ms
        self.next_offset = base_offset if size == 0 else UNKNOWN
        self.log_path = self.path(Kind.LOG)
        self.index = OffsetIndex(files, self.path(Kind.INDEX), base_offset)
        self.time_index = TimeIndex(files, self.path(Kind.TIME_INDEX), base_offset)
        self.txn_index = TransactionIndex(files.disk, self.path(Kind.TXN_INDEX), base_offset)
        self.txn_checked = size == 0  # whether the transaction index was compared with the log, or made with it
        self.checked = VerifiedRanges()
        self.index_is_warm = size == 0  # whether the index was in memory at the last probe (page_cache_probe.py)
        self.synced = False  # once it is closed: whether all of its files are known to be durable
        self.holes: dict[int, int] = NO_HOLES  # known damage: position → end, to be stepped over
        self.ready = size == 0  # to be appended to
        self._since_entry = 0
        self._first_timestamp = UNKNOWN
        self._largest_timestamp = NO_TIMESTAMP if size == 0 else UNKNOWN
        self._largest_offset = base_offset
        # Where reads ended, and others will begin: by its first offset the batch there, or its position if none was.
        self._starts: dict[int, BatchPosition | int] | None = None

    @classmethod
    def create(
        cls,
        files: FilePool,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        jitter_ms: int = 0,
        suffix: Suffix = Suffix.NONE,
    ) -> "Segment":
        """Creates an empty segment, with log and indexes. Files under its names are replaced."""
        segment = cls(files, directory, base_offset, size=0, created_ms=now_ms, jitter_ms=jitter_ms, suffix=suffix)
        segment.remove()
        files.get(segment.log_path, create=True)
        segment.make_index_files()
        return segment

    @classmethod
    def open(
        cls,
        files: FilePool,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        jitter_ms: int = 0,
        suffix: Suffix = Suffix.NONE,
    ) -> "Segment":
        size = files.disk.size(f"{directory}/{segment_file(base_offset, Kind.LOG, suffix)}")
        return cls(files, directory, base_offset, size=size, created_ms=now_ms, jitter_ms=jitter_ms, suffix=suffix)

    def __repr__(self) -> str:
        return f"<Segment {self.log_path}, {self.size} bytes>"

    def path(self, kind: Kind) -> str:
        return f"{self.directory}/{segment_file(self.base_offset, kind, self.suffix)}"

    def paths(self) -> tuple[str, ...]:
        """Of all its files, whether they exist or not; the log's first."""
        return self.log_path, self.index.entries.path, self.time_index.entries.path, self.txn_index.path

    # Appending -------------------------------------------------------------------------------------------------------

    def append(self, buffer: Buffer, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Appends one batch, checked and with its offsets set. Memory changes only after the write."""
        assert self.ready, f"{self}: prepare_indexes first"
        position = self.size
        size = len(buffer)
        self.files.get(self.log_path).write(position, buffer)
        self.size = end = position + size
        self.checked.grow(position, end)
        self._note(last_offset, max_timestamp, position, size, index_interval_bytes)

    def append_many(
        self, batches: Sequence[memoryview], notes: Iterable[tuple[int, int, int]], index_interval_bytes: int
    ) -> None:
        """Appends several batches by one write; each has a note of last offset, newest timestamp and size. Small
        batches are joined first: the kernel takes longer to step through a list than Python to join it."""
        assert self.ready, f"{self}: prepare_indexes first"
        start = position = self.size
        file = self.files.get(self.log_path)
        if len(batches) == 1:
            self.size = start + file.write(start, batches[0])
        elif len(batches[0]) < JOINED_BYTES:
            self.size = start + file.write(start, b"".join(batches))
        else:
            self.size = start + file.write(start, *batches)
        self.checked.grow(start, self.size)
        largest, since_entry = self._largest_timestamp, self._since_entry
        for last_offset, timestamp, size in notes:  # as `_note` does it
            if timestamp > largest:
                self._largest_timestamp = largest = timestamp
                self._largest_offset = last_offset
            if since_entry > index_interval_bytes:
                self.index.append(last_offset, position)
                if largest > self.time_index.last:
                    self.time_index.append(largest, self._largest_offset)
                since_entry = 0
            since_entry += size
            position += size
        self.next_offset = last_offset + 1
        self._since_entry = since_entry

    def append_batches(self, buffer: Buffer, headers: Iterable[BatchHeader], index_interval_bytes: int) -> None:
        """Several batches, one behind the other and filling the buffer: still one write."""
        assert self.ready, f"{self}: prepare_indexes first"
        start = self.size
        self.files.get(self.log_path).write(start, buffer)
        self.size = start + len(buffer)
        self.checked.grow(start, self.size)
        for header in headers:
            position = start + header.position
            self._note(header.last_offset, header.max_timestamp, position, header.size, index_interval_bytes)

    def _note(self, last_offset: int, max_timestamp: int, position: int, size: int, interval: int) -> None:
        self.next_offset = last_offset + 1
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp = max_timestamp
            self._largest_offset = last_offset
        if self._since_entry > interval:
            self.index.append(last_offset, position)
            if self._largest_timestamp > self.time_index.last:
                self.time_index.append(self._largest_timestamp, self._largest_offset)
            self._since_entry = 0
        self._since_entry += size

    def prepare_indexes(self) -> None:
        """Prepares a segment that was opened, not created, for appends: finds the ends of its indexes."""
        end = self.end_offset()
        self.largest_timestamp()
        self.time_index.load_last()
        last = self.index.load_last()
        if last is not None:
            place = self.batch_of_entry(len(self.index.entries) - 1)
            if not place.last_offset == last[0] < end:
                raise CorruptIndex(f"{self.index.entries.path}: the last entry is for {last[0]}, not {place}")
        self._since_entry = self.size - (last[1] if last is not None else 0)
        self.ready = True

    def make_index_files(self) -> None:
        """Kafka expects both beside every log, even if empty: without the first one its start logs an error."""
        for path in (self.index.entries.path, self.time_index.entries.path):
            self.files.disk.open(path, create=True).close()

    def close_indexes(self) -> None:
        """Writes the indexes out. Retention reads the age of this segment from the last entry of the time index."""
        if self.ready:
            self.time_index.append(self._largest_timestamp, self._largest_offset)
            self.index.entries.write_out(create=True)
            self.time_index.entries.write_out(create=True)

    def is_full(self, index_bytes: int) -> bool:
        """Whether one more entry is too much for one of the indexes. (An unused segment need not look.)"""
        return self.ready and (self.index.is_full(index_bytes) or self.time_index.is_full(index_bytes))

    def takes(self, last_offset: int) -> bool:
        """Whether an index can express this offset: four bytes, relative to the base offset."""
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    # Finding ---------------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> BatchPosition | None:
        """The first batch that ends at `offset` or later; None if the segment ends before."""
        around = self.index.around_offset(offset)
        if around is None:
            return self._seek(offset, 0, NO_OFFSET)
        entry_offset, position, next_offset, next_position = around
        # Large batches have an entry each, so the next entry's is probably the one: look there first.
        if position + NEXT_ENTRY_BYTES < next_position < self.size:
            place = self._place(next_position)
            if place is not None and place.base_offset <= offset <= place.last_offset == next_offset:
                return place
        return self._seek(offset, position, entry_offset)

    def follow(self, offset: int) -> BatchPosition | None:
        """The batch that begins with `offset`, if a read ended before it. That read has seen its header, unless the log
        ended there; then the position is a hint, and the header must agree."""
        starts = self._starts
        if starts is None or self.holes:
            return None
        found = starts.get(offset)
        if type(found) is int:
            place = self._place(found)
            return place if place is not None and place.base_offset == offset else None
        return found  # type: ignore[return-value]

    def known_start(self, offset: int) -> int | None:
        """The position where `follow` would look."""
        found = None if self._starts is None else self._starts.get(offset)
        return found[0] if type(found) is BatchPosition else found  # type: ignore[return-value]

    def followed(self, offset: int, place: BatchPosition | int) -> None:
        """A read ended before that batch or position: the next one of the same client starts at `offset`."""
        starts = self._starts
        if starts is None or len(starts) >= FOLLOWED_LIMIT:
            starts = self._starts = {}
        starts[offset] = place

    def batch_of_entry(self, entry: int) -> BatchPosition:
        """The batch to which an entry of the index points."""
        return self.batch_at(*self.index.entry(entry))

    def batch_at(self, entry_offset: int, position: int) -> BatchPosition:
        """The same, when the entry is known."""
        place = self._place(position) if position < self.size else None
        if place is None or not self.base_offset <= place.base_offset <= entry_offset:
            raise CorruptIndex(f"{self.index.entries.path}: no batch at {position} holds {entry_offset}")
        return place

    def _place(self, position: int) -> BatchPosition | None:
        """The batch at `position`, if there is one."""
        try:
            base_offset, length, magic, delta = _unpack_place(self.files.get(self.log_path).read(position, PLACE_SIZE))
        except struct_error:
            return None  # the file ends before
        size = length + LOG_OVERHEAD
        if magic != MAGIC or not HEADER_SIZE <= size <= self.size - position or delta < 0:
            return None
        return tuple.__new__(
            BatchPosition, (position, size, base_offset, base_offset + delta)
        )  # BatchPosition(…), at half the price

    def _seek(self, offset: int, position: int, entry_offset: int) -> BatchPosition | None:
        """From the batch at `position` on; according to an index, it contains `entry_offset`, or no batch does."""
        end = self.size
        if entry_offset >= 0 and position >= end:
            raise CorruptIndex(f"{self.index.entries.path}: {position} is behind the end of the log")
        buffer, start = b"", position
        while position < end:
            if self.holes and position in self.holes:
                position = self.holes[position]
                continue
            at = position - start
            if len(buffer) - at < PLACE.size:
                buffer, start, at = self.files.get(self.log_path).read(position, HEADER_READ_BYTES), position, 0
                if len(buffer) < PLACE.size:
                    raise BadBatch(position, f"{len(buffer)} bytes are no batch")
            base_offset, length, magic, delta = PLACE.unpack_from(buffer, at)
            size = length + LOG_OVERHEAD
            sound = magic == MAGIC and HEADER_SIZE <= size <= end - position and delta >= 0
            if entry_offset >= 0:
                if not sound or not self.base_offset <= base_offset <= entry_offset:
                    raise CorruptIndex(f"{self.index.entries.path}: no batch at {position} holds {entry_offset}")
                entry_offset = NO_OFFSET
            if not sound:
                raise BadBatch(position, f"is no batch: magic {magic}, {size} bytes of {end - position}")
            if base_offset + delta >= offset:
                return BatchPosition(position, size, base_offset, base_offset + delta)
            position += size
        return None

    def places(self, position: int = 0) -> Iterator[BatchPosition]:
        """The batches from there on. Nothing but their headers is read, and no CRC is checked."""
        buffer, start, end = b"", position, self.size
        while position < end:
            if self.holes and position in self.holes:
                position = self.holes[position]
                continue
            at = position - start
            if len(buffer) - at < PLACE.size:
                buffer, start, at = self.files.get(self.log_path).read(position, HEADER_READ_BYTES), position, 0
            if len(buffer) < PLACE.size:
                raise BadBatch(position, f"{len(buffer)} bytes are no batch")
            base_offset, length, magic, delta = PLACE.unpack_from(buffer, at)
            size = length + LOG_OVERHEAD
            if magic != MAGIC or not HEADER_SIZE <= size <= end - position or delta < 0:
                raise BadBatch(position, f"is no batch: magic {magic}, {size} bytes of {end - position}")
            yield BatchPosition(position, size, base_offset, base_offset + delta)
            position += size

    def header(self, position: int) -> BatchHeader:
        """The whole header of the batch at `position`; its own position is 0."""
        try:
            return read_header(self.files.get(self.log_path).read(position, HEADER_SIZE))
        except (ProtocolError, UnsupportedForMessageFormat) as error:
            raise BadBatch(position, str(error)) from None

    def batch(self, place: BatchPosition) -> bytes:
        """A whole batch, checked."""
        self.check(place.position, place.end)
        return self.files.get(self.log_path).read(place.position, place.size)

    def check(self, position: int, end: int, limit: int = MAX_OFFSET) -> None:
        """Raises BadBatch unless every batch of this range is sound, and is before `limit` and before the batch that
        follows the range. Each is checked once."""
        if self.checked.covers(position, end):
            return
        sound, last_offset = position, NO_OFFSET
        try:
            for found in self.scan(position, end, limit=limit):
                sound, last_offset = found.position + found.header.size, found.header.last_offset
        finally:
            self.checked.add(position, sound)
        if end < self.size and end not in self.holes:
            following = self._place(end)
            if following is not None and not last_offset < following.base_offset < limit:
                self.checked.cut(position)
                raise BadBatch(end, f"begins with offset {following.base_offset}, after {last_offset}")

    def scan(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        last_offset: int = NO_OFFSET,
        epoch: int = NO_EPOCH,
        limit: int = MAX_OFFSET,
    ) -> Iterator[ScannedBatch]:
        """Every batch from there on, checked. Raises BadBatch at the first that is not sound."""
        held = self.range(0, self.size)
        yield from scan(
            held.file,
            end=self.size if end is None else end,
            base_offset=self.base_offset,
            position=position,
            last_offset=last_offset,
            epoch=epoch,
            limit=limit,
        )

    def range(self, position: int, size: int) -> FileRange:
        return self.files.range(self.log_path, position, size)

    # What it spans ---------------------------------------------------------------------------------------------------

    def end_offset(self) -> int:
        """The offset after its last record; its base offset while it is empty."""
        if self.next_offset == UNKNOWN:
            count = len(self.index.entries)
            end = self.base_offset
            for place in self.places(self.batch_of_entry(count - 1).position if count else 0):
                end = place.last_offset + 1
            self.next_offset = end
        return self.next_offset

    def end_before(self, offset: int) -> tuple[int, int]:
        """Where it would end, by offset and by position, without the batches that end at `offset` or later."""
        number = self.index.count_up_to(offset - 1)
        end, position = self.base_offset, self.batch_of_entry(number - 1).position if number else 0
        for place in self.places(position):
            if place.last_offset >= offset:
                break
            end, position = place.last_offset + 1, place.end
        return end, position

    def first_timestamp(self) -> int:
        """The newest timestamp of the first batch, from which rolling by time counts; -1 without any, or if that batch
        is damaged, which must not keep others from being appended."""
        if self.size and self._first_timestamp == UNKNOWN:
            with suppress(BadBatch):
                self._first_timestamp = self.header(0).max_timestamp
        return NO_TIMESTAMP if not self.size or self._first_timestamp == UNKNOWN else self._first_timestamp

    @property
    def known_newest(self) -> int | None:
        """The newest timestamp, -1 without any; None if a file would have to be read."""
        return None if self._largest_timestamp == UNKNOWN else self._largest_timestamp

    def largest_timestamp(self) -> tuple[int, int]:
        """The newest timestamp, and the last offset of the (first) batch that has it; (-1, base offset) without any.

        The last entry of the time index has it for all but the last batches, and is compared with its batch: retention
        deletes by this number, so a wrong bit in it must be found.
        """
        if self._largest_timestamp == UNKNOWN:
            timestamp, offset, position = NO_TIMESTAMP, self.base_offset, 0
            entry = self.time_index.load_last()
            if entry is not None:
                timestamp, offset = entry
                place = self.locate(offset)
                if place is None or self.header(place.position).max_timestamp != timestamp:
                    raise CorruptIndex(f"{self.time_index.entries.path}: no batch at {offset} has {timestamp}")
                offset, position = place.last_offset, place.end
            for place in self.places(position):
                header = self.header(place.position)
                if header.max_timestamp > timestamp:
                    timestamp, offset = header.max_timestamp, header.last_offset
            self._largest_timestamp, self._largest_offset = timestamp, offset
        return self._largest_timestamp, self._largest_offset

    # Changing --------------------------------------------------------------------------------------------------------

    def begin_rebuild(self) -> None:
        """Forgets all state beside the log itself; `note` each batch then, and `close_indexes` at the end."""
        self.holes = NO_HOLES
        self._starts = None
        self.index.clear()
        self.time_index.clear()
        self.checked.cut(0)
        self.next_offset = self.base_offset
        self._largest_timestamp, self._largest_offset = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = UNKNOWN
        self._since_entry = 0
        self.ready = True
        self.synced = False

    def note(self, found: ScannedBatch, index_interval_bytes: int) -> None:
        """Adds a sound batch of the log."""
        header = found.header
        self.checked.grow(found.position, found.position + header.size)
        self._note(header.last_offset, header.max_timestamp, found.position, header.size, index_interval_bytes)

    def note_hole(self, position: int, end: int) -> None:
        """The records there cannot be read."""
        self.holes = {**self.holes, position: end}

    def truncate_to(self, offset: int, position: int) -> None:
        """Ends the segment at `offset`, which is at `position` (see `end_before`). Durable when it returns.

        Index entries behind it go too, by their own offsets; if these are wrong, the next use will detect it.
        """
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        if position < self.size:
            self.cut(position)
            self.forget_numbers()

    def cut(self, position: int) -> None:
        """The log ends at `position` from now on, durably."""
        file = self.files.get(self.log_path)
        file.truncate(position)
        file.sync()
        self.size = position
        self._starts = None
        self.holes = {start: end for start, end in self.holes.items() if end <= position} or NO_HOLES
        self.checked.cut(position)
        self.synced = False

    def forget_numbers(self) -> None:
        """Drops the cached offsets and timestamps; they are found again on the next use."""
        empty = self.size == 0
        self.next_offset = self.base_offset if empty else UNKNOWN
        self._largest_timestamp = NO_TIMESTAMP if empty else UNKNOWN
        self._largest_offset = self.base_offset
        self._first_timestamp = UNKNOWN
        self._since_entry = 0
        self.ready = empty

    def rename(self, suffix: Suffix) -> None:
        """Move every file that there is to its name with this suffix. Ranges that were handed out stay readable."""
        for kind in SEGMENT_KINDS:
            old = self.path(kind)
            new = f"{self.directory}/{segment_file(self.base_offset, kind, suffix)}"
            self.files.forget(old)
            self.files.forget(new)
            if kind is Kind.LOG or self.files.disk.exists(old):
                self.files.disk.rename(old, new)
        self.renamed(suffix)

    def remove(self) -> None:
        """Remove every file that there is, the log first: what is left without it is a stray."""
        for kind in SEGMENT_KINDS:
            path = self.path(kind)
            self.files.forget(path)
            if self.files.disk.exists(path):
                self.files.disk.remove(path)

    def renamed(self, suffix: Suffix) -> None:
        """Its files have been renamed."""
        self.suffix = suffix
        self._renamed()

    def move(self, directory: str) -> None:
        """Its directory was renamed."""
        for kind in SEGMENT_KINDS:
            self.files.forget(self.path(kind))
        self.directory = directory
        self._renamed()

    def _renamed(self) -> None:
        self.log_path = self.path(Kind.LOG)
        self.index.entries.path = self.path(Kind.INDEX)
        self.time_index.entries.path = self.path(Kind.TIME_INDEX)
        self.txn_index.close()
        self.txn_index.moved(self.path(Kind.TXN_INDEX))

    def close_handles(self) -> None:
        """Hold no file. (Ranges that were handed out hold theirs.)"""
        for path in self.paths():
            self.files.forget(path)
        self.txn_index.close()

    def use(self, files: FilePool) -> None:
        """From now on take files from this pool."""
        self.files = self.index.entries.files = self.time_index.entries.files = files
        self.txn_index.close()
