"""The record batch, version 2: the unit that clients send, brokers check, files hold and replicas copy.

      0  base offset         int64    of the first record; the broker sets it
      8  length              int32    of all that follows, so 12 less than the whole
     12  leader epoch        int32    of the partition, when the batch was appended; the broker sets it
     16  magic               int8     2; the message sets of old, 0 and 1, have theirs in the same place
     17  crc                 uint32   CRC-32C of everything from here (21) on
     21  attributes          int16    bits 0-2 codec · 3 the broker set the time · 4 transactional · 5 control
                                      · 6 the base timestamp is a delete horizon
     23  last offset delta   int32    after compaction more than the records say: offsets are never given twice
     27  base timestamp      int64    of the first record, ms; or when tombstones may go (bit 6)
     35  max timestamp       int64    of all records, ms; if the broker set the time, this is it, for all
     43  producer id         int64    -1: none
     51  producer epoch      int16    -1: none
     53  base sequence       int32    of the first record, -1: none; the others follow, 2³¹-1 is followed by 0
     57  record count        int32    0: all were compacted away, and the batch stays for its offsets and sequences
     61  records, one behind the other (record.py), compressed together (compression.py)

Base offset and leader epoch stand in front of the CRC, so that a broker can set them without touching the rest; a time
that the broker sets costs another CRC, and still no re-encoding. Compressed batches are not decompressed.

This file works on buffers and positions instead of objects, because it is what a Produce costs: for a batch of 16 KB
`read_header` takes 0.6 µs, `verify` 1.3 and `assign_offset` 0.2 (`python bench/batches.py`).
`BatchHeader` is a named tuple for the same reason. Record bytes are never copied, except by what decodes records.

Errors, matching what Kafka answers to the same bytes:

    ProtocolError                 a header that is cut off, or has a length below 49 or a magic above 2: where a batch
                                  ends is not known. In a Produce this is CORRUPT_MESSAGE.
    UnsupportedForMessageFormat   a message set of magic 0 or 1, which Kafka 4 does not write either
    CorruptMessage                the CRC is wrong, or the buffer ends before the batch does
    UnsupportedCompressionType    a codec number that Kafka does not define
    MessageTooLarge               the records are above the limit when decompressed; clients split such a batch
    InvalidRecord                 the CRC is right and the content is not: damaged compression, or records that
                                  contradict the header or themselves. (For the former Kafka answers
                                  UNKNOWN_SERVER_ERROR, which does not show that the client is at fault.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from . import record as record_bytes
from . import record_values
from .checksum import crc32c
from .compression import Codec, CompressionError, DecompressedTooLarge, compress, decompress
from .errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    ProtocolError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from .record import NO_TIMESTAMP, BatchContext, EndTxnMarker, Record, RecordSpan

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from .primitives import RecordBytes

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length
MAGIC: Final = 2
NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = (1 << 31) - 1
MAX_BATCH_BYTES: Final = LOG_OVERHEAD + (1 << 31) - 1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21  # and everything that the CRC covers
_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_MIN_OLD_LENGTH: Final = 14  # of a message of magic 0
_MAGIC_END: Final = 17

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC_AND_ATTRIBUTES: Final = struct.Struct(">Ih")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH_TO_MAGIC: Final = struct.Struct(">iib")
assert _HEADER.size == HEADER_SIZE
_unpack_header: Final = _HEADER.unpack_from


class BatchHeader(NamedTuple):
    position: int  # where in the buffer the batch starts
    size: int  # of the whole batch
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> Codec:
        codec = self.attributes & CODEC_MASK
        if codec > Codec.ZSTD:
            raise UnsupportedCompressionType(f"codec {codec}, in the batch at offset {self.base_offset}")
        return Codec(codec)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


# --- reading headers


def single_batch_header(buffer: RecordBytes) -> BatchHeader | None:
    """The header, if the received bytes are exactly one batch."""
    try:
        header = read_header(buffer)  # type: ignore[arg-type]
    except (ProtocolError, UnsupportedForMessageFormat):
        return None
    return header if header.size == len(buffer) else None


def read_header(buffer: ReadableBuffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Only these 61 bytes need to be there, and their CRC is not checked."""
    try:
        base_offset, length, epoch, magic, crc, attributes, last, base_ts, max_ts, pid, pepoch, sequence, count = (
            _unpack_header(buffer, position)
        )
    except struct.error:
        raise _invalid_reason(buffer, position) from None
    if magic != MAGIC or length < _MIN_LENGTH:
        raise _invalid_reason(buffer, position)
    return tuple.__new__(
        BatchHeader,
        (
            position,
            length + LOG_OVERHEAD,
            base_offset,
            epoch,
            magic,
            crc,
            attributes,
            last,
            base_ts,
            max_ts,
            pid,
            pepoch,
            sequence,
            count,
        ),
    )


def _invalid_reason(buffer: ReadableBuffer, position: int) -> Exception:
    """The error for an invalid header. Magic 0 and 1 are reported as such where their length allows it."""
    left = len(memoryview(buffer)) - position
    if left < _MAGIC_END:
        return ProtocolError(f"batch header: {max(left, 0)} bytes of {HEADER_SIZE}")
    length, _, magic = _LENGTH_TO_MAGIC.unpack_from(buffer, position + 8)
    if magic in (0, 1) and length >= _MIN_OLD_LENGTH:
        return UnsupportedForMessageFormat(f"a message set of magic {magic}; only batches of magic 2 are read")
    if magic != MAGIC:
        return ProtocolError(f"batch magic: {magic}, at byte {position}")
    if length < _MIN_LENGTH:
        return ProtocolError(f"batch length: {length}, at byte {position}, is less than {_MIN_LENGTH}")
    return ProtocolError(f"batch header: {left} bytes of {HEADER_SIZE}")


def headers(
    buffer: ReadableBuffer, position: int = 0, end: int | None = None, *, partial_tail: bool = False
) -> Iterator[BatchHeader]:
    """The headers of all batches from `position` to `end`. A batch that `end` cuts off is a ProtocolError, or with
    `partial_tail` the end of the iteration, as for a reader whose fetch was cut to size."""
    if end is None:
        end = len(memoryview(buffer))
    while position < end:
        header = read_header(buffer, position) if end - position >= HEADER_SIZE else None
        if header is None or header.size > end - position:
            if partial_tail:
                return
            if header is None:
                raise _invalid_reason(memoryview(buffer)[:end], position)
            raise ProtocolError(f"batch length: {header.size} bytes at byte {position}, {end - position} are left")
        yield header
        position += header.size


# --- checking


def check_crc(buffer: ReadableBuffer, header: BatchHeader) -> bool:
    """Whether the whole batch is there, and its CRC right."""
    end = header.position + header.size
    view = memoryview(buffer)
    return end <= len(view) and crc32c(view[header.position + _ATTRIBUTES_AT : end]) == header.crc


def verify(buffer: ReadableBuffer, header: BatchHeader) -> None:
    """CorruptMessage unless the whole batch is there, and its CRC right."""
    if not check_crc(buffer, header):
        left = len(memoryview(buffer)) - header.position
        if left < header.size:
            raise CorruptMessage(f"the batch at offset {header.base_offset} has {left} bytes of {header.size}")
        raise CorruptMessage(f"the batch at offset {header.base_offset} fails its CRC")


# --- patching in place


def assign_offset(buffer: WriteableBuffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Sets the fields that the leader assigns in an append. The CRC stays right; a BatchHeader read before does not."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def set_timestamp(buffer: WriteableBuffer, header: BatchHeader, log_append_time_ms: int) -> None:
    """Marks all records as written at `log_append_time_ms`. Readers then ignore the base timestamp and the deltas."""
    set_max_timestamp(buffer, header, log_append_time_ms, header.attributes | LOG_APPEND_TIME)


def set_max_timestamp(buffer: WriteableBuffer, header: BatchHeader, max_timestamp: int, attributes: int) -> None:
    position = header.position
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, max_timestamp)
    _CRC_AND_ATTRIBUTES.pack_into(buffer, position + _CRC_AT, 0, attributes)
    _set_crc(buffer, position, header.size)


def _set_crc(buffer: WriteableBuffer, position: int, size: int) -> None:
    crc = crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT : position + size])
    struct.pack_into(">I", buffer, position + _CRC_AT, crc)


# --- reading records


def payload(buffer: ReadableBuffer, header: BatchHeader, *, limit: int | None = None) -> bytes:
    """The records of a batch, decompressed but not yet split into records; at most `limit` bytes, or the default
    limit of compression.py. The caller must have verified the CRC."""
    view = memoryview(buffer)[header.position + HEADER_SIZE : header.position + header.size]
    if len(view) != header.size - HEADER_SIZE:
        raise CorruptMessage(f"the batch at offset {header.base_offset} is cut off at {len(view) + HEADER_SIZE} bytes")
    try:
        return decompress(header.codec, view, limit)
    except DecompressedTooLarge as error:
        raise MessageTooLarge(f"the batch at offset {header.base_offset}: {error}") from error
    except CompressionError as error:
        raise InvalidRecord(f"the batch at offset {header.base_offset}: {error}") from error


def spans(data: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """Offset, timestamp, key and place of each record in `payload(…)`, without making the records."""
    return record_bytes.spans(data, _frame(header))


def records(buffer: ReadableBuffer, header: BatchHeader, *, limit: int | None = None) -> Iterator[Record]:
    """The records of a batch, with their own offsets and timestamps."""
    return record_bytes.decode(payload(buffer, header, limit=limit), _frame(header))


def values(buffer: ReadableBuffer, header: BatchHeader, *, limit: int | None = None) -> list[bytes]:
    """The values of a batch's records alone; null becomes an empty value."""
    return record_values.values(payload(buffer, header, limit=limit), header.record_count)


def _frame(header: BatchHeader) -> BatchContext:
    return BatchContext(
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
        record_count=header.record_count,
    )


# --- writing


def build(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    leader_epoch: int = NO_EPOCH,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A batch of `records`, whose offsets increase from `base_offset` or above it. With none, an empty batch."""
    content = list(records)
    base_timestamp = content[0].timestamp if content else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in content), default=NO_TIMESTAMP)
    attributes = (codec if content else Codec.NONE) | TRANSACTIONAL * transactional | CONTROL * control
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    offsets = [record.offset for record in content]
    assert all(a < b for a, b in zip([base_offset - 1, *offsets], offsets, strict=False)), "offsets must increase"
    if last_offset_delta is None:
        last_offset_delta = offsets[-1] - base_offset if offsets else 0
    assert not offsets or base_offset + last_offset_delta >= offsets[-1], "the last offset lies within"
    header = BatchHeader(
        position=0,
        size=0,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(content),
    )
    encode = record_bytes.encode
    data = b"".join(encode(record, base_offset=base_offset, base_timestamp=base_timestamp) for record in content)
    return seal(header, data, level=level)


def build_marker(
    marker: EndTxnMarker, *, offset: int, timestamp: int, leader_epoch: int, producer_id: int, producer_epoch: int
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition."""
    return build(
        [record_bytes.marker_record(marker, offset=offset, timestamp=timestamp)],
        base_offset=offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def rebuild(
    header: BatchHeader,
    data: bytes,
    kept: Sequence[RecordSpan],
    *,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """Builds what compaction leaves of a batch: the records `kept` of its payload `data`, under their offsets.

    Base offset, last offset delta and sequences stay as they were, so that replicas and returning producers see no
    new gaps. Without kept records, the result is an empty batch with these fields. An existing delete horizon stays.
    """
    if not kept:
        emptied = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
        return seal(header._replace(attributes=emptied, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
    attributes, horizon = header.attributes, header.delete_horizon_ms
    if horizon is None and delete_horizon_ms is not None:
        attributes, horizon = attributes | DELETE_HORIZON, delete_horizon_ms
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    moved = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max(span.timestamp for span in kept),
        record_count=len(kept),
    )
    return seal(
        moved, b"".join(record_bytes.move(data, span, base_timestamp=base_timestamp) for span in kept), level=level
    )


def seal(header: BatchHeader, data: bytes, *, level: int | None = None) -> bytearray:
    """A whole batch: `data` compressed, behind the header with its size and CRC set right."""
    packed = compress(header.codec, data, level)
    batch = bytearray(HEADER_SIZE)
    batch += packed
    assert len(batch) <= MAX_BATCH_BYTES, len(batch)
    _HEADER.pack_into(batch, 0, header.base_offset, len(batch) - LOG_OVERHEAD, header.leader_epoch, *header[4:])
    _set_crc(batch, 0, len(batch))
    return batch
