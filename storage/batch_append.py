"""Appends several client batches to one log with one write: the storage primitive of the fast path.

`Log.append_as_leader` takes 5 µs for a batch, most of it Python between the checks, and a system call. Here the checks
of all batches run in one loop over the unpacked header fields, and the rest of an append (the write, the indexes, the
producer's window, the log end) happens once. That makes 1.4 µs for a batch of 170 bytes (`python bench/request.py`).

**No decision is made here that `append_as_leader` does not make.** A batch is taken if it needs no per-record rule: the
topic has no rules about keys or old timestamps, every check passes, the sequence is the producer's next, and the active
segment has space. The first batch that is anything else ends the run and is left unchanged, for `append_as_leader`,
which raises the right error. So each refusal has one place, and a test appends the same bytes both ways and compares
the logs. Records are validated here as there, by the same function (protocol/record_walk.py).
"""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, payload, read_header
from trioka.protocol.checksum import crc32c
from trioka.protocol.compression import Codec
from trioka.protocol.errors import KafkaError
from trioka.protocol.record_walk import walk

from .append_validation import BatchValidator
from .log_config import FOREVER_MS, LogConfig
from .producers.producer_state import SEQUENCES
from .segments.batch_scan import MAX_RELATIVE_OFFSET
from .segments.segment import Segment

if TYPE_CHECKING:
    from .log import Log

_HEADER: Final = Struct(">qi4xbIhiqqqhii")  # a batch header (protocol/batch.py) without the leader epoch, set below
_OFFSET_AND_EPOCH: Final = Struct(">qii")  # with the length between them
CHECKED_FROM: Final = 21  # the CRC covers everything from the attributes on
LAST_CODEC: Final = int(Codec.ZSTD)
NO_PRODUCER: Final = -1
OLDEST: Final = -(2**63)  # no timestamp is less
unpack: Final = _HEADER.unpack_from
patch: Final = _OFFSET_AND_EPOCH.pack_into
assert _HEADER.size == HEADER_SIZE


class AppendLimits(NamedTuple):
    """A topic's configuration as `try_append_batches` needs it, computed when the configuration changes."""

    max_bytes: int  # of a batch
    after_max_ms: int  # how far a timestamp may be in the future
    roll_ms: int
    full_bytes: int  # a segment of this size may have to be rolled
    index_interval_bytes: int
    validates_records: bool


def append_limits(config: LogConfig, indexed_bytes: int) -> AppendLimits | None:
    """None if the topic has rules about single records, or its acknowledgements wait for an fsync. An index covers
    `indexed_bytes` of a log at most."""
    if not BatchValidator(config).is_plain or config.flush_messages != FOREVER_MS:
        return None
    full = min(config.segment_bytes, indexed_bytes)
    after = config.message_timestamp_after_max_ms
    return AppendLimits(
        config.max_message_bytes,
        after,
        config.roll_ms,
        full,
        config.index_interval_bytes,
        config.validate_records == "full",
    )


def try_append_batches(
    log: "Log", buffer: memoryview, ranges: Sequence[tuple[int, int]], leader_epoch: int, now_ms: int
) -> list[int]:
    """Appends the batches at these ranges of the buffer, (position, size) each, up to the first that is not eligible,
    and sets their offsets in place. Returns the first offset of each appended batch; the other batches are unchanged. A
    size is at least that of a header. Raises the disk's error; then no batch was appended."""
    segment, limits = log.segments.active, log.append_limits
    if limits is None or log.closed or log.quarantine.damages or leader_epoch != log.epochs.latest_epoch:
        return []
    max_bytes, after_max_ms, roll_ms, space, interval, validates = limits
    free = space = space - segment.size
    max_timestamp = max_appendable_timestamp(segment, now_ms, now_ms + after_max_ms, roll_ms)
    offset, end_offset = log.log_end_offset, segment.base_offset + MAX_RELATIVE_OFFSET
    firsts, batches = list[int](), list[memoryview]()
    notes: list[tuple[int, int, int]] = []  # last offset, newest timestamp, size
    entry, producer_id, producer_epoch, next_sequence = None, NO_PRODUCER, NO_PRODUCER, 0
    written: list[tuple[int, int, int, int, int]] = []  # the batches of that producer, for its window
    for position, size in ranges:
        header = unpack(buffer, position)
        base, length, magic, crc, attributes, delta, oldest, newest, producer, epoch, sequence, count = header
        last_offset = offset + delta
        if (
            length + LOG_OVERHEAD != size
            or magic != MAGIC
            or base
            or not 0 <= attributes <= LAST_CODEC  # no flag, and a codec that exists
            or delta < 0
            or delta + 1 != count
            or not oldest <= newest <= max_timestamp
            or size > max_bytes
            or size > space
            or last_offset > end_offset
            or crc32c(buffer[position + CHECKED_FROM : position + size]) != crc
        ):
            break
        if producer >= 0:
            if entry is None and (entry := log.producers.expected(producer, epoch, sequence)) is not None:
                producer_id, producer_epoch = producer, epoch
            elif producer != producer_id or epoch != producer_epoch or sequence != next_sequence:
                break
        if validates and not records_match_header(buffer, position, size, attributes, count, oldest, newest):
            break
        if producer >= 0:
            next_sequence = (sequence + delta + 1) % SEQUENCES
            written.append((sequence, (sequence + delta) % SEQUENCES, offset, last_offset, newest))
        patch(buffer, position, offset, length, leader_epoch)
        batches.append(buffer[position : position + size])
        notes.append((last_offset, newest, size))
        firsts.append(offset)
        offset = last_offset + 1
        space -= size
    if firsts:
        _write(segment, batches, notes, interval)
        log.log_end_offset = log.producers.end_offset = offset
        log.appended_batches += len(firsts)
        log.appended_bytes += free - space
        log.touched = True
        if entry is not None:
            log.producers.apply_batches(entry, written)
    return firsts


def records_match_header(
    buffer: memoryview, position: int, size: int, codec: int, count: int, oldest: int, newest: int
) -> bool:
    """Whether all records of the batch at this position can be read and match its header: `count` of them, with
    `newest` as their newest timestamp. Called last, because it decompresses a compressed batch."""
    if codec:
        view = buffer[position : position + size]
        try:
            data = payload(view, read_header(view))
        except KafkaError:
            return False
        walked = walk(data, 0, len(data), count, oldest)
    else:
        walked = walk(buffer, position + HEADER_SIZE, position + size, count, oldest)
    return walked is not None and walked[1] == newest and walked[0] >= 0


def max_appendable_timestamp(segment: Segment, now_ms: int, newest: int, roll_ms: int) -> int:
    """The newest timestamp of a batch that may be appended to this segment: a newer one is refused or rolls it. OLDEST
    if the segment is empty, not prepared, or too old: then no batch may be."""
    if not segment.size or not segment.ready:
        return OLDEST
    first = segment.first_timestamp()
    roll_ms -= segment.jitter_ms
    if first >= 0:
        return newest if newest <= first + roll_ms else first + roll_ms
    return newest if now_ms - segment.created_ms <= roll_ms else OLDEST


def _write(segment: Segment, batches: list[memoryview], notes: list[tuple[int, int, int]], interval: int) -> None:
    try:
        segment.append_many(batches, notes, interval)
    except (KafkaError, OSError):
        for batch in batches:
            batch[:8] = bytes(8)  # as sent by the client, so that `append_as_leader` can validate it
        raise
