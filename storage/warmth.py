"""Whether a read would wait for the device, and how to make that happen elsewhere.

One task serves all connections. If it touches a page that is not in memory, everyone waits for the disk: with a read, a
sendfile or a map alike. So before a fetch is planned, the kernel is asked whether the bytes are there (`is_resident`: a
read of one byte that may not wait, for each 128 KB). If they are not, a worker thread reads them, which brings them
into the page cache, and the fetch is planned after that. Planning itself looks at the index and at some headers, so the
index is asked about first, once for each segment.

What is warm costs 0.6 µs for each probe: 1 µs for the end of the log, 5 for a megabyte (docs/decisions/0006), and under
load three times that, because a system call is dearer then. So for who reads on, the kernel is asked about the next few
megabytes at once, and what it says is believed for a moment. A page may be lost meanwhile, as it may be between any
question and its read. That is one late answer, and not a rule.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from .disk import Disk
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


AHEAD_BYTES: Final = 8 * 1024 * 1024
BELIEVED_S: Final = 0.02
"""How much is asked about at once, and how long the answer is believed: the kernel forgets nothing within so little
time, unless memory is very short."""


class Believed:
    """What one reader knows to be in memory, because it was a moment ago: a part of a segment."""

    __slots__ = ("end", "segment", "start", "until")

    def __init__(self) -> None:
        self.segment: Segment | None = None
        self.start = self.end = 0
        self.until = 0.0

    def covers(self, segment: Segment, start: int, end: int, now: float) -> bool:
        return self.segment is segment and self.start <= start and end <= self.end and now < self.until


def cold_part(
    log: "Log", offset: int, max_bytes: int, believed: Believed | None = None, now: float = 0.0
) -> ColdPart | None:
    """What a read from this offset on would wait for; None if nothing, or if that is `believed`."""
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
    if size <= 0 or (believed is not None and believed.covers(segment, position, position + size, now)):
        return None
    file = segment.files.get(segment.log_path)
    if believed is not None and goes_on:
        ahead = min(AHEAD_BYTES, segment.size - position)
        if ahead > size and file.is_resident(position, ahead):
            believed.segment, believed.until = segment, now + BELIEVED_S
            believed.start, believed.end = position, position + ahead
            return None
    if file.is_resident(position, size):
        return None
    return ColdPart(segment.files.disk, segment.log_path, position, size)


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


def warm(part: ColdPart) -> None:
    """Brings it into memory. Blocks: call it in a worker thread, where it opens the file anew. One that has gone
    meanwhile is nobody's to read any more."""
    try:
        file = part.disk.open(part.path)
    except FileNotFoundError:
        return
    try:
        file.warm(part.position, part.size)
    finally:
        file.close()
