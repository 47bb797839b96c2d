"""Which offset belongs to a time: ListOffsets by timestamp, and of the newest record (KIP-79, KIP-734).

The answer is a record, not a batch: the first one, by offset, whose timestamp is at least the requested one. The time
index gives the batch to start from, and the headers show which batches to open; only those are decoded. Segments
whose newest record is older are skipped.

Records are ordered by offset, not by time, so "the first at or after t" may be followed by older ones. Control records
count like any others, as in Kafka.
"""

from typing import NamedTuple

from trioka.protocol.batch import read_header, records
from trioka.protocol.errors import KafkaError

from .index import CorruptIndex
from .log import Log
from .segment import NO_TIMESTAMP, BatchPosition, Segment


class TimestampOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int, *, upto: int | None = None) -> TimestampOffset | None:
    """The first record at or after `timestamp`, if it is before `upto` (the log's end, if None)."""
    end = log.log_end_offset if upto is None else upto
    for segment in log.segments[log.segments.number_for(log.log_start_offset) :]:
        if segment.base_offset >= end:
            break
        if segment.size and log.query(segment, Segment.largest_timestamp)[0] >= timestamp:
            found = log.query(segment, lambda segment: _first_from(segment, timestamp, log.log_start_offset))
            if found is not None:
                return found if found.offset < end else None
    return None


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """The newest record; of several the first. None if no record has a timestamp."""
    newest: tuple[int, Segment, int] | None = None
    for segment in log.segments:
        timestamp, offset = log.query(segment, Segment.largest_timestamp)
        if timestamp > NO_TIMESTAMP and (newest is None or timestamp > newest[0]):
            newest = timestamp, segment, offset
    if newest is None:
        return None
    timestamp, segment, offset = newest
    return log.query(segment, lambda segment: _first_from(segment, timestamp, log.log_start_offset))


def _first_from(segment: Segment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    for place in segment.places(_search_start(segment, timestamp, start_offset)):
        if place.last_offset >= start_offset and segment.header(place.position).max_timestamp >= timestamp:
            found = _first_in(segment, place, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _search_start(segment: Segment, timestamp: int, start_offset: int) -> int:
    """A position before which nothing is as new. A time index entry is used only if it agrees with its batch."""
    position = 0
    number = segment.time_index.count_up_to(timestamp)
    if number:
        newest, offset = segment.time_index.entry(number - 1)
        place = segment.locate(offset)
        if place is None or place.base_offset > offset or segment.header(place.position).max_timestamp != newest:
            raise CorruptIndex(f"{segment.time_index.entries.path}: no batch at {offset} has {newest}")
        position = place.position
    if start_offset > segment.base_offset:
        place = segment.locate(start_offset)
        position = segment.size if place is None else max(position, place.position)
    return position


def _first_in(segment: Segment, place: BatchPosition, timestamp: int, start_offset: int) -> TimestampOffset | None:
    data = segment.batch(place)
    header = read_header(data)
    try:
        for record in records(data, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
    except KafkaError:
        pass  # a batch with unreadable records has no record of this time
    return None
