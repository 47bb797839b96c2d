"""What a log may forget: which segments are deleted, and where the log starts then.

Kafka looks at a log three times, each time from its oldest segment on, and stops at the first that has to stay:

    1. start offset   the next segment begins at or before the log's start, so this one can no longer be read
                      (DeleteRecords, or the log start offset of the leader); holds for every cleanup policy
    2. size           without the segment the log still has at least retention.bytes
    3. time           the segment's newest record is older than retention.ms

Size and time count only where cleanup.policy has `delete`. What one look deletes, the next does not see.

Of a tiered log only what lies before the log's start is deleted here: local_retention.py limits what is on the disk,
and the whole log is limited where the object store is known.

Never beyond the high watermark: a segment goes only if all of it is replicated, so the log's start cannot pass what a
consumer may see. The active segment may go too, when all of its records have to; then a new one is rolled first,
because a log always has a segment. An empty active segment stays.

Time is the records' own. A record stamped in the future keeps its segment, and all later ones, until that future is
past, as in Kafka; `message.timestamp.after.max.ms` (an hour, by default) refuses such records, and
retention by size does not look at the clock. The decision names such segments, so that they can be logged. Records
without a timestamp age from the day on which the segment was opened.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from trioka.protocol.lazy_dataclass import frozen

from .log import Log
from .log_config import LogConfig


class SegmentAge(NamedTuple):
    """The facts about a segment that a decision needs."""

    base_offset: int
    size: int
    newest_ms: int  # largest timestamp of its records; of none, when it was made


class DeletionReason(Enum):
    START_OFFSET = "lies before the log's start"
    SIZE = "is more than retention.bytes"
    TIME = "is older than retention.ms"
    LOCAL_SIZE = "is in the object store, and more than local.retention.bytes"
    LOCAL_TIME = "is in the object store, and older than local.retention.ms"


class ExpiredSegment(NamedTuple):
    base_offset: int
    reason: DeletionReason


@frozen
class Retention:
    """Delete these segments, the oldest of the log, in this order. `roll` the active one first if it is one of them;
    of a tiered log, it goes later."""

    forgotten: tuple[ExpiredSegment, ...] = ()
    log_start_offset: int
    roll: bool = False
    from_the_future: tuple[int, ...] = ()  # base offsets of segments kept by a timestamp that is yet to come


def enforce(log: Log, *, now_ms: int) -> Retention:
    """Decide for a log, and delete. Blocks."""
    if log.has_remote_part and not log.config.remote_storage:
        log.delete_records_before(log.local_log_start_offset)  # the topic is not tiered any more
    segments = list(log.segments)
    decision = decide(
        ages(log, newest_timestamps(log, log.config.retention_ms)),
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        config=_config_of(log),
        now_ms=now_ms,
    )
    log.delete_segments(segments[: len(decision.forgotten)], now_ms=now_ms)
    return decision


def _config_of(log: Log) -> LogConfig:
    """Tiered storage limits size and time of a tiered log, unless no segment of it is or will be in the object
    store."""
    config = log.config
    if config.remote_storage and (log.has_remote_part or not config.remote_copy_disable):
        return replace(config, cleanup_policy=frozenset())
    return config


def ages(log: Log, newest: Sequence[int]) -> list[SegmentAge]:
    return [
        SegmentAge(segment.base_offset, segment.size, newest_ms)
        for segment, newest_ms in zip(log.segments, newest, strict=True)
    ]


def newest_timestamps(log: Log, retention_ms: int) -> list[int]:
    """The largest timestamp of each segment, if retention needs it: finding it may read a file."""
    if not log.config.deletes or retention_ms < 0:
        return [segment.created_ms for segment in log.segments]
    found = [log.query(segment, lambda segment: segment.largest_timestamp()[0]) for segment in log.segments]
    return [newest if newest >= 0 else segment.created_ms for newest, segment in zip(found, log.segments, strict=True)]


def decide(
    segments: Sequence[SegmentAge],
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    config: LogConfig,
    now_ms: int,
) -> Retention:
    """The segments to delete of these, which are ascending, the last one active."""
    assert segments, "a log has a segment"
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    gone: list[ExpiredSegment] = []
    start = log_start_offset

    def delete_expired(reason: DeletionReason, has_to_go: Callable[[int], bool]) -> None:
        nonlocal start
        number = len(gone)
        while number < len(segments) and high_watermark >= ends[number]:
            is_last = number == len(segments) - 1
            if (is_last and not segments[number].size) or not has_to_go(number):
                break
            gone.append(ExpiredSegment(segments[number].base_offset, reason))
            start = max(start, ends[number])
            number += 1

    delete_expired(DeletionReason.START_OFFSET, lambda number: number + 1 < len(segments) and ends[number] <= start)
    from_the_future: tuple[int, ...] = ()
    if config.deletes:
        if config.retention_bytes >= 0:
            delete_expired(DeletionReason.SIZE, beyond(segments, len(gone), config.retention_bytes))
        if config.retention_ms >= 0:
            delete_expired(
                DeletionReason.TIME, lambda number: now_ms - segments[number].newest_ms > config.retention_ms
            )
            kept = segments[len(gone) :]
            from_the_future = tuple(segment.base_offset for segment in kept if segment.newest_ms > now_ms)
    return Retention(
        forgotten=tuple(gone),
        log_start_offset=start,
        roll=len(gone) == len(segments),
        from_the_future=from_the_future,
    )


def beyond(segments: Sequence[SegmentAge], first: int, retention_bytes: int) -> Callable[[int], bool]:
    """Whether the log without segment `number`, and those before it, still has so many bytes."""
    left = sum(segment.size for segment in segments[first:])

    def is_beyond(number: int) -> bool:
        nonlocal left
        if left - segments[number].size < retention_bytes:
            return False
        left -= segments[number].size
        return True

    return is_beyond
