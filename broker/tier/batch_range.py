"""Cuts whole batches out of ranges of a segment, and checks each of them.

    chunk n            │ batch │ batch │ bat
    chunk n + 1                            ch │ batch │ …

A read returns a view of one chunk, or, if the first batch goes over its end, a copy of some bytes of both. All of it
runs in worker threads: headers and CRCs of 1 MB take a third of a millisecond.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from trioka.protocol.batch import HEADER_SIZE, BatchHeader, check_crc, read_header, records
from trioka.protocol.errors import CorruptMessage, KafkaError, ProtocolError, UnsupportedForMessageFormat

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024  # more than a request may have; a wrong length must not load a whole segment


class Extract(NamedTuple):
    """Whole batches, and the offset behind them; or, if `missing_bytes` is positive, so many more bytes are needed for
    the first one. Without either, a `next_offset` behind the requested one says that there is nothing before it."""

    records: memoryview
    next_offset: int
    missing_bytes: int = 0


class TimedRecord(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class Anchor(NamedTuple):
    """What is known about a batch before its header is read."""

    base_offset: int  # it begins there, or later if there are gaps
    last_offset: int | None  # as its index entry says; None if it has none
    is_contiguous: bool  # the segment has no gaps

    def check(self, header: BatchHeader) -> None:
        is_right = header.base_offset >= self.base_offset and header.last_offset >= header.base_offset
        if self.is_contiguous and self.last_offset is None:
            is_right = is_right and header.base_offset == self.base_offset
        if self.last_offset is not None:
            is_right = is_right and header.last_offset == self.last_offset
        if not is_right:
            raise CorruptMessage(f"a batch has the offsets {header.base_offset} to {header.last_offset}, not {self}")


class BatchRangeRequest(NamedTuple):
    """What a read requests."""

    offset: int
    end_offset: int  # only batches that end before it
    max_bytes: int
    at_least_one: bool  # the first batch may be larger than max_bytes
    anchor: Anchor  # of the first bytes
    is_last_data: bool  # nothing follows these bytes in the segment


NOTHING: Final = memoryview(b"")


def joined(views: Sequence[memoryview], skipped: int, limit: int) -> memoryview:
    """`limit` bytes behind the first `skipped` ones: a view, or a copy if they are in several."""
    if skipped + limit <= len(views[0]) or len(views) == 1:
        return views[0][skipped : skipped + limit]
    pieces, position = [], 0
    for view in views:
        start, end = max(skipped - position, 0), max(skipped + limit - position, 0)
        pieces.append(view[start:end])
        position += len(view)
    return memoryview(b"".join(pieces))


def extract(data: memoryview, wanted: BatchRangeRequest) -> Extract:
    """Whole batches from the one that holds `wanted.offset`, or is the next. CorruptMessage if one is damaged, or not
    where it should be: the CRC of a batch does not cover its offset."""
    position = start = 0
    expected, next_offset = wanted.anchor, wanted.offset
    found = False
    while position < len(data):
        header = _header(data, position)
        if header is None or position + header.size > len(data):
            if wanted.is_last_data:
                raise CorruptMessage(f"the segment ends inside a batch, behind offset {expected.base_offset}")
            if found:
                break
            needed = HEADER_SIZE if header is None else header.size
            return Extract(NOTHING, next_offset, position + needed - len(data))
        expected.check(header)
        if not check_crc(data, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} fails its checksum")
        size = position + header.size - start
        if found or header.last_offset >= wanted.offset:
            if not found:
                start, size = position, header.size
            is_too_large = size > wanted.max_bytes and (found or not wanted.at_least_one)
            if is_too_large or header.last_offset >= wanted.end_offset:
                break
            found, next_offset = True, header.next_offset
        position += header.size
        expected = Anchor(header.next_offset, None, expected.is_contiguous)
    if found or position < len(data):
        return Extract(data[start:position] if found else NOTHING, next_offset)
    if wanted.is_last_data:
        return Extract(NOTHING, wanted.end_offset)  # the segment ends with a gap
    return Extract(NOTHING, next_offset, HEADER_SIZE)


def _header(data: memoryview, position: int) -> BatchHeader | None:
    """None if it is cut off."""
    if len(data) - position < HEADER_SIZE:
        return None
    try:
        header = read_header(data, position)
    except (ProtocolError, UnsupportedForMessageFormat) as error:
        raise CorruptMessage(str(error)) from None
    if header.size > MAX_BATCH_BYTES:
        raise CorruptMessage(f"a batch of {header.size} bytes; the limit is {MAX_BATCH_BYTES}")
    return header


def first_from(data: memoryview, timestamp: int, start_offset: int, end_offset: int) -> TimedRecord | None:
    """The first record in [start_offset, end_offset) that is as late as `timestamp`, in checked batches."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        with suppress(KafkaError):  # a batch with unreadable records has no record of this time
            for record in records(data, header) if header.max_timestamp >= timestamp else ():
                if record.timestamp >= timestamp and start_offset <= record.offset < end_offset:
                    return TimedRecord(record.offset, record.timestamp, header.leader_epoch)
        position += header.size
    return None
