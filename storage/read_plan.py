"""What a fetch gets: (offset, max bytes) becomes a range of one segment's file; the connection sends it.

**Whole batches, always.** Kafka cuts a fetch at max bytes, wherever in a batch that is, and clients drop the torn end.
Here a range ends where a batch ends: no byte is sent twice, a follower needs no check, and every batch that leaves can
be checked. Where the index has an entry near the limit the range ends there, and no further headers are read; it may
then be a few kilobytes shorter than allowed. The first batch goes out whole even above the limit (KIP-74), unless the
caller has already something to send.

A read ends at the end of its segment; the next fetch continues in the next one.
"""

from typing import Final, NamedTuple

from .file_pool import FileRange
from .segment import HEADER_READ_BYTES, BatchPosition, Segment

NEAR_ENOUGH_BYTES: Final = 2 * HEADER_READ_BYTES
NEAR_ENOUGH_SHARE: Final = 8
"""The bytes of a fetch that may be given up to avoid reading headers, and an eighth of the fetch at most; clients
request a megabyte, by default."""


class ReadPlan(NamedTuple):
    """A part of a segment: whole batches, from `start_offset` up to `next_offset` (exclusive)."""

    position: int
    size: int
    start_offset: int  # of the first batch, so it may be before the requested offset
    next_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


class LogRead(NamedTuple):
    """The result of a read: the bytes, and their offsets. `records` is None if there are none."""

    records: FileRange | None
    start_offset: int
    next_offset: int


def plan(
    segment: Segment, offset: int, max_bytes: int, upto: int, at_least_one: bool, stop: int | None = None
) -> ReadPlan | None:
    """Whole batches from the one that holds `offset` (or is the next after it), all of them ending before `upto`.

    `stop` is a position at which the range must end if it reaches that far. None if the segment has no such range.
    """
    first = segment.follow(offset) or segment.locate(offset)
    if first is None:
        return None
    start, first_size, start_offset, last_offset = first
    if last_offset >= upto or (stop is not None and start >= stop):
        return None
    limit, next_offset = segment.size, segment.next_offset
    if next_offset < 0:
        next_offset = segment.end_offset()
    beyond: BatchPosition | None = None  # the batch before which the range ends, if that was looked at
    if next_offset > upto:
        beyond = segment.locate(upto)
        if beyond is not None:
            limit, next_offset = beyond.position, beyond.base_offset
    if stop is not None and stop < limit:
        limit, next_offset, beyond = stop, upto, None
    if limit - start > max_bytes:
        if first_size > max_bytes and not at_least_one:
            return ReadPlan(start, 0, start_offset, start_offset)
        if first_size >= max_bytes:
            limit, next_offset, beyond = start + first_size, last_offset + 1, None
        else:
            beyond = _first_beyond(segment, start, start + max_bytes)
            limit, _, next_offset, _ = beyond
    segment.followed(next_offset, limit if beyond is None else beyond)
    return tuple.__new__(ReadPlan, (start, limit - start, start_offset, next_offset))  # ReadPlan(…), at half the price


def _first_beyond(segment: Segment, position: int, limit: int) -> BatchPosition:
    """The first batch after the one at `position` that is left out, if the range must end at `limit` at the latest.
    There is one: the segment continues behind the limit."""
    near_enough = min(NEAR_ENOUGH_BYTES, (limit - position) // NEAR_ENOUGH_SHARE)
    around = segment.index.around_position(limit, segment.size)
    if around is not None and around[1] > position:
        near = segment.batch_at(around[0], around[1])
        position = near.position
        if position + near.size > limit or limit - position <= near_enough:
            return near
    for place in segment.places(position):
        if place.end > limit:
            return place
    raise AssertionError(f"{segment} does not reach {limit}")


def search_start(segment: Segment, offset: int) -> int:
    """The position from which on a batch with this offset must be, if the segment has one."""
    number = segment.index.count_up_to(offset)
    return segment.batch_of_entry(number - 1).position if number else 0


def check_around_holes(segment: Segment, position: int, end: int, limit: int) -> None:
    """`Segment.check` of the bytes outside of the known damage."""
    for hole in sorted(hole for hole in segment.holes if position <= hole < end):
        segment.check(position, hole, limit)
        position = segment.holes[hole]
    segment.check(position, end, limit)
