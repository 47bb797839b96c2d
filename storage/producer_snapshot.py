"""The producers of a partition, on disk: `<offset>.snapshot` has their state before that offset.

    | version int16 = 1 | crc32c uint32 | count int32 | count × 46 bytes | extension |     crc over everything after it
    | producer id int64 | epoch int16 | last sequence int32 | last offset int64 | offset delta int32 |
    | timestamp int64 | coordinator epoch int32 | first offset of the open transaction int64 |

Without snapshots a restart would have to read the whole log to know what a producer wrote last. One is taken when a
segment is rolled, named after the new segment's base offset, and one at a clean stop, named after the log's end. After
a restart the newest whole one is loaded and the log replayed from there.

Kafka's entry names the last batch of a producer. But a client with five requests in flight may repeat any of the last
five batches after a restart, so the others follow in an extension of trioka:

    | "TRIOKA-1" | count int32 | count × 32 bytes |
    | producer id int64 | first sequence int32 | first offset int64 | offset delta int32 | timestamp int64 |

A producer with more than one batch has all of them there, the oldest first. Kafka reads its entries and ignores the
bytes behind them, which its checksum covers too; a compat test has Kafka read such a file. One file instead of two:
the batches cannot be of another snapshot than the entries, they are removed with them, and a clean stop syncs no
second file. A snapshot without this part comes from Kafka (or from an earlier version of trioka); then recovery looks
for the batches in the last bytes of the log (`restore_recent_batches`).

A snapshot is only an optimization: damage raises `CorruptFile`, the caller removes the file and takes an older one,
or replays from the start of the log. That is why a snapshot written at a roll need not be synced.
"""

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, NamedTuple

from trioka.protocol.checksum import crc32c

from .disk import Disk
from .layout import CorruptFile, Kind, Suffix, parse_segment_file, segment_file

VERSION: Final = 1
MAX_SNAPSHOT_BYTES: Final = 256 * 1024 * 1024  # 5.8 million producers; more than any partition has seen

_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == 46
_BATCHES_MAGIC: Final = b"TRIOKA-1"
_BATCH: Final = struct.Struct(">qiqiq")
assert _BATCH.size == 32


class SnapshotEntry(NamedTuple):
    """One producer in the file; -1 means none in every field but `offset_delta`."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset minus first offset of the last batch
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class SnapshotBatch(NamedTuple):
    """One of the last batches of a producer."""

    producer_id: int
    first_sequence: int  # -1 if a coordinator wrote it in the name of the producer
    first_offset: int
    offset_delta: int
    timestamp: int

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.offset_delta


class ProducerSnapshot(NamedTuple):
    """The content of a file. `batches` is None if it has only Kafka's part."""

    entries: list[SnapshotEntry]
    batches: list[SnapshotBatch] | None = None


def encode(snapshot: ProducerSnapshot) -> bytes:
    body = [_ENTRY.pack(*entry) for entry in snapshot.entries]
    data = _COUNT.pack(len(body)) + b"".join(body)
    if snapshot.batches is not None:
        rows = [_BATCH.pack(*batch) for batch in snapshot.batches]
        data += _BATCHES_MAGIC + _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, crc32c(data)) + data


def decode(path: str, data: bytes) -> ProducerSnapshot:
    start = _HEAD.size + _COUNT.size
    if len(data) < start:
        raise CorruptFile(path, f"{len(data)} bytes are too few for a snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptFile(path, f"version {version}, not {VERSION}")
    view = memoryview(data)
    if crc32c(view[_HEAD.size :]) != crc:
        raise CorruptFile(path, "the checksum does not fit")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    end = start + count * _ENTRY.size
    if not start <= end <= len(data):
        raise CorruptFile(path, f"announces {count} producers and has {len(data) - start} bytes for them")
    entries = [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(view[start:end])]
    for entry in entries:
        if entry.producer_id < 0 or entry.offset_delta < 0 or entry.epoch < -1:
            raise CorruptFile(path, f"{entry} cannot be")
    return ProducerSnapshot(entries, _decode_batches(path, view[end:], entries) if end < len(data) else None)


def _decode_batches(path: str, view: memoryview, entries: list[SnapshotEntry]) -> list[SnapshotBatch]:
    start = len(_BATCHES_MAGIC) + _COUNT.size
    if len(view) < start or bytes(view[: len(_BATCHES_MAGIC)]) != _BATCHES_MAGIC:
        raise CorruptFile(path, f"has {len(view)} bytes behind its producers of an unknown format")
    (count,) = _COUNT.unpack_from(view, len(_BATCHES_MAGIC))
    if count * _BATCH.size != len(view) - start:
        raise CorruptFile(path, f"announces {count} batches and has {len(view) - start} bytes for them")
    batches = [SnapshotBatch._make(fields) for fields in _BATCH.iter_unpack(view[start:])]
    last_offsets = {entry.producer_id: entry.last_offset for entry in entries}
    newest: dict[int, int] = {}
    for batch in batches:
        if batch.offset_delta < 0 or batch.first_offset <= newest.get(batch.producer_id, -1):
            raise CorruptFile(path, f"{batch} cannot be")
        newest[batch.producer_id] = batch.last_offset
    for producer_id, last_offset in newest.items():
        if last_offsets.get(producer_id) != last_offset:
            raise CorruptFile(path, f"the last batch of producer {producer_id} is not the one of its entry")
    return batches


class SnapshotFiles:
    """The snapshots of one partition, by offset. Every snapshot in this list is in the directory, complete or not."""

    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets: list[int] = sorted(offsets)

    @classmethod
    def scan(cls, disk: Disk, directory: str) -> "SnapshotFiles":
        parsed = map(parse_segment_file, disk.list(directory))
        found = (file.base_offset for file in parsed if file and file.kind is Kind.SNAPSHOT and not file.suffix)
        return cls(disk, directory, found)

    def path(self, offset: int, suffix: Suffix = Suffix.NONE) -> str:
        return f"{self.directory}/{segment_file(offset, Kind.SNAPSHOT, suffix)}"

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def write(self, offset: int, snapshot: ProducerSnapshot, *, sync: bool) -> None:
        """Durable when it returns if `sync`; otherwise some time later, whole or recognisably not."""
        data = encode(snapshot)
        if sync:
            self._disk.replace(self.path(offset), data)
        else:
            file = self._disk.open(self.path(offset), create=True)
            try:
                file.write(0, data)
                file.truncate(len(data))
            finally:
                file.close()
        if offset not in self.offsets:
            insort(self.offsets, offset)

    def settle(self, offset: int) -> None:
        """Makes unsynced snapshots durable, because the records that they cover are removed."""
        if offset in self.offsets and self._disk.exists(self.path(offset)):
            file = self._disk.open(self.path(offset))
            try:
                file.sync()
            finally:
                file.close()
            self._disk.sync_directory(self.directory)

    def read(self, offset: int) -> ProducerSnapshot:
        path = self.path(offset)
        size = self._disk.size(path)
        if size > MAX_SNAPSHOT_BYTES:
            raise CorruptFile(path, f"{size} bytes; no snapshot has more than {MAX_SNAPSHOT_BYTES}")
        return decode(path, self._disk.read(path))

    def remove(self, offset: int) -> None:
        """Ignores a missing file: it may have been removed with its segment."""
        at = bisect_left(self.offsets, offset)
        if at < len(self.offsets) and self.offsets[at] == offset:
            del self.offsets[at]
            if self._disk.exists(self.path(offset)):
                self._disk.remove(self.path(offset))

    def remove_before(self, offset: int) -> None:
        """The snapshots that are not needed once the log starts at `offset`."""
        for old in self.offsets[: bisect_left(self.offsets, offset)]:
            self.remove(old)

    def remove_outside(self, start: int, end: int) -> None:
        """Keeps the snapshots inside the log. One at its start is kept, unlike in Kafka: the records of its producers
        are removed, but a client may still repeat them."""
        for offset in [offset for offset in self.offsets if not start <= offset <= end]:
            self.remove(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """At start: keep those named after a segment, and the newest if it lies beyond them (the clean stop's)."""
        bases = set(base_offsets)
        newest_base = max(bases, default=-1)
        strays = [offset for offset in self.offsets if offset not in bases]
        for offset in strays:
            if offset != strays[-1] or offset < newest_base:
                self.remove(offset)
