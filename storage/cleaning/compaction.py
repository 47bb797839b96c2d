"""Which logs are compacted, and how much of each: decisions only. `cleaner.py` does the work.

    ├── clean ──────────┼── dirty ────────────┼── not yet ──────────────┤
    log start    first dirty offset    first uncleanable offset      log end

Clean is what an earlier round has processed: each key occurs there once (and tombstones until their time). The
checkpoint `cleaner-offset-checkpoint` has its end. Not yet: the active segment, everything from the last
stable offset on (whether an open transaction's records count is not known, nor whether unreplicated ones will stay),
and the segments from the first one with a record younger than min.compaction.lag.ms.

A log is due when dirty / (clean + dirty), in bytes, is more than min.cleanable.dirty.ratio, or when a dirty segment
began longer than max.compaction.lag.ms ago. Of all that are due, the dirtiest comes first.

All borders are those of segments but one: a round that ran out of memory for its keys ended at any batch.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from trioka.protocol.lazy_dataclass import frozen

from ..files.layout import TopicPartition
from ..log_config import FOREVER_MS, LogConfig

MAX_RELATIVE_OFFSET: Final = 2**31 - 1  # what an index can express


class SegmentFacts(NamedTuple):
    """The facts about a segment that these decisions need."""

    base_offset: int
    size: int
    newest_ms: int = -1  # the largest timestamp; needed if there is a min.compaction.lag.ms
    first_ms: int = -1  # the timestamp of its first batch, -1 for none; needed if there is a max.compaction.lag.ms
    index_bytes: int = 0
    time_index_bytes: int = 0


@frozen
class LogToClean:
    """The part of one log that can be compacted now."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int = 0  # how much longer than max.compaction.lag.ms the oldest dirty segment has been waiting
    reset: bool = False  # the checkpoint lay outside of the log and was not used

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return (self.overdue_ms > 0 and self.dirty_bytes > 0) or self.ratio > config.min_cleanable_dirty_ratio


def measure(
    segments: Sequence[SegmentFacts],
    *,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    checkpoint: int | None,
    config: LogConfig,
    now_ms: int,
) -> LogToClean:
    """The dirty part of a log with these segments, the last one active. `checkpoint` is the end of the last round."""
    bases = [segment.base_offset for segment in segments]
    active = len(segments) - 1
    first_dirty = log_start_offset if checkpoint is None else checkpoint
    reset = not log_start_offset <= first_dirty <= log_end_offset
    if reset:
        # Records were deleted below the start, or the log has lost its end; what was clean is unknown then.
        first_dirty = log_start_offset
    dirty_from = max(bisect_right(bases, first_dirty) - 1, 0)

    uncleanable = min(last_stable_offset, bases[active])
    if config.min_compaction_lag_ms > 0:
        young = (s for s in segments[dirty_from:active] if s.newest_ms > now_ms - config.min_compaction_lag_ms)
        uncleanable = min(uncleanable, next((segment.base_offset for segment in young), uncleanable))
    uncleanable = max(uncleanable, first_dirty)
    # Whole segments only: the one that holds the first uncleanable offset is not touched.
    stop = min(max(bisect_right(bases, uncleanable) - 1, 0), active)

    clean_until = bisect_right(bases, first_dirty - 1)
    return LogToClean(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=bases[stop],
        clean_bytes=sum(segment.size for segment in segments[:clean_until]),
        dirty_bytes=sum(segment.size for segment in segments[dirty_from:stop]),
        overdue_ms=_overdue_ms(segments[dirty_from:active], config, now_ms),
        reset=reset,
    )


def _overdue_ms(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms == FOREVER_MS:
        return 0
    oldest = min((segment.first_ms for segment in dirty if segment.first_ms > 0), default=now_ms)
    return max(now_ms - config.max_compaction_lag_ms - oldest, 0)


class Candidate(NamedTuple):
    partition: TopicPartition
    to_clean: LogToClean
    config: LogConfig


def dirtiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The next log to compact; None if none is due. In a tie the first one."""
    due = [candidate for candidate in candidates if candidate.to_clean.is_due(candidate.config)]
    return max(due, key=lambda candidate: candidate.to_clean.ratio, default=None)


def groups(segments: Sequence[SegmentFacts], config: LogConfig, end_offset: int) -> list[list[int]]:
    """Which segments (by their number) become one: adjacent ones that together are no larger than one segment may be.

    Counted before compaction, so the result always fits. `end_offset` is where the last of them ends, at most.
    """
    grouped: list[list[int]] = []
    size = index_bytes = time_index_bytes = 0
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        fits = (
            bool(grouped)
            and size + segment.size <= config.segment_bytes
            and index_bytes + segment.index_bytes <= config.segment_index_bytes
            and time_index_bytes + segment.time_index_bytes <= config.segment_index_bytes
            and (segment.size == 0 or end - 1 - segments[grouped[-1][0]].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if fits:
            grouped[-1].append(number)
            size += segment.size
            index_bytes += segment.index_bytes
            time_index_bytes += segment.time_index_bytes
        else:
            grouped.append([number])
            size, index_bytes, time_index_bytes = segment.size, segment.index_bytes, segment.time_index_bytes
    return grouped
