"""Batches read one after another out of a segment's file, each checked: for recovery, scrubbing and rebuilding.

A batch is sound if its header makes sense (magic 2, a size that the file has room for), its CRC is right, it begins
after the last one ended, in its segment, and its leader's epoch is not older than that of the one before (I9). The
first that is not sound ends the scan with `BadBatch`; what that means (a torn tail, or damage) is not decided here.

The CRC does not cover the first 21 bytes of a batch, and so neither its offset nor its epoch. A wrong bit there shows
in the order: the next batch begins before this one ends, or has an older epoch. The batch before both decides which of
the two is wrong: the one that does not continue it. (In a log with gaps, after compaction, a wrong offset that is still
in its gap cannot be detected; nor can a wrong epoch that does not break the order of epochs.)
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from trioka.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_crc, read_header
from trioka.protocol.errors import ProtocolError, UnsupportedForMessageFormat

from ..files.disk import File

CHUNK_BYTES: Final = 1024 * 1024
"""Read at once; a larger batch is read whole, and no batch is larger than its segment."""

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


class BadBatch(Exception):
    """The bytes at `position` are not a sound batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class ScannedBatch(NamedTuple):
    """A sound batch: its position in the file, and in `buffer` (at `header.position`)."""

    position: int
    header: BatchHeader
    buffer: bytes


def scan(
    file: File,
    *,
    end: int,
    base_offset: int,
    position: int = 0,
    last_offset: int = NO_OFFSET,
    epoch: int = NO_EPOCH,
    limit: int = MAX_OFFSET,
) -> Iterator[ScannedBatch]:
    """The batches of [position, end), after one that ended with `last_offset` and had `epoch`; all before `limit`."""
    if position == 0 and last_offset == NO_OFFSET:
        last_offset = base_offset - 1
    buffer, start = b"", position
    while position < end:
        at = position - start
        if len(buffer) - at < HEADER_SIZE:
            buffer, start, at = file.read(position, min(CHUNK_BYTES, end - position)), position, 0
        header = _header(buffer, at, position)
        if header.size > end - position:
            raise BadBatch(position, f"its size is {header.size} bytes, {end - position} are left")
        if header.size > len(buffer) - at:
            buffer, start = file.read(position, min(max(CHUNK_BYTES, header.size), end - position)), position
            header = _header(buffer, 0, position)
        if not check_crc(buffer, header):
            raise BadBatch(position, "fails its CRC")
        _check_place(position, header, base_offset, last_offset, epoch, limit)
        unusual = header.base_offset != last_offset + 1 or header.leader_epoch > epoch
        if unusual and position + header.size < end:
            _check_next(file, position, header, last_offset, epoch)
        yield ScannedBatch(position, header, buffer)
        position += header.size
        last_offset = header.last_offset
        epoch = max(epoch, header.leader_epoch)


def _check_place(
    position: int, header: BatchHeader, base_offset: int, last_offset: int, epoch: int, limit: int
) -> None:
    last = header.last_offset
    if header.base_offset < base_offset or header.base_offset <= last_offset or header.last_offset_delta < 0:
        raise BadBatch(position, f"has offsets from {header.base_offset} to {last} after {last_offset}")
    if last - base_offset > MAX_RELATIVE_OFFSET or last >= limit:
        raise BadBatch(position, f"ends with offset {last}, too far from the segment's {base_offset}")
    if 0 <= header.leader_epoch < epoch:
        raise BadBatch(position, f"has leader epoch {header.leader_epoch} after {epoch}")


def _check_next(file: File, position: int, header: BatchHeader, last_offset: int, epoch: int) -> None:
    """For a batch after a gap, or with a new epoch: the next batch must not contradict it."""
    try:
        following = _header(file.read(position + header.size, HEADER_SIZE), 0, position)
    except BadBatch:
        return  # it will have its turn
    if header.base_offset != last_offset + 1 and last_offset < following.base_offset <= header.last_offset:
        raise BadBatch(
            position, f"has offsets from {header.base_offset} to {header.last_offset} before {following.base_offset}"
        )
    if epoch <= following.leader_epoch < header.leader_epoch and following.base_offset == header.last_offset + 1:
        raise BadBatch(position, f"has leader epoch {header.leader_epoch} between {epoch} and {following.leader_epoch}")


def _header(buffer: bytes, at: int, position: int) -> BatchHeader:
    try:
        return read_header(buffer, at)
    except (ProtocolError, UnsupportedForMessageFormat) as error:
        raise BadBatch(position, str(error)) from None


def find_next_batch(
    file: File, *, position: int, end: int, base_offset: int, last_offset: int, limit: int = MAX_OFFSET
) -> int | None:
    """Finds the next sound batch behind damage at `position`, if there is one before `end` and `limit`.

    The search tries the lengths of the damaged batch and of damaged batches behind it first, because most damage spares
    them; then every byte that could be a magic. A candidate needs a plausible header and a right CRC. But its offset is
    in no CRC, and a record may contain a batch; so the candidate must also begin with the offset behind the damaged
    batches, as computed from their headers, or a sound batch must follow it. The search thus finds a single good batch
    among damaged ones, which may be the last good copy.
    """
    expected = _offsets_behind({last_offset + 1}, file.read(position, HEADER_SIZE))

    def is_next(candidate: int, place: bytes) -> bool:
        if not _is_whole(file, candidate, end, base_offset, last_offset, limit):
            return False
        (offset,) = _OFFSET.unpack_from(place)
        return offset in expected or _is_followed(file, candidate, end, base_offset, last_offset, limit)

    at, place = position, file.read(position, HEADER_SIZE)
    while (size := _size(place, at, end)) is not None:
        at += size
        place = file.read(at, HEADER_SIZE)
        if is_next(at, place):
            return at
        expected |= _offsets_behind(expected, place)
    position += 1
    while end - position >= HEADER_SIZE:
        buffer = file.read(position, min(CHUNK_BYTES, end - position))
        found = buffer.find(_MAGIC_BYTE, _MAGIC_AT)
        while found >= 0:
            at = found - _MAGIC_AT
            if _plausible(buffer, at, end - position - at, last_offset):
                place = file.read(position + at, HEADER_SIZE)
                if is_next(position + at, place):
                    return position + at
                if _OFFSET.unpack_from(place)[0] in expected:  # it is one of the expected batches, and damaged itself
                    expected |= _offsets_behind(expected, place)
            found = buffer.find(_MAGIC_BYTE, found + 1)
        position += max(len(buffer) - _MAGIC_AT, 1)
    return None


def _offsets_behind(starts: set[int], place: bytes) -> set[int]:
    """The possible offsets of the next batch, from a damaged header with one wrong field: its offset, or the number of
    its offsets, which the header contains twice."""
    if len(place) < HEADER_SIZE:
        return set()
    own_offset, delta, count = _OFFSET_DELTA_COUNT.unpack_from(place)
    starts = {own_offset, *sorted(starts)[-MAX_EXPECTED:]}
    return {start + span for start in starts for span in (delta + 1, count)}


def _size(place: bytes, position: int, end: int) -> int | None:
    """The size of the batch that seems to be there, if it ends before `end`."""
    try:
        size = _header(place, 0, position).size
    except BadBatch:
        return None
    return size if position + size < end else None


def _is_whole(file: File, position: int, end: int, base_offset: int, last_offset: int, limit: int) -> bool:
    """Whether a batch with a right CRC and offsets behind the last batch is there, whatever follows it."""
    try:
        header = _header(file.read(position, HEADER_SIZE), 0, position)
        if header.size > end - position or header.last_offset - last_offset > MAX_RELATIVE_OFFSET:
            return False
        _check_place(position, header, base_offset, last_offset, NO_EPOCH, limit)
    except BadBatch:
        return False
    return check_crc(file.read(position, header.size), header)


def _is_followed(file: File, position: int, end: int, base_offset: int, last_offset: int, limit: int) -> bool:
    """Whether a sound batch follows the one there, which proves that its offset is right."""
    batches = scan(file, end=end, base_offset=base_offset, position=position, last_offset=last_offset, limit=limit)
    try:
        next(batches)
        return next(batches, None) is not None
    except BadBatch:
        return False


_MAGIC_AT: Final = 16
_MAGIC_BYTE: Final = b"\2"
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_OFFSET: Final = Struct(">q")
_OFFSET_DELTA_COUNT: Final = Struct(">q15xi30xi")

MAX_EXPECTED: Final = 16
"""Of so many guesses of where the next batch begins, the next guesses are made."""


def _plausible(buffer: bytes, at: int, left: int, last_offset: int) -> bool:
    """Cheap, because it is called for every byte of value 2 in the damage."""
    base_offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, at)
    return bool(last_offset < base_offset and HEADER_SIZE <= length + LOG_OVERHEAD <= left)
