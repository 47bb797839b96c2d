"""Whether a read would wait for the device, and how to make that happen elsewhere.

One task serves all connections. If it touches a page that is not in memory, everyone waits for the disk: with a read, a
sendfile or a map alike. So before a fetch is planned, the kernel is asked whether the bytes are there (`is_resident`: a
read of one byte that may not wait, for each 128 KB). If they are not, a worker thread reads them, which brings them
into the page cache, and the fetch is planned after that. Planning itself looks at the index and at some headers, so the
index is asked about first, once for each segment.

**What comes from the disk is checked.** A batch is compared with its CRC before it first leaves, and is believed as
long as it stays in memory (spans.py). If something of a segment is not in memory any more, nothing of that segment is
believed; the worker thread checks what it reads, and whatever else is asked for is checked before it leaves.

What is warm costs 0.6 µs for each probe: 1 µs for the end of the log, 5 for a megabyte (docs/decisions/0006), and under
load three times that, because a system call is dearer then. So for who reads on, the kernel is asked about the next few
megabytes at once, and what it says is believed for a moment, by everybody (warm_parts.py). A page may be lost
meanwhile, as it may be between any question and its read. That is one late answer, and not a rule.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from .batch_scan import BadBatch, scan
from .disk import Disk, File
from .index import DamagedIndex
from .segment import LOOK_BYTES, Segment
from .warm_parts import PART_BYTES

if TYPE_CHECKING:
    from .log import Log


AHEAD_TIMES: Final = 8
"""Of what is read: so much is asked about at once, up to the end of a part."""


class ColdPart(NamedTuple):
    """A part of a file that somebody will have to wait for."""

    disk: Disk
    path: str
    position: int
    size: int
    segment: Segment | None = None  # whose batches these are; None for an index


def cold_part(log: "Log", offset: int, max_bytes: int, now: float) -> ColdPart | None:
    """What a read from this offset on would wait for; None if nothing, or if that is believed."""
    segment = log.segments.active
    if offset < segment.base_offset:
        segment = log.segments.holding(offset)
    position = segment.known_start(offset)
    goes_on = position is not None
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
    if size <= 0 or _is_warm(segment, position, position + size, now, goes_on):
        return None
    if segment.files.get(segment.log_path).is_resident(position, size):
        return None
    segment.files.warm_parts.forget()
    # What was checked has left memory, here and perhaps elsewhere in the file, and what comes back from the disk, or is
    # read ahead with it, may not be what was written.
    segment.checked.cut(0)
    return ColdPart(segment.files.disk, segment.log_path, position, size, segment)


def _is_warm(segment: Segment, position: int, end: int, now: float, goes_on: bool) -> bool:
    """Whether all of it is believed to be in memory. For who reads on, the kernel is asked where nobody has, and about
    what comes next too."""
    files, path = segment.files, segment.log_path
    ahead = position + AHEAD_TIMES * (end - position)
    while position < end:
        behind = position - position % PART_BYTES + PART_BYTES
        if not files.warm_parts.has(path, position, min(end, behind), now):
            asked_end = min(ahead, behind, segment.size)
            if not goes_on or not files.get(path).is_resident(position, asked_end - position):
                return False
            files.warm_parts.note(path, position, behind if asked_end == segment.size else asked_end, now)
        position = behind
    return True


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
