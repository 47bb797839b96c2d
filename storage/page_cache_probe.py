"""Whether a read would wait for the device, and how to read such bytes in a worker thread.

One task serves all connections. If it touches a page that is not in memory, all connections wait for the disk: with a
read, a sendfile or a map alike. So before a fetch is planned, a system call checks whether the bytes are in the page
cache (`is_resident`: a non-blocking read of one byte for each 128 KB). If they are not, a worker thread reads them,
which brings them into the page cache, and the fetch is planned after that. Planning itself reads the index and some
headers, so the index is probed first, once for each segment.

**Bytes from the disk are verified.** A batch is compared with its CRC before it is first sent, and counts as verified
while it stays in memory (verified_ranges.py). If a part of a segment is no longer in memory, the whole segment counts
as unverified; the worker thread verifies what it reads, and the other bytes are verified before they are sent.

A probe of cached bytes costs 0.6 µs: 1 µs for the end of the log, 5 for a megabyte (docs/decisions/0006). Each read is
probed again, and no result is kept. A page may be dropped between the probe and the read: that delays one response.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from .batch_scan import BadBatch, scan
from .disk import Disk, File
from .index import CorruptIndex
from .segment import HEADER_READ_BYTES, Segment

if TYPE_CHECKING:
    from .log import Log


class UncachedRange(NamedTuple):
    """A part of a file that is not in the page cache."""

    disk: Disk
    path: str
    position: int
    size: int
    segment: Segment | None = None  # the segment of these batches; None for an index


def uncached_range(log: "Log", offset: int, max_bytes: int) -> UncachedRange | None:
    """The range for which a read from this offset on would wait; None if it would not."""
    segment = log.segments.active
    if offset < segment.base_offset:
        segment = log.segments.holding(offset)
    position = segment.known_start(offset)
    if position is None:
        if not segment.index_is_warm:
            part = _cold_index(segment)
            if part is not None:
                return part
            segment.index_is_warm = True
        try:
            around = segment.index.around_offset(offset)
        except CorruptIndex:
            return None  # the read will find the damage and repair it
        position = 0 if around is None else around[1]
    size = min(max_bytes + HEADER_READ_BYTES, segment.size - position)
    if size <= 0 or segment.files.get(segment.log_path).is_resident(position, size):
        return None
    # Checked bytes have left memory, here and perhaps elsewhere in the file, and the bytes that come back from the
    # disk, or are read ahead with them, may differ from what was written.
    segment.checked.cut(0)
    return UncachedRange(segment.files.disk, segment.log_path, position, size, segment)


def _cold_index(segment: Segment) -> UncachedRange | None:
    entries = segment.index.entries
    try:
        count = len(entries)
    except CorruptIndex:
        return None
    size = (count - len(entries.tail) // entries.width) * entries.width  # of the entries that are in the file
    if size and not segment.files.get(entries.path).is_resident(0, size):
        return UncachedRange(segment.files.disk, entries.path, 0, size)
    return None


def warm(part: UncachedRange) -> int:
    """Loads the range into memory, and verifies the CRCs of its batches: the position up to which they are sound.
    Blocks: call it in a worker thread, where it opens the file again. A file that was deleted meanwhile is not
    read."""
    try:
        file = part.disk.open(part.path)
    except FileNotFoundError:
        return part.position
    try:
        file.warm(part.position, part.size)
        return part.position if part.segment is None else _sound_end(file, part, part.segment.base_offset)
    finally:
        file.close()


def _sound_end(file: File, part: UncachedRange, base_offset: int) -> int:
    """Partial and damaged batches are left to the read itself."""
    sound = part.position
    with suppress(BadBatch):
        for found in scan(
            file,
            end=part.position + part.size,
            base_offset=base_offset,
            position=part.position,
            last_offset=base_offset - 1,
        ):
            sound = found.position + found.header.size
    return sound


def warmed(part: UncachedRange, sound_end: int) -> None:
    """Takes the result of `warm`, in the log's own thread: these bytes need no check while they stay in memory."""
    if part.segment is not None:
        part.segment.checked.add(part.position, sound_end)
