"""What a tiered log may delete from its disk: segments that are in the object store.

local.retention.bytes and local.retention.ms limit what is on the disk; -2 means the limit of the whole log. The
oldest segments go first, and the first that has to stay ends the search (as in retention.py). The log's start does not
move: readers of the deleted segments are served from the object store.

Never beyond the end of what is in the object store without a hole, and never the active segment. The caller knows that
end, for this log's history (a segment of another leader's history does not count).

The active segment of a topic that is no longer written to would never be copied, and its records would never expire.
So it is rolled when all of them are older than the limit by time, as in Kafka; later it goes as any other segment. It
is open for ROLL_PAUSE_MS at least: records that were old when they came must not get a segment each.
"""

from collections.abc import Callable, Sequence
from typing import Final

from .log import Log
from .log_config import LogConfig
from .retention import DeletionReason, ExpiredSegment, Retention, SegmentAge, ages, beyond, newest_timestamps
from .tiered_log import delete_local_segments

ROLL_PAUSE_MS: Final = 300_000


def enforce_local(log: Log, *, tiered_end: int, now_ms: int) -> Retention:
    """Decide for the local segments of a tiered log, and delete. All offsets from the log's start up to `tiered_end`
    (exclusive) are in the object store. Blocks."""
    segments = list(log.segments)
    decision = decide_local(
        ages(log, newest_timestamps(log, log.config.retention_ms_on_disk)),
        log_start_offset=log.log_start_offset,
        tiered_end=min(tiered_end, log.high_watermark),
        config=log.config,
        now_ms=now_ms,
        may_roll=log.high_watermark >= log.log_end_offset and now_ms - log.segments.active.created_ms >= ROLL_PAUSE_MS,
    )
    delete_local_segments(log, segments[: len(decision.forgotten)], now_ms=now_ms)
    if decision.roll:
        log.roll(now_ms=now_ms)
    return decision


def decide_local(
    segments: Sequence[SegmentAge],
    *,
    log_start_offset: int,
    tiered_end: int,
    config: LogConfig,
    now_ms: int,
    may_roll: bool = False,
) -> Retention:
    """The segments to delete of these, which are ascending, the last one active. That one is never in the object store:
    `roll` it if it is all that is left, and too old. The log's start does not move."""
    assert segments, "a log has a segment"
    gone: list[ExpiredSegment] = []
    roll = False

    def delete_expired(reason: DeletionReason, has_to_go: Callable[[int], bool]) -> None:
        for number in range(len(gone), len(segments) - 1):
            end = segments[number + 1].base_offset
            if (end > tiered_end and end > log_start_offset) or not has_to_go(number):
                break
            gone.append(ExpiredSegment(segments[number].base_offset, reason))

    delete_expired(DeletionReason.START_OFFSET, lambda number: segments[number + 1].base_offset <= log_start_offset)
    if config.deletes:
        size, age_ms = config.retention_bytes_on_disk, config.retention_ms_on_disk
        if size >= 0:
            delete_expired(DeletionReason.LOCAL_SIZE, beyond(segments, len(gone), size))
        if age_ms >= 0:
            delete_expired(DeletionReason.LOCAL_TIME, lambda number: now_ms - segments[number].newest_ms > age_ms)
            active = segments[-1]
            is_last_left = len(gone) == len(segments) - 1 and active.size > 0
            roll = may_roll and is_last_left and now_ms - active.newest_ms > age_ms
    return Retention(forgotten=tuple(gone), log_start_offset=log_start_offset, roll=roll)
