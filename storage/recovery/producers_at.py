"""The producer snapshot at the end of a closed segment of a tiered log.

Usually it is the file that was written when the segment was rolled. Such a file is only an optimization for other logs,
and may be missing or torn after a crash. For a tiered log it is more: readers of the object store find in the last
segment's snapshot which transactions are open there (archive/transactions.py), and a restored log aborts them. So the
snapshot is computed again then, from the newest whole one before it and the batches since. The caller may know one that
is not on this disk: the end of a remote segment. Without any, the segment cannot be copied.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from trioka.protocol.errors import KafkaStorageError

from ..files.disk import Disk
from ..files.layout import CorruptFile
from ..producers.producer_snapshot import ProducerSnapshot, SnapshotFiles, decode, encode
from ..producers.producer_state import ProducerState
from ..segments.batch_scan import scan
from .index_rebuild import replay_batch

KNOWN: Final = "producer snapshot of a remote segment"  # in place of a path, in errors


class NoProducerSnapshot(KafkaStorageError):
    """Nothing on this disk says which producers there were before its first segment."""


class KnownProducers(NamedTuple):
    """A producer snapshot from elsewhere: all producers before an offset."""

    offset: int
    data: bytes


class SegmentFile(NamedTuple):
    path: str
    base_offset: int
    next_offset: int
    size: int


def snapshot_at_end(
    disk: Disk,
    directory: str,
    segments: Sequence[SegmentFile],
    *,
    begins_empty: bool,
    known: KnownProducers | None = None,
) -> bytes:
    """At the end of the last of these segments, which follow one another. `begins_empty`: nothing is before the first
    one, neither here nor in the object store. Raises NoProducerSnapshot, CorruptFile. Blocks."""
    files = SnapshotFiles(disk, directory)
    end = segments[-1].next_offset
    if _read(disk, files, end) is not None:
        return disk.read(files.path(end))
    for number in range(len(segments) - 1, -1, -1):
        snapshot = _read(disk, files, segments[number].base_offset)
        if snapshot is None and number == 0 and begins_empty:
            snapshot = ProducerSnapshot([])
        if snapshot is not None:
            return encode(_replayed(disk, files, snapshot, segments[number:], segments[number].base_offset))
    if known is not None and segments[0].base_offset <= known.offset <= end:
        rest = [segment for segment in segments if segment.next_offset > known.offset]
        return encode(_replayed(disk, files, decode(KNOWN, known.data), rest, known.offset))
    raise NoProducerSnapshot(
        f"{directory}: the segment at {segments[-1].base_offset} is not copied: no producer snapshot before it is left"
    )


def _read(disk: Disk, files: SnapshotFiles, offset: int) -> ProducerSnapshot | None:
    if not disk.exists(files.path(offset)):
        return None
    try:
        return files.read(offset)
    except CorruptFile:
        return None


def _replayed(
    disk: Disk, files: SnapshotFiles, snapshot: ProducerSnapshot, segments: Sequence[SegmentFile], offset: int
) -> ProducerSnapshot:
    producers = ProducerState(files)
    producers.load(snapshot, offset)
    for segment in segments:
        file = disk.open(segment.path)
        try:
            batches = scan(file, end=segment.size, base_offset=segment.base_offset, limit=segment.next_offset)
            for found in batches:
                if found.header.base_offset >= offset:
                    replay_batch(producers, found)
        finally:
            file.close()
    return producers.snapshot()
