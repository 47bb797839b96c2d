"""Validates batches before an append. From a client: one whole batch, consistent with itself and the topic's rules.

As in Kafka, a batch of a client is checked record by record before it is appended: the header must agree with the
records, and every record must be readable (protocol/record_walk.py). A batch that passed its CRC and cannot be read
would stop every reader of the partition, not only the client that sent it, and a batch with a wrong record count would
give two records the same offset. A compressed batch is decompressed for the check, once. With
`trioka.validate.records=header` this check is left out, and a batch is opened only for the topic's rules about records
(keys, timestamps). Batches of coordinators and of the metadata quorum are opened for those rules only.

Nothing is copied. The buffer is the part of the receive buffer that holds the batch, writable, and is patched in
place; only a batch that is compressed again comes back in its own buffer. `validate` takes the time as an argument.

    what is wrong                                                         answer
    no batch, half a batch, more than one, magic 0 or 1, bytes behind     INVALID_RECORD
    an impossible length, an unknown magic, a wrong CRC                   CORRUPT_MESSAGE
    larger than max.message.bytes, before or after a new compression      MESSAGE_TOO_LARGE
    a base offset other than 0, offsets that do not fit the record count  INVALID_RECORD
    records that cannot be read, are more or fewer than the header says,
    or whose offsets are not 0, 1, 2 and so on; damaged compression       INVALID_RECORD
    records that are above the limit of compression.py, decompressed      MESSAGE_TOO_LARGE
    a control batch; a producer id without epoch or sequence;
    a transaction without a producer id                                   INVALID_RECORD
    a codec that does not exist                                           UNSUPPORTED_COMPRESSION_TYPE
    the broker's timestamp flag; timestamps out of range                  INVALID_TIMESTAMP, with the records
    records without keys on a compacted topic                             INVALID_RECORD, with the records

A wrong newest timestamp in the header is corrected, as in Kafka. Kafka does not check the offsets of uncompressed
records, and renumbers compressed ones; no client needs either.
(Kafka clears the timestamp flag silently if the topic has CreateTime. No client sets it, so trioka always refuses it.)
Coordinators and the metadata quorum append through this module too: their batches come from this node, so a control
batch and a base offset are allowed, and the size is not limited.

A follower takes what its leader sent, if it arrived whole and continues its own log (`validate_replicated`).
"""

from enum import Enum
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from trioka.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    headers,
    payload,
    read_header,
    seal,
    set_max_timestamp,
    set_timestamp,
    spans,
)
from trioka.protocol.checksum import crc32c
from trioka.protocol.compression import Codec
from trioka.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    ProtocolError,
    UnsupportedForMessageFormat,
)
from trioka.protocol.record import NO_TIMESTAMP
from trioka.protocol.record_walk import walk

from .log_config import FOREVER_MS, LogConfig

MAX_RECORD_ERRORS: Final = 100
"""The number of invalid records in a refusal. Kafka names all, which lets a client choose the size of the response."""

MAX_NAMED_AMONG: Final = 100_000
"""The search for the records to name in a refusal stops after this many records of the batch: a compressed batch can
hold millions, and the search costs 1.5 µs for each."""

_LENGTH_AND_MAGIC: Final = Struct(">i4xb")
_LEAST_LENGTH: Final = 14  # of any batch or message that there ever was: less is rubbish, and no half of a batch
_CHECKED_FROM: Final = 21  # the CRC covers everything from the attributes on


class AppendOrigin(Enum):
    """The origin of an append. Some rules apply to clients only."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"


class RecordError(NamedTuple):
    """One record that made its batch invalid, as in the Produce response."""

    batch_index: int  # of the record, in its batch
    message: str


class RejectedRecords(Exception):
    """The cause of an InvalidRecord or InvalidTimestamp that names records."""

    def __init__(self, errors: tuple[RecordError, ...]) -> None:
        super().__init__(f"{len(errors)} records: {errors[0].message}")
        self.errors = errors


def record_errors(error: KafkaError) -> tuple[RecordError, ...]:
    """The records that a refusal names, if it is about records."""
    cause = error.__cause__
    return cause.errors if isinstance(cause, RejectedRecords) else ()


class BatchValidator:
    """The rules of one topic, prepared for the hot path. `validate` is called for every batch."""

    __slots__ = ("_after_max_ms", "_config", "_max_bytes", "is_plain")

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._max_bytes = config.max_message_bytes
        self._after_max_ms = config.message_timestamp_after_max_ms
        self.is_plain = (  # there is no rule about single records but that they are sound, and their timestamps
            config.message_timestamp_type == "CreateTime"
            and config.message_timestamp_before_max_ms == FOREVER_MS
            and config.compression_type is None
            and not config.compacts
            and config.schema_ids is None
        )

    def validate(
        self, buffer: memoryview | bytearray, *, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> tuple[memoryview | bytearray, BatchHeader, int]:
        """The checked batch in `buffer`, with timestamps by the topic's rules; its header; and its log append time,
        NO_TIMESTAMP under CreateTime. Offset and epoch are not set yet. Raises a KafkaError if it is refused."""
        try:
            header = read_header(buffer)
        except (ProtocolError, UnsupportedForMessageFormat) as error:
            raise _no_batch(buffer, error) from None
        size = header.size
        if size != len(buffer):
            raise _not_one_batch(buffer, size)
        if size > self._max_bytes and origin is AppendOrigin.CLIENT:
            raise MessageTooLarge(f"a batch of {size} bytes; the topic takes {self._max_bytes}")
        view = buffer if type(buffer) is memoryview else memoryview(buffer)
        if crc32c(view[_CHECKED_FROM:]) != header.crc:
            raise CorruptMessage("the batch fails its CRC")
        opened = None
        if origin is AppendOrigin.CLIENT:
            _check_claims(header)
            if self._config.validate_records == "full":
                opened = _DecompressedBatch(view, header)
        if (
            self.is_plain
            and header.base_timestamp <= header.max_timestamp <= now_ms + self._after_max_ms
            and not header.attributes & LOG_APPEND_TIME
            and (opened is None or opened.agrees_with_header())
        ):
            return buffer, header, NO_TIMESTAMP
        return self._admit_by_other_rules(buffer, header, opened, now_ms, origin)

    def _admit_by_other_rules(
        self,
        buffer: memoryview | bytearray,
        header: BatchHeader,
        opened: "_DecompressedBatch | None",
        now_ms: int,
        origin: AppendOrigin,
    ) -> tuple[memoryview | bytearray, BatchHeader, int]:
        config = self._config
        stamps = config.message_timestamp_type == "LogAppendTime"
        if header.attributes & LOG_APPEND_TIME:
            raise InvalidTimestamp("the batch has timestamp type LogAppendTime, which only the broker may set")
        control = header.attributes & CONTROL
        if opened is None and not control and _needs_records(header, config, stamps, now_ms):
            opened = _DecompressedBatch(memoryview(buffer), header)
        if opened is not None:
            opened.check(config, stamps, now_ms)
            if opened.newest != header.max_timestamp and not stamps:
                set_max_timestamp(buffer, header, opened.newest, header.attributes)
                header = read_header(buffer)
        codec = config.compression_type
        if codec is not None and codec != header.attributes & CODEC_MASK and not control:
            data = payload(buffer, header) if opened is None else opened.payload()
            buffer, header = _recompress(header, data, codec, config)
            if header.size > self._max_bytes and origin is AppendOrigin.CLIENT:
                raise MessageTooLarge(f"{header.size} bytes as {codec.name}; the topic takes {self._max_bytes}")
        if stamps:
            set_timestamp(buffer, header, now_ms)
            return buffer, read_header(buffer), now_ms
        return buffer, header, NO_TIMESTAMP


def validate_batch(
    buffer: memoryview | bytearray, config: LogConfig, *, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
) -> tuple[memoryview | bytearray, BatchHeader, int]:
    """`BatchValidator.validate` for a single batch."""
    return BatchValidator(config).validate(buffer, now_ms=now_ms, origin=origin)


def _no_batch(buffer: memoryview | bytearray, error: Exception) -> KafkaError:
    if isinstance(error, UnsupportedForMessageFormat):
        return InvalidRecord(str(error))
    if len(buffer) < LOG_OVERHEAD + 5:
        return InvalidRecord(f"there is no batch in {len(buffer)} bytes")
    length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, 8)
    if magic == MAGIC and length >= _LEAST_LENGTH and length + LOG_OVERHEAD > len(buffer):
        return InvalidRecord(f"a batch of {length + LOG_OVERHEAD} bytes of which {len(buffer)} came")
    return CorruptMessage(str(error))


def _not_one_batch(buffer: memoryview | bytearray, size: int) -> KafkaError:
    if size > len(buffer):
        return InvalidRecord(f"a batch of {size} bytes of which {len(buffer)} came")
    return InvalidRecord(f"{len(buffer) - size} bytes follow the batch; one batch at a time")


def _check_claims(header: BatchHeader) -> None:
    """Checks that the fields of a client's batch header are possible. One comparison each: this is the common path."""
    if header.base_offset != 0:
        raise InvalidRecord(f"the base offset is {header.base_offset}; a client's batches begin at 0")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise InvalidRecord(f"{header.record_count} records, the last one at offset +{header.last_offset_delta}")
    attributes = header.attributes
    if attributes & CONTROL:
        raise InvalidRecord("a control batch; clients do not write those")
    if attributes & CODEC_MASK > Codec.ZSTD:
        header.codec  # noqa: B018 - it raises UnsupportedCompressionType
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidRecord(
                f"producer {header.producer_id} with epoch {header.producer_epoch}, sequence {header.base_sequence}"
            )
    elif attributes & TRANSACTIONAL:
        raise InvalidRecord("a transaction needs a producer id")


def _needs_records(header: BatchHeader, config: LogConfig, stamps: bool, now_ms: int) -> bool:
    return config.compacts or (
        not stamps
        and (
            header.max_timestamp < header.base_timestamp
            or header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or config.message_timestamp_before_max_ms != FOREVER_MS
        )
    )


class _DecompressedBatch:
    """The records of a batch, decompressed if necessary and checked: they can be read, and their number is that of the
    header. InvalidRecord if not."""

    __slots__ = ("_data", "_end", "_header", "_start", "_without_key", "newest", "oldest")

    def __init__(self, view: memoryview, header: BatchHeader) -> None:
        self._header = header
        self._data: memoryview | bytes = view
        self._start, self._end = HEADER_SIZE, header.size
        if header.attributes & CODEC_MASK:
            self._data = payload(view, header)
            self._start, self._end = 0, len(self._data)
        walked = walk(self._data, self._start, self._end, header.record_count, header.base_timestamp)
        if walked is None:
            raise InvalidRecord(
                f"the records cannot be read: {header.record_count} are announced, in {self._end - self._start} bytes"
            )
        self.oldest, self.newest, self._without_key = walked

    def payload(self) -> bytes:
        return bytes(self._data[self._start : self._end])

    def agrees_with_header(self) -> bool:
        return self.newest == self._header.max_timestamp and self.oldest >= 0

    def check(self, config: LogConfig, stamps: bool, now_ms: int) -> None:
        """Refuses the batch if the topic's rules refuse a record."""
        oldest_allowed = now_ms - config.message_timestamp_before_max_ms
        max_appendable_timestamp = now_ms + config.message_timestamp_after_max_ms
        needs_keys = config.compacts and self._without_key > 0
        if not needs_keys and (stamps or (oldest_allowed <= self.oldest and self.newest <= max_appendable_timestamp)):
            return
        errors: list[RecordError] = []
        timestamps_wrong = False
        for index, span in enumerate(islice(spans(self.payload(), self._header), MAX_NAMED_AMONG)):
            timestamp = span.timestamp
            if needs_keys and span.key is None:
                errors.append(RecordError(index, "a record of a compacted topic needs a key"))
            elif (
                not stamps and timestamp != NO_TIMESTAMP and not oldest_allowed <= timestamp <= max_appendable_timestamp
            ):
                timestamps_wrong = True
                errors.append(
                    RecordError(
                        index, f"timestamp {timestamp} is not within [{oldest_allowed}, {max_appendable_timestamp}]"
                    )
                )
            if len(errors) == MAX_RECORD_ERRORS:
                break
        _refuse(errors, timestamps_wrong or not (errors or needs_keys))


def _refuse(errors: list[RecordError], timestamps_wrong: bool) -> NoReturn:
    cause = RejectedRecords(tuple(errors)) if errors else None
    if timestamps_wrong:
        raise InvalidTimestamp(f"records with impossible timestamps: {len(errors)} or more") from cause
    raise InvalidRecord(f"records that the topic does not take: {len(errors)} or more") from cause


def _recompress(header: BatchHeader, data: bytes, codec: Codec, config: LogConfig) -> tuple[bytearray, BatchHeader]:
    changed = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    batch = seal(changed, data, level=config.compression_level(codec))
    return batch, read_header(batch)


class UnexpectedAppendOffset(Exception):
    """A batch for a follower begins before its log's end. (An empty log may start at `first_offset`.)"""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(f"batches from {first_offset} to {last_offset}, for a log that ends at {log_end_offset}")
        self.first_offset = first_offset
        self.last_offset = last_offset


def validate_replicated(buffer: memoryview | bytearray | bytes, log_end_offset: int, epoch: int) -> list[BatchHeader]:
    """The batches that a follower appends to a log with this end offset and latest epoch (I9).

    Offsets may have gaps, because the leader's log is compacted, but neither they nor epochs decrease. A torn last
    batch, which Kafka's leaders send, is left out.
    """
    try:
        batches = list(headers(buffer, partial_tail=True))
    except (ProtocolError, UnsupportedForMessageFormat) as error:
        raise CorruptMessage(str(error)) from None
    next_offset = log_end_offset
    for header in batches:
        if not check_crc(buffer, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} fails its CRC")
        if header.last_offset_delta < 0:
            raise InvalidRecord(f"the batch at offset {header.base_offset} ends at {header.last_offset}")
        if header.base_offset < next_offset:
            if header is batches[0]:
                raise UnexpectedAppendOffset(header.base_offset, batches[-1].last_offset, log_end_offset)
            raise InvalidRecord(f"offset {header.base_offset} comes after {next_offset - 1}")
        if 0 <= header.leader_epoch < epoch:
            raise InvalidRecord(f"at offset {header.base_offset}, epoch {header.leader_epoch} comes after {epoch}")
        next_offset = header.last_offset + 1
        epoch = max(epoch, header.leader_epoch)
    return batches
