"""What is compacted: how far, when, which log first, and which segments become one."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.storage import compaction
from trioka.storage.compaction import Candidate, LogToClean, SegmentFacts
from trioka.storage.layout import TopicPartition
from trioka.storage.log_config import LogConfig

NOW = 1_000_000
FOUR = [
    SegmentFacts(0, 100, 1_000, 500),
    SegmentFacts(10, 100, 2_000, 1_500),
    SegmentFacts(20, 100, 3_000, 2_500),
    SegmentFacts(30, 50, 4_000, 3_500),
]  # the log ends at 40; the last segment is active


@pytest.fixture
def storage() -> ModuleType:
    return compaction


def measure(
    storage: ModuleType,
    *,
    start: int = 0,
    end: int = 40,
    stable: int = 40,
    checkpoint: int | None = None,
    segments: list[SegmentFacts] = FOUR,
    now: int = NOW,
    **settings: int,
) -> LogToClean:
    return storage.measure(  # type: ignore[no-any-return]
        segments,
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=stable,
        checkpoint=checkpoint,
        config=LogConfig(cleanup_policy=frozenset({"compact"}), **settings),  # type: ignore[arg-type]
        now_ms=now,
    )


def test_everything_but_the_active_segment_of_a_new_log_is_dirty(storage: ModuleType) -> None:
    assert measure(storage) == storage.LogToClean(
        first_dirty_offset=0, first_uncleanable_offset=30, clean_bytes=0, dirty_bytes=300
    )


def test_what_an_earlier_round_went_through_is_clean(storage: ModuleType) -> None:
    to_clean = measure(storage, checkpoint=20)
    assert (to_clean.first_dirty_offset, to_clean.clean_bytes, to_clean.dirty_bytes) == (20, 200, 100)
    assert to_clean.ratio == pytest.approx(1 / 3)
    assert not to_clean.reset


def test_a_round_that_ended_inside_of_a_segment_goes_on_there(storage: ModuleType) -> None:
    to_clean = measure(storage, checkpoint=15)
    assert (to_clean.first_dirty_offset, to_clean.clean_bytes, to_clean.dirty_bytes) == (15, 200, 200)


def test_nothing_is_cleaned_from_the_last_stable_offset_on(storage: ModuleType) -> None:
    for stable, expected in [(40, 30), (30, 30), (29, 20), (20, 20), (19, 10), (5, 0), (0, 0)]:
        to_clean = measure(storage, stable=stable)
        assert to_clean.first_uncleanable_offset == expected
        assert to_clean.dirty_bytes == expected * 10


def test_young_records_wait_for_the_minimum_lag(storage: ModuleType) -> None:
    for lag, expected in [(NOW - 3_000, 30), (NOW - 2_999, 20), (NOW - 1_999, 10), (NOW - 999, 0)]:
        assert measure(storage, min_compaction_lag_ms=lag).first_uncleanable_offset == expected
    # A young segment that is clean already delays no other.
    segments = [SegmentFacts(0, 100, NOW), *FOUR[1:]]
    to_clean = measure(storage, segments=segments, checkpoint=10, min_compaction_lag_ms=1_000)
    assert to_clean.first_uncleanable_offset == 30


def test_a_checkpoint_outside_of_the_log_is_not_used(storage: ModuleType) -> None:
    below = measure(storage, start=20, checkpoint=5)
    assert (below.first_dirty_offset, below.reset) == (20, True)
    beyond = measure(storage, checkpoint=41)
    assert (beyond.first_dirty_offset, beyond.reset) == (0, True)
    assert not measure(storage, checkpoint=40).reset


def test_a_log_is_due_when_enough_of_it_is_dirty(storage: ModuleType) -> None:
    config = LogConfig(min_cleanable_dirty_ratio=0.5)
    for clean, dirty, due in [(100, 99, False), (100, 100, False), (100, 101, True), (0, 0, False), (0, 1, True)]:
        to_clean = storage.LogToClean(
            first_dirty_offset=0, first_uncleanable_offset=1, clean_bytes=clean, dirty_bytes=dirty
        )
        assert to_clean.is_due(config) is due


def test_a_log_is_due_when_a_dirty_segment_has_waited_for_the_maximum_lag(storage: ModuleType) -> None:
    config = LogConfig(min_cleanable_dirty_ratio=1.0)
    for lag, overdue in [(NOW - 1_500, 0), (NOW - 1_501, 1), (NOW - 2_000, 500)]:
        to_clean = measure(storage, checkpoint=10, max_compaction_lag_ms=lag)
        assert to_clean.overdue_ms == overdue
        assert to_clean.is_due(config) is (overdue > 0)
    nothing = measure(storage, checkpoint=10, stable=10, max_compaction_lag_ms=1)
    assert nothing.overdue_ms > 0
    assert not nothing.is_due(config)


def test_a_segment_without_timestamps_is_never_overdue(storage: ModuleType) -> None:
    segments = [SegmentFacts(0, 100), SegmentFacts(10, 0)]
    assert measure(storage, segments=segments, end=10, stable=10, max_compaction_lag_ms=1).overdue_ms == 0


def test_the_dirtiest_log_that_is_due_comes_first(storage: ModuleType) -> None:
    def candidate(topic: str, clean: int, dirty: int, overdue: int = 0) -> Candidate:
        to_clean = storage.LogToClean(
            first_dirty_offset=0,
            first_uncleanable_offset=9,
            clean_bytes=clean,
            dirty_bytes=dirty,
            overdue_ms=overdue,
        )
        return storage.Candidate(TopicPartition(topic, 0), to_clean, LogConfig())  # type: ignore[no-any-return]

    def chosen(*candidates: Candidate) -> str | None:
        found = storage.dirtiest(candidates)
        return found.partition.topic if found else None

    assert chosen() is None
    assert chosen(candidate("a", 100, 50)) is None
    assert chosen(candidate("a", 100, 50, overdue=1), candidate("b", 100, 60)) == "a"
    assert chosen(candidate("a", 100, 200), candidate("b", 10, 90), candidate("c", 0, 0)) == "b"


def test_adjacent_segments_become_one_as_long_as_they_fit(storage: ModuleType) -> None:
    config = LogConfig(segment_bytes=250)
    assert storage.groups(FOUR[:3], config, 30) == [[0, 1], [2]]
    assert storage.groups(FOUR, config, 40) == [[0, 1], [2, 3]]
    assert storage.groups(FOUR[:3], LogConfig(segment_bytes=300), 30) == [[0, 1, 2]]
    assert storage.groups(FOUR[:3], LogConfig(segment_bytes=10), 30) == [[0], [1], [2]]
    assert storage.groups([], config, 0) == []


def test_the_indexes_of_a_group_fit_too(storage: ModuleType) -> None:
    config = LogConfig(segment_index_bytes=100)
    by_offset = [SegmentFacts(0, 1, index_bytes=60), SegmentFacts(1, 1, index_bytes=41)]
    by_time = [SegmentFacts(0, 1, time_index_bytes=60), SegmentFacts(1, 1, time_index_bytes=41)]
    assert storage.groups(by_offset, config, 2) == storage.groups(by_time, config, 2) == [[0], [1]]
    fitting = [SegmentFacts(0, 1, index_bytes=60, time_index_bytes=60), SegmentFacts(1, 1, -1, -1, 40, 40)]
    assert storage.groups(fitting, config, 2) == [[0, 1]]


def test_the_offsets_of_a_group_can_be_expressed_in_an_index(storage: ModuleType) -> None:
    far = 2**31
    config = LogConfig()
    assert storage.groups([SegmentFacts(0, 1), SegmentFacts(5, 1)], config, far) == [[0, 1]]
    assert storage.groups([SegmentFacts(0, 1), SegmentFacts(5, 1)], config, far + 1) == [[0], [1]]
    assert storage.groups([SegmentFacts(0, 1), SegmentFacts(5, 0)], config, far + 1) == [[0, 1]]  # an empty one fits


MISTAKES: list[tuple[str, str, Rule]] = [
    ("min(last_stable_offset, bases[active])", "bases[active]",
     test_nothing_is_cleaned_from_the_last_stable_offset_on),
    ("stop = min(max(bisect_right(bases, uncleanable) - 1, 0), active)",
     "stop = min(max(bisect_right(bases, uncleanable), 0), active)",
     test_nothing_is_cleaned_from_the_last_stable_offset_on),
    ("s.newest_ms > now_ms - config.min_compaction_lag_ms", "s.newest_ms >= now_ms - config.min_compaction_lag_ms",
     test_young_records_wait_for_the_minimum_lag),
    ("s.newest_ms > now_ms - config.min_compaction_lag_ms", "False", test_young_records_wait_for_the_minimum_lag),
    ("(s for s in segments[dirty_from:active] if s.newest_ms > now_ms - " "config.min_compaction_lag_ms)",
     "(s for s in segments[:active] if s.newest_ms > now_ms - config.min_compaction_lag_ms)",
     test_young_records_wait_for_the_minimum_lag),
    ("log_start_offset <= first_dirty <= log_end_offset", "log_start_offset <= first_dirty",
     test_a_checkpoint_outside_of_the_log_is_not_used),
    ("log_start_offset <= first_dirty <= log_end_offset", "first_dirty <= log_end_offset",
     test_a_checkpoint_outside_of_the_log_is_not_used),
    ("self.ratio > config.min_cleanable_dirty_ratio", "self.ratio >= config.min_cleanable_dirty_ratio",
     test_a_log_is_due_when_enough_of_it_is_dirty),
    ("(self.overdue_ms > 0 and self.dirty_bytes > 0)", "self.overdue_ms > 0",
     test_a_log_is_due_when_a_dirty_segment_has_waited_for_the_maximum_lag),
    ("_overdue_ms(segments[dirty_from:active], config, now_ms)", "_overdue_ms(segments[:active], config, now_ms)",
     test_a_log_is_due_when_a_dirty_segment_has_waited_for_the_maximum_lag),
    ("segment.first_ms > 0", "True", test_a_segment_without_timestamps_is_never_overdue),
    ("key=lambda candidate: candidate.to_clean.ratio", "key=lambda candidate: candidate.to_clean.dirty_bytes",
     test_the_dirtiest_log_that_is_due_comes_first),
    ("[candidate for candidate in candidates if candidate.to_clean.is_due(candidate.config)]",
     "[candidate for candidate in candidates]", test_the_dirtiest_log_that_is_due_comes_first),
    ("size + segment.size <= config.segment_bytes", "size + segment.size <= 2 * config.segment_bytes",
     test_adjacent_segments_become_one_as_long_as_they_fit),
    ("            size += segment.size\n", "", test_adjacent_segments_become_one_as_long_as_they_fit),
    ("and index_bytes + segment.index_bytes <= config.segment_index_bytes", "",
     test_the_indexes_of_a_group_fit_too),
    ("and time_index_bytes + segment.time_index_bytes <= config.segment_index_bytes", "",
     test_the_indexes_of_a_group_fit_too),
    ("end - 1 - segments[grouped[-1][0]].base_offset", "end - 1 - segment.base_offset",
     test_the_offsets_of_a_group_can_be_expressed_in_an_index),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(compaction, right, wrong, rule)
