"""One plain batch of a client: a run of one, of which a request may have a thousand, each for another log.

`Log.append_as_leader` takes 5 µs besides the write, most of it Python between the checks. Here they stand in one
function, on the numbers as they are unpacked, which leaves 2.5. As in a run (run.py), **nothing is decided here that is
not decided there**: what is not plain is left as it was, for `append_as_leader`, which knows what to say.
"""

from typing import TYPE_CHECKING, Final

from trioka.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from trioka.protocol.checksum import crc32c
from trioka.protocol.errors import KafkaError

from .batch_append import CHECKED_FROM, LAST_CODEC, has_plain_records, newest_allowed, patch, unpack
from .batch_scan import MAX_RELATIVE_OFFSET
from .producer_state import SEQUENCES

if TYPE_CHECKING:
    from .log import Log

NOT_PLAIN: Final = -1


def append_one(log: "Log", batch: memoryview | bytearray, leader_epoch: int, now_ms: int) -> int:
    """Appends it, and sets its offset in place. Its first offset; NOT_PLAIN if it is not, and then it is as it was.
    Raises what the disk says: then it was not appended."""
    segment, limits, size = log.segments.active, log.run_limits, len(batch)
    if limits is None or size < HEADER_SIZE or log.closed or log.quarantine.damages:
        return NOT_PLAIN
    if leader_epoch != log.epochs.latest_epoch:
        return NOT_PLAIN
    max_bytes, after_max_ms, roll_ms, full_bytes, interval, validates = limits
    base, length, magic, crc, attributes, delta, oldest, newest, producer, epoch, sequence, count = unpack(batch)
    offset = log.log_end_offset
    last_offset = offset + delta
    if (
        length + LOG_OVERHEAD != size
        or magic != MAGIC
        or base
        or not 0 <= attributes <= LAST_CODEC  # no flag, and a codec that exists
        or delta < 0
        or delta + 1 != count
        or not oldest <= newest <= newest_allowed(segment, now_ms, now_ms + after_max_ms, roll_ms)
        or size > max_bytes
        or size > full_bytes - segment.size
        or last_offset > segment.base_offset + MAX_RELATIVE_OFFSET
        or crc32c(memoryview(batch)[CHECKED_FROM:]) != crc
    ):
        return NOT_PLAIN
    producers = log.producers
    who = None
    if producer >= 0 and (who := producers.expected(producer, epoch, sequence)) is None:
        return NOT_PLAIN
    if validates and not has_plain_records(batch, 0, size, attributes, count, oldest, newest):
        return NOT_PLAIN
    patch(batch, 0, offset, length, leader_epoch)
    try:
        segment.append(batch, last_offset, newest, interval)
    except (KafkaError, OSError):
        batch[:8] = bytes(8)  # so that it can be refused for what it is
        raise
    log.log_end_offset = producers.end_offset = last_offset + 1
    log.appended_batches += 1
    log.appended_bytes += size
    log.touched = True
    if who is not None:
        producers.apply_run(who, ((sequence, (sequence + delta) % SEQUENCES, offset, last_offset, newest),))
    return offset
