"""The producer snapshot at the end of a closed segment, for the object store.

Usually it is the file that was written when the segment was rolled. Such a file is only an optimization for a broker,
and may be missing or torn after a crash. For the object store it is more: readers find in the last segment's snapshot
which transactions are open there (archive/transactions.py), and a restored log aborts them. So the snapshot is computed
again then, from the newest whole one before it and the batches since. Where even that is not on the disk any more, the
segment is not copied.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trioka.protocol.errors import KafkaStorageError
from trioka.storage.batch_scan import scan
from trioka.storage.disk import Disk
from trioka.storage.index_rebuild import replay_batch
from trioka.storage.layout import CorruptFile
from trioka.storage.producer_snapshot import ProducerSnapshot, SnapshotFiles, encode
from trioka.storage.producer_state import ProducerState


class SegmentFile(NamedTuple):
    path: str
    base_offset: int
    next_offset: int
    size: int


def snapshot_at_end(disk: Disk, directory: str, segments: Sequence[SegmentFile], *, begins_empty: bool) -> bytes:
    """At the end of the last of these segments, which follow one another. `begins_empty`: nothing is before the first
    one, neither here nor in the object store. Blocks."""
    files = SnapshotFiles(disk, directory)
    end = segments[-1].next_offset
    if _read(disk, files, end) is not None:
        return disk.read(files.path(end))
    for number in range(len(segments) - 1, -1, -1):
        snapshot = _read(disk, files, segments[number].base_offset)
        if snapshot is None and number == 0 and begins_empty:
            snapshot = ProducerSnapshot([])
        if snapshot is not None:
            return encode(_replayed(disk, files, snapshot, segments[number:]))
    raise KafkaStorageError(
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
    disk: Disk, files: SnapshotFiles, snapshot: ProducerSnapshot, segments: Sequence[SegmentFile]
) -> ProducerSnapshot:
    producers = ProducerState(files)
    producers.load(snapshot, segments[0].base_offset)
    for segment in segments:
        file = disk.open(segment.path)
        try:
            batches = scan(file, end=segment.size, base_offset=segment.base_offset, limit=segment.next_offset)
            for found in batches:
                replay_batch(producers, found)
        finally:
            file.close()
    return producers.snapshot()
