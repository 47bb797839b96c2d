"""Reads of a few kilobytes: the end of a log, or some of each of a thousand partitions.

A page cache probe, one or two header reads, the plan of a range, and the read when it is sent are
five system calls (page_cache_probe.py, read_plan.py), each of which costs as much as copying these bytes. Here they
are read at once by one that does not wait for the device (`File.read_resident`), and the batches are found in those
bytes. It serves readers that continue where a read has ended, since their position is known; that is nearly all of
them.

**Every read is verified** here too: the first batch must begin with the requested offset, a batch to which the index
points must end with the offset of the entry, and unverified bytes are left to `Log.read`, as is every other special
case. It raises no error that `Log.read` would not raise.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC

from .batch_scan import NO_OFFSET
from .index import CorruptIndex
from .segment import HEADER_READ_BYTES, PLACE, PLACE_SIZE, Segment

if TYPE_CHECKING:
    from .log import Log

SMALL_BYTES: Final = 32 * 1024
"""Up to here a copy costs less than the system calls that it saves."""


class SmallRead(NamedTuple):
    """Whole batches, the first of which begins with the requested offset, and the offset behind them."""

    records: memoryview
    next_offset: int


def take(log: "Log", offset: int, max_bytes: int, upto: int) -> SmallRead | None:
    """The batches for a reader that continues here, all before `upto`; the offset is between the log's start and that.
    None if they are large, not in memory, or a special case: `Log.read` handles these."""
    segment = log.segments.active
    if offset < segment.base_offset:
        segment = log.segments.holding(offset)
    position = segment.known_start(offset)
    if position is None or segment.holes or log.quarantine.damages:
        return None
    size = min(max_bytes, segment.size - position)
    if not HEADER_SIZE <= size <= SMALL_BYTES:
        return None
    data = segment.files.get(segment.log_path).read_resident(position, size)
    if data is None or PLACE.unpack_from(data)[0] != offset:
        return None
    end, next_offset, entry_offset = 0, offset, NO_OFFSET
    if size > HEADER_READ_BYTES and segment.index_is_warm:
        end, entry_offset = _last_entry(segment, position, size)
    unpack = PLACE.unpack_from
    while end + PLACE_SIZE <= size:
        base_offset, length, magic, delta = unpack(data, end)
        behind, last_offset = end + length + LOG_OVERHEAD, base_offset + delta
        if magic != MAGIC or behind < end + HEADER_SIZE or delta < 0 or base_offset < next_offset:
            return None
        if entry_offset >= 0:
            if last_offset != entry_offset:
                return None  # the index is wrong, which `Log.read` finds out too, and mends
            entry_offset = NO_OFFSET
        if behind > size or last_offset >= upto:
            next_offset = base_offset
            break
        end, next_offset = behind, last_offset + 1
    if not end or next_offset > upto or not segment.checked.covers(position, position + end):
        return None
    segment.followed(next_offset, position + end)
    return tuple.__new__(SmallRead, (memoryview(data)[:end], next_offset))  # SmallRead(…), at half the price


def _last_entry(segment: Segment, position: int, size: int) -> tuple[int, int]:
    """The position of the last batch in these bytes with an index entry, and its last offset: headers before
    it need not be read. The start of the bytes, without an offset, if there is none."""
    try:
        around = segment.index.around_position(position + size, segment.size)
    except CorruptIndex:
        return 0, NO_OFFSET
    if around is None or not position < around[1] <= position + size - PLACE_SIZE:
        return 0, NO_OFFSET
    return around[1] - position, around[0]
