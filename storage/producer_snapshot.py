"""The producers of a partition, on disk: `<offset>.snapshot` says how they stood before that offset.

    | version int16 = 1 | crc32c uint32 | count int32 | count × 46 bytes |         crc over everything after it
    | producer id int64 | epoch int16 | last sequence int32 | last offset int64 | offset delta int32 |
    | timestamp int64 | coordinator epoch int32 | first offset of the open transaction int64 |

Without snapshots a restart would have to read the whole log to know what a producer wrote last. One is taken when a
segment is rolled, named after the new segment's base offset, and one at a clean stop, named after the log's end. After
a restart the newest whole one is loaded and the log replayed from there. Only the last batch of each producer is in
it, not the window of five: Kafka's format has no more room, and a retry that comes over a restart is a retry of the
last batches in flight, most of which the replay brings back.

A snapshot is a hint with a checksum: damage raises `DamagedFile`, the caller throws the file away and takes an older
one, down to the start of the log. That is why one written at a roll need not be synced.
"""

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, NamedTuple

from trioka.protocol.checksum import crc32c

from .disk import Disk
from .layout import DamagedFile, Kind, Suffix, parse_segment_file, segment_file

VERSION: Final = 1
MAX_SNAPSHOT_BYTES: Final = 256 * 1024 * 1024  # 5.8 million producers; more than any partition has seen

_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == 46


class SnapshotEntry(NamedTuple):
    """One producer as the file has it; -1 stands for nothing in every field but `offset_delta`."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset minus first offset of the last batch
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode(entries: Iterable[SnapshotEntry]) -> bytes:
    body = [_ENTRY.pack(*entry) for entry in entries]
    data = _COUNT.pack(len(body)) + b"".join(body)
    return _HEAD.pack(VERSION, crc32c(data)) + data


def decode(path: str, data: bytes) -> list[SnapshotEntry]:
    start = _HEAD.size + _COUNT.size
    if len(data) < start:
        raise DamagedFile(path, f"{len(data)} bytes are too few for a snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise DamagedFile(path, f"version {version}, not {VERSION}")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise DamagedFile(path, "the checksum does not fit")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if count * _ENTRY.size != len(data) - start:
        raise DamagedFile(path, f"announces {count} producers and has {len(data) - start} bytes for them")
    entries = [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[start:])]
    for entry in entries:
        if entry.producer_id < 0 or entry.offset_delta < 0 or entry.epoch < -1:
            raise DamagedFile(path, f"{entry} cannot be")
    return entries


class SnapshotFiles:
    """The snapshots of one partition, by offset. Every one known here is in the directory, whole or not."""

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

    def write(self, offset: int, entries: Iterable[SnapshotEntry], *, sync: bool) -> None:
        """Durable when it returns if `sync`; otherwise some time later, whole or recognisably not."""
        data = encode(entries)
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

    def read(self, offset: int) -> list[SnapshotEntry]:
        path = self.path(offset)
        size = self._disk.size(path)
        if size > MAX_SNAPSHOT_BYTES:
            raise DamagedFile(path, f"{size} bytes; no snapshot has more than {MAX_SNAPSHOT_BYTES}")
        return decode(path, self._disk.read(path))

    def remove(self, offset: int) -> None:
        """No complaint when it is gone already: it may have been swept with its segment."""
        at = bisect_left(self.offsets, offset)
        if at < len(self.offsets) and self.offsets[at] == offset:
            del self.offsets[at]
            if self._disk.exists(self.path(offset)):
                self._disk.remove(self.path(offset))

    def remove_before(self, offset: int) -> None:
        """Those that nobody needs once the log starts at `offset`."""
        for old in self.offsets[: bisect_left(self.offsets, offset)]:
            self.remove(old)

    def remove_outside(self, log_start: int, log_end: int) -> None:
        """Keep those that lie inside the log: one at its start knows of nothing that is left."""
        for offset in [offset for offset in self.offsets if not log_start < offset <= log_end]:
            self.remove(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """At start: keep those named after a segment, and the newest if it lies beyond them (the clean stop's)."""
        bases = set(base_offsets)
        newest_base = max(bases, default=-1)
        strays = [offset for offset in self.offsets if offset not in bases]
        for offset in strays:
            if offset != strays[-1] or offset < newest_base:
                self.remove(offset)
