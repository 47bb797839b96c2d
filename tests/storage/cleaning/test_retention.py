"""Retention: what may go, in Kafka's order, and what never may."""

from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.compacted_log import Partition

from trioka.storage.cleaning import retention
from trioka.storage.cleaning.retention import DeletionReason, Retention, SegmentAge
from trioka.storage.log_config import LogConfig

NOW = 1_000_000
THREE = [SegmentAge(0, 100, 1_000), SegmentAge(10, 100, 2_000), SegmentAge(20, 100, 3_000)]  # the log ends at 30


@pytest.fixture
def storage() -> ModuleType:
    return retention


def decide(
    storage: ModuleType,
    segments: list[SegmentAge] = THREE,
    *,
    start: int = 0,
    end: int = 30,
    high: int = 30,
    now: int = NOW,
    policy: tuple[str, ...] = ("delete",),
    ms: int = -1,
    size: int = -1,
) -> Retention:
    config = LogConfig(retention_ms=ms, retention_bytes=size, cleanup_policy=frozenset(policy))  # type: ignore[arg-type]
    return storage.decide(  # type: ignore[no-any-return]
        segments, log_start_offset=start, log_end_offset=end, high_watermark=high, config=config, now_ms=now
    )


def gone(decision: Retention) -> list[int]:
    return [forgotten.base_offset for forgotten in decision.forgotten]


def test_without_limits_nothing_is_forgotten(storage: ModuleType) -> None:
    assert decide(storage) == storage.Retention(log_start_offset=0)


def test_a_segment_goes_when_its_newest_record_is_older_than_the_limit(storage: ModuleType) -> None:
    assert gone(decide(storage, ms=NOW - 1_000)) == []
    assert gone(decide(storage, ms=NOW - 1_001)) == [0]
    decision = decide(storage, ms=NOW - 2_001)
    assert gone(decision) == [0, 10]
    assert decision.log_start_offset == 20
    assert {forgotten.reason for forgotten in decision.forgotten} == {DeletionReason.TIME}


def test_time_stops_at_the_first_segment_that_is_young_enough(storage: ModuleType) -> None:
    segments = [SegmentAge(0, 100, 5_000), SegmentAge(10, 100, 1_000), SegmentAge(20, 100, 6_000)]
    assert gone(decide(storage, segments, ms=NOW - 1_500)) == []


def test_a_record_of_the_future_keeps_its_segment_and_is_reported(storage: ModuleType) -> None:
    segments = [SegmentAge(0, 100, NOW + 5_000), SegmentAge(10, 100, 1_000), SegmentAge(20, 100, 3_000)]
    decision = decide(storage, segments, ms=10)
    assert gone(decision) == []
    assert decision.from_the_future == (0,)
    assert gone(decide(storage, segments, ms=10, now=NOW + 5_011)) == [0, 10, 20]
    assert gone(decide(storage, segments, ms=10, size=100)) == [0, 10, 20]  # size does not look at the clock


def test_a_segment_goes_by_size_only_if_enough_is_left(storage: ModuleType) -> None:
    for size, expected in [
        (300, []),
        (201, []),
        (200, [0]),
        (199, [0]),
        (100, [0, 10]),
        (1, [0, 10]),
        (0, [0, 10, 20]),
    ]:
        decision = decide(storage, size=size)
        assert gone(decision) == expected
        assert all(forgotten.reason is DeletionReason.SIZE for forgotten in decision.forgotten)


def test_segments_before_the_start_go_whatever_the_policy(storage: ModuleType) -> None:
    for policy in ((), ("delete",), ("compact",), ("compact", "delete")):
        assert gone(decide(storage, start=9, policy=policy)) == []
        decision = decide(storage, start=25, policy=policy)
        assert gone(decision) == [0, 10]
        assert {forgotten.reason for forgotten in decision.forgotten} == {DeletionReason.START_OFFSET}
        assert decision.log_start_offset == 25
        assert gone(decide(storage, start=30, policy=policy)) == [0, 10]  # the active segment stays


def test_a_compacted_log_forgets_nothing_by_time_or_size(storage: ModuleType) -> None:
    assert gone(decide(storage, ms=0, size=0, policy=("compact",))) == []
    assert gone(decide(storage, ms=0, size=0, policy=("compact", "delete"))) == [0, 10, 20]


def test_nothing_beyond_the_high_watermark_is_forgotten(storage: ModuleType) -> None:
    for high, expected in [(9, []), (10, [0]), (19, [0]), (29, [0, 10]), (30, [0, 10, 20])]:
        assert gone(decide(storage, high=high, ms=0)) == expected
        assert gone(decide(storage, high=high, size=0)) == expected
    assert gone(decide(storage, high=9, start=25)) == []


def test_when_everything_goes_a_new_segment_is_rolled_first(storage: ModuleType) -> None:
    decision = decide(storage, ms=0)
    assert decision.roll
    assert decision.log_start_offset == 30
    assert not decide(storage, ms=NOW - 2_001).roll


def test_an_empty_active_segment_stays(storage: ModuleType) -> None:
    segments = [*THREE[:2], SegmentAge(20, 0, 0)]
    decision = decide(storage, segments, end=20, high=20, ms=0)
    assert gone(decision) == [0, 10]
    assert not decision.roll
    assert gone(decide(storage, [SegmentAge(0, 0, 0)], end=0, high=0, ms=0, size=0)) == []


def test_the_looks_come_one_after_the_other(storage: ModuleType) -> None:
    """First what lies before the start; the size is that of the rest; then time."""
    segments = [SegmentAge(base, 100, 1_000 + base) for base in range(0, 50, 10)]
    decision = decide(storage, segments, start=10, end=50, high=50, size=300, ms=NOW - 1_021)
    assert [tuple(forgotten) for forgotten in decision.forgotten] == [
        (0, DeletionReason.START_OFFSET),
        (10, DeletionReason.SIZE),
        (20, DeletionReason.TIME),
    ]
    assert decision.log_start_offset == 30


def log_of_three(config: LogConfig) -> Partition:
    partition = Partition(config=config)
    for timestamp in (1_000, 2_000, 3_000):
        partition.put((b"k", b"v"), (b"k", b"v"), timestamp=timestamp)
        partition.roll()
    return partition


def test_a_log_loses_the_segments_that_have_to_go(storage: ModuleType) -> None:
    partition = log_of_three(LogConfig(retention_ms=NOW - 1_500))
    decision = storage.enforce(partition.log, now_ms=NOW)
    assert gone(decision) == [0]
    assert partition.log.log_start_offset == decision.log_start_offset == 2
    assert [offset for offset, _, _ in partition.left()] == [2, 3, 4, 5]


def test_a_log_may_lose_everything_and_goes_on_at_its_end(storage: ModuleType) -> None:
    partition = log_of_three(LogConfig(retention_ms=0))
    partition.put((b"k", b"v"))
    assert storage.enforce(partition.log, now_ms=NOW).roll
    assert partition.log.log_start_offset == partition.log.log_end_offset == 7
    assert partition.put((b"k", b"v")) == 7


def test_compacted_and_deleted_logs_are_both(storage: ModuleType) -> None:
    both = LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=NOW - 1_500, segment_bytes=100)
    partition = log_of_three(both)
    partition.compact(now=NOW)
    assert [offset for offset, _, _ in partition.left()] == [5]
    storage.enforce(partition.log, now_ms=NOW)
    assert partition.log.log_start_offset == 2
    assert [offset for offset, _, _ in partition.left()] == [5]


def test_records_without_timestamps_age_from_when_the_segment_was_made(storage: ModuleType) -> None:
    partition = Partition(config=LogConfig(retention_ms=1_000))
    partition.put((b"k", b"v"), timestamp=-1)
    partition.roll()
    assert gone(storage.enforce(partition.log, now_ms=NOW + 1_000)) == []
    assert gone(storage.enforce(partition.log, now_ms=NOW + 1_001)) == [0]


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_log_looks_like_the_rules_hold(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        bases = sorted(random.sample(range(100), random.randrange(1, 8)))
        segments = [SegmentAge(base, random.randrange(3) * 50, random.randrange(2 * NOW)) for base in bases]
        end = bases[-1] + (random.randrange(1, 10) if segments[-1].size else 0)
        high = random.randint(bases[0], end)
        start = random.randint(bases[0], high)
        ms, size = random.choice([-1, 0, NOW // 2]), random.choice([-1, 0, 120])
        decision = decide(retention, segments, start=start, end=end, high=high, ms=ms, size=size)
        removed = gone(decision)
        assert removed == bases[: len(removed)]  # the oldest, without gaps
        left = bases[len(removed) :]
        assert start <= decision.log_start_offset <= high
        assert decision.log_start_offset >= (left[0] if left else end) or not removed
        assert decision.roll == (not left)
        if size >= 0 and any(forgotten.reason is DeletionReason.SIZE for forgotten in decision.forgotten):
            by_size = [n for n, forgotten in enumerate(decision.forgotten) if forgotten.reason is DeletionReason.SIZE]
            assert sum(segment.size for segment in segments[by_size[-1] + 1 :]) >= size


MISTAKES: list[tuple[str, str, Rule]] = [
    ("now_ms - segments[number].newest_ms > config.retention_ms",
     "now_ms - segments[number].newest_ms >= config.retention_ms",
     test_a_segment_goes_when_its_newest_record_is_older_than_the_limit),
    ("                break\n", "                number += 1\n                continue\n",
     test_time_stops_at_the_first_segment_that_is_young_enough),
    ("now_ms - segments[number].newest_ms > config.retention_ms",
     "abs(now_ms - segments[number].newest_ms) > config.retention_ms",
     test_a_record_of_the_future_keeps_its_segment_and_is_reported),
    ("if left - segments[number].size < retention_bytes:", "if left <= retention_bytes:",
     test_a_segment_goes_by_size_only_if_enough_is_left),
    ("        left -= segments[number].size\n", "", test_a_segment_goes_by_size_only_if_enough_is_left),
    ("ends[number] <= start", "segments[number].base_offset < start",
     test_segments_before_the_start_go_whatever_the_policy),
    ("number + 1 < len(segments) and ends[number] <= start", "ends[number] <= start",
     test_segments_before_the_start_go_whatever_the_policy),
    ("if config.deletes:", "if True:", test_a_compacted_log_forgets_nothing_by_time_or_size),
    ("and high_watermark >= ends[number]", "", test_nothing_beyond_the_high_watermark_is_forgotten),
    ("high_watermark >= ends[number]", "high_watermark >= segments[number].base_offset",
     test_nothing_beyond_the_high_watermark_is_forgotten),
    ("(is_last and not segments[number].size) or ", "", test_an_empty_active_segment_stays),
    ("roll=len(gone) == len(segments)", "roll=False", test_when_everything_goes_a_new_segment_is_rolled_first),
    ("segments[first:]", "segments", test_the_looks_come_one_after_the_other),
    ("newest if newest >= 0 else segment.created_ms", "newest",
     test_records_without_timestamps_age_from_when_the_segment_was_made),
    ("    log.delete_segments(segments[: len(decision.forgotten)], now_ms=now_ms)\n", "",
     test_a_log_loses_the_segments_that_have_to_go),
    ("start = max(start, ends[number])", "pass", test_when_everything_goes_a_new_segment_is_rolled_first),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(retention, right, wrong, rule)
