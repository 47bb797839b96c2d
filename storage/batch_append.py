"""A run: several batches of clients for one log, checked one by one and written by one call.

A client with many small requests in flight sends them together, and they arrive together. `Log.append_as_leader` takes
5 µs for each, most of it Python between the checks, and a system call of its own. Here the checks stand in one loop, on
the numbers as they are unpacked, and what an append does besides (the write, the index, the producer's window, the end
of the log) is done once for all. That makes 1.4 µs of a batch of 170 bytes (`python bench/request.py`).

**Nothing is decided here that is not decided there.** A run takes what needs no second thought: a topic without rules
about keys or old timestamps, a batch with every check passed, the next one of its producer, in the active segment. The
first batch that is anything else ends the run, untouched, and is for `append_as_leader`, which knows what to say. So
every refusal has one place, and a test appends the same bytes both ways and compares the logs. Records are walked over
here as there, by the same function (protocol/record_walk.py).
"""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, payload, read_header
from trioka.protocol.checksum import crc32c
from trioka.protocol.compression import Codec
from trioka.protocol.errors import KafkaError
from trioka.protocol.record_walk import walk

from .append_validation import Admission
from .batch_scan import MAX_RELATIVE_OFFSET
from .log_config import FOREVER_MS, LogConfig
from .producer_state import SEQUENCES
from .segment import Segment

if TYPE_CHECKING:
    from .log import Log

_HEADER: Final = Struct(
    ">qi4xbIhiqqqhii"
)  # all of a batch's header (batch.py), but for the epoch, which is ours to set
_OFFSET_AND_EPOCH: Final = Struct(">qii")  # with the length between them
CHECKED_FROM: Final = 21  # the CRC covers everything from the attributes on
LAST_CODEC: Final = int(Codec.ZSTD)
NOBODY: Final = -1
OLDEST: Final = -(2**63)  # no timestamp is less
unpack: Final = _HEADER.unpack_from
patch: Final = _OFFSET_AND_EPOCH.pack_into
assert _HEADER.size == HEADER_SIZE


class RunLimits(NamedTuple):
    """What a topic's configuration means for a run. Made with the configuration, so that no run has to ask for it."""

    max_bytes: int  # of a batch
    after_max_ms: int  # from now on
    roll_ms: int
    full_bytes: int  # from here on somebody must look whether the segment is full
    index_interval_bytes: int
    validates_records: bool


def run_limits(config: LogConfig, indexed_bytes: int) -> RunLimits | None:
    """None if the topic has rules about single records, or its answers wait for the disk. `indexed_bytes` of a log fill
    no index."""
    if not Admission(config).is_plain or config.flush_messages != FOREVER_MS:
        return None
    full = min(config.segment_bytes, indexed_bytes)
    after = config.message_timestamp_after_max_ms
    return RunLimits(
        config.max_message_bytes,
        after,
        config.roll_ms,
        full,
        config.index_interval_bytes,
        config.validate_records == "full",
    )


def append_run(
    log: "Log", buffer: memoryview, places: Sequence[tuple[int, int]], leader_epoch: int, now_ms: int
) -> list[int]:
    """Appends the batches at these places of the buffer, (position, size) each, as far as they are plain; sets their
    offsets in place. The first offset of each that was appended; the others are as they were. A size is at least that
    of a header. Raises what the disk says: then none was appended."""
    segment, limits = log.segments.active, log.run_limits
    if limits is None or log.closed or log.quarantine.damages or leader_epoch != log.epochs.latest_epoch:
        return []
    max_bytes, after_max_ms, roll_ms, room, interval, validates = limits
    free = room = room - segment.size
    newest_allowed_ms = newest_allowed(segment, now_ms, now_ms + after_max_ms, roll_ms)
    offset, end_offset = log.log_end_offset, segment.base_offset + MAX_RELATIVE_OFFSET
    firsts, batches = list[int](), list[memoryview]()
    notes: list[tuple[int, int, int]] = []  # last offset, newest timestamp, size
    who, producer_id, producer_epoch, next_sequence = None, NOBODY, NOBODY, 0
    written: list[tuple[int, int, int, int, int]] = []  # by that producer, as its window has them
    for position, size in places:
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
            or not oldest <= newest <= newest_allowed_ms
            or size > max_bytes
            or size > room
            or last_offset > end_offset
            or crc32c(buffer[position + CHECKED_FROM : position + size]) != crc
        ):
            break
        if producer >= 0:
            if who is None and (who := log.producers.expected(producer, epoch, sequence)) is not None:
                producer_id, producer_epoch = producer, epoch
            elif producer != producer_id or epoch != producer_epoch or sequence != next_sequence:
                break
        if validates and not has_plain_records(buffer, position, size, attributes, count, oldest, newest):
            break
        if producer >= 0:
            next_sequence = (sequence + delta + 1) % SEQUENCES
            written.append((sequence, (sequence + delta) % SEQUENCES, offset, last_offset, newest))
        patch(buffer, position, offset, length, leader_epoch)
        batches.append(buffer[position : position + size])
        notes.append((last_offset, newest, size))
        firsts.append(offset)
        offset = last_offset + 1
        room -= size
    if firsts:
        _write(segment, batches, notes, interval)
        log.log_end_offset = log.producers.end_offset = offset
        log.appended_batches += len(firsts)
        log.appended_bytes += free - room
        log.touched = True
        if who is not None:
            log.producers.apply_run(who, written)
    return firsts


def has_plain_records(
    buffer: memoryview | bytearray, position: int, size: int, codec: int, count: int, oldest: int, newest: int
) -> bool:
    """Whether the records of the batch at this position can all be read and are what its header says: as many, with
    `newest` as their newest timestamp. Called last, since a compressed batch is decompressed for it."""
    if codec:
        view = memoryview(buffer)[position : position + size]
        try:
            data = payload(view, read_header(view))
        except KafkaError:
            return False
        walked = walk(data, 0, len(data), count, oldest)
    else:
        walked = walk(buffer, position + HEADER_SIZE, position + size, count, oldest)
    return walked is not None and walked[1] == newest and walked[0] >= 0


def newest_allowed(segment: Segment, now_ms: int, newest: int, roll_ms: int) -> int:
    """A batch that is newer has no place in this segment, or none at all. None has if the segment is empty, was not
    looked at yet, or is too old."""
    if not segment.size or not segment.ready:
        return OLDEST
    first = segment.first_timestamp()
    roll_ms -= segment.jitter_ms
    if first >= 0:
        return newest if newest <= first + roll_ms else first + roll_ms
    return newest if now_ms - segment.created_ms <= roll_ms else OLDEST


def _write(segment: Segment, batches: list[memoryview], notes: list[tuple[int, int, int]], interval: int) -> None:
    try:
        segment.append_run(batches, notes, interval)
    except (KafkaError, OSError):
        for batch in batches:
            batch[:8] = bytes(8)  # so that each can be refused for what it is
        raise
