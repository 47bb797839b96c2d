"""Whether a read would wait for the device, and how to make that happen elsewhere.

One task serves all connections. If it touches a page that is not in memory, everyone waits for the disk: with a read, a
sendfile or a map alike. So before a fetch is planned, the kernel is asked whether the bytes are there (`is_resident`: a
read of one byte that may not wait, for each 128 KB). If they are not, a worker thread reads them, which brings them
into the page cache, and the fetch is planned after that. Planning itself looks at the index and at some headers, so the
index is asked about first, once for each segment.

**What comes from the disk is checked.** A batch is compared with its CRC before it first leaves, and is believed as
long as it stays in memory (spans.py). If something of a segment is not in memory any more, nothing of that segment is
believed; the worker thread checks what it reads, and whatever else is asked for is checked before it leaves.

What is warm costs 0.6 µs for each probe: 1 µs for the end of the log, 5 for a megabyte (docs/decisions/0006). The
kernel is asked for each read, and nothing that it says is kept. A page may be lost between the question and the read:
that is one late answer, and not a rule.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from .batch_scan import BadBatch, scan
from .disk import Disk, File
from .index import DamagedIndex
from .segment import LOOK_BYTES, Segment

if TYPE_CHECKING:
    from .log import Log


class ColdPart(NamedTuple):
    """A part of a file that somebody will have to wait for."""

    disk: Disk
    path: str
    position: int
    size: int
    segment: Segment | None = None  # whose batches these are; None for an index


def cold_part(log: "Log", offset: int, max_bytes: int) -> ColdPart | None:
    """What a read from this offset on would wait for; None if nothing."""
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
        except DamagedIndex:
            return None  # whoever reads will find that out, and mend it
        position = 0 if around is None else around[1]
    size = min(max_bytes + LOOK_BYTES, segment.size - position)
    if size <= 0 or segment.files.get(segment.log_path).is_resident(position, size):
        return None
    # What was checked has left memory, here and perhaps elsewhere in the file, and what comes back from the disk, or is
    # read ahead with it, may not be what was written.
    segment.checked.cut(0)
    return ColdPart(segment.files.disk, segment.log_path, position, size, segment)


def _cold_index(segment: Segment) -> ColdPart | None:
    entries = segment.index.entries
    try:
        count = len(entries)
    except DamagedIndex:
        return None
    size = (count - len(entries.tail) // entries.width) * entries.width  # of those that are in the file
    if size and not segment.files.get(entries.path).is_resident(0, size):
        return ColdPart(segment.files.disk, entries.path, 0, size)
    return None


def warm(part: ColdPart) -> int:
    """Brings it into memory, and compares batches with their CRCs there: the position up to which they are sound.
    Blocks: call it in a worker thread, where it opens the file anew. One that has gone meanwhile is nobody's to read
    any more."""
    try:
        file = part.disk.open(part.path)
    except FileNotFoundError:
        return part.position
    try:
        file.warm(part.position, part.size)
        return part.position if part.segment is None else _sound_end(file, part, part.segment.base_offset)
    finally:
        file.close()


def _sound_end(file: File, part: ColdPart, base_offset: int) -> int:
    """A batch of which only a part was asked for is left to whoever reads it, as is one that is damaged."""
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


def warmed(part: ColdPart, sound_end: int) -> None:
    """What `warm` has found, in the log's own thread: these bytes need no check while they stay in memory."""
    if part.segment is not None:
        part.segment.checked.add(part.position, sound_end)
