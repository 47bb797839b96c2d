"""Logs whose oldest segments are only in the object store: what is deleted, what is served, what survives a restart."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import NAME, NOW_MS, SMALL, append, batch, values

from trioka.protocol.errors import OffsetMovedToTieredStorage, OffsetOutOfRange
from trioka.storage import local_retention, retention, tiered_log
from trioka.storage.checkpoint import EpochEntry
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import LOCAL_LOG_STARTS, CorruptFile
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_move import FutureLog, start_of
from trioka.storage.offset_lookup import offset_for_timestamp
from trioka.storage.retention import DeletionReason, Retention, SegmentAge
from trioka.testing.disks.memory_disk import MemoryDisk

TIERED = LogConfig(
    segment_bytes=700,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    remote_storage=True,
    local_retention_bytes=0,
)
PATH = "/logs"
NOW = 1_000_000
THREE = [SegmentAge(0, 100, 1_000), SegmentAge(10, 100, 2_000), SegmentAge(20, 100, 3_000)]


@pytest.fixture
def storage() -> ModuleType:
    return local_retention


def decide(
    storage: ModuleType, *, tiered_end: int, start: int = 0, policy: tuple[str, ...] = ("delete",), **config: int
) -> list[int]:
    made = LogConfig(remote_storage=True, cleanup_policy=frozenset(policy), **config)  # type: ignore[arg-type]
    decision: Retention = storage.decide_local(
        THREE, log_start_offset=start, tiered_end=tiered_end, config=made, now_ms=NOW
    )
    assert decision.log_start_offset == start
    return [gone.base_offset for gone in decision.forgotten]


def open_directory(disk: MemoryDisk, config: LogConfig = TIERED) -> LogDirectory:
    return LogDirectory.open(disk, PATH, lambda _: config, now_ms=NOW_MS)


def filled(directory: LogDirectory, batches: int = 30, config: LogConfig = TIERED) -> Log:
    log = directory.create(NAME, config, now_ms=NOW_MS)
    for number in range(batches):
        append(log, f"value {number}", epoch=number // 12, producer=(7, 0, number))
    log.advance_high_watermark(log.log_end_offset)
    log.sync()
    return log


def tiered(directory: LogDirectory) -> Log:
    """A log of 30 records, of which only the active segment is here."""
    log = filled(directory)
    assert len(log.segments) > 3
    local_retention.enforce_local(log, tiered_end=log.segments.active.base_offset, now_ms=NOW_MS)
    assert len(log.segments) == 1
    return log


# What may be deleted.


def test_only_what_is_in_the_object_store_is_deleted(storage: ModuleType) -> None:
    assert decide(storage, tiered_end=0, local_retention_bytes=0) == []
    assert decide(storage, tiered_end=9, local_retention_bytes=0) == []
    assert decide(storage, tiered_end=10, local_retention_bytes=0) == [0]
    assert decide(storage, tiered_end=19, local_retention_ms=0) == [0]


def test_the_active_segment_is_never_deleted(storage: ModuleType) -> None:
    assert decide(storage, tiered_end=1000, local_retention_bytes=0) == [0, 10]


def test_the_active_segment_is_rolled_when_all_of_it_is_too_old(storage: ModuleType) -> None:
    def rolls(age_ms: int, *, tiered_end: int = 20, may_roll: bool = True, size: int = 100) -> bool:
        segments = [*THREE[:2], SegmentAge(20, size, 3_000)]
        config = LogConfig(remote_storage=True, local_retention_ms=age_ms)
        decision: Retention = storage.decide_local(
            segments, log_start_offset=0, tiered_end=tiered_end, config=config, now_ms=NOW, may_roll=may_roll
        )
        return decision.roll

    assert rolls(NOW - 3_001) and not rolls(NOW - 3_000) and not rolls(-1)
    assert not rolls(0, tiered_end=19) and not rolls(0, may_roll=False) and not rolls(0, size=0)


def test_an_idle_log_is_rolled_once_and_records_that_were_old_when_they_came_get_no_segment_each() -> None:
    log = open_directory(MemoryDisk()).create(NAME, LogConfig(remote_storage=True, local_retention_ms=1), now_ms=NOW_MS)
    now_ms = NOW_MS + local_retention.ROLL_PAUSE_MS
    append(log, "old")
    assert not local_retention.enforce_local(log, tiered_end=0, now_ms=now_ms).roll, "it is not committed"
    log.advance_high_watermark(1)
    assert not local_retention.enforce_local(log, tiered_end=0, now_ms=now_ms - 1).roll, "it is too young"
    assert local_retention.enforce_local(log, tiered_end=0, now_ms=now_ms).roll
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    append(log, "old, too")
    log.advance_high_watermark(2)
    assert not local_retention.enforce_local(log, tiered_end=1, now_ms=now_ms).roll
    assert [segment.base_offset for segment in log.segments] == [1]
    assert local_retention.enforce_local(log, tiered_end=1, now_ms=now_ms + local_retention.ROLL_PAUSE_MS).roll


def test_the_local_limits_count(storage: ModuleType) -> None:
    assert decide(storage, tiered_end=20, local_retention_bytes=200, retention_bytes=10_000) == [0]
    assert decide(storage, tiered_end=20, local_retention_bytes=201, retention_bytes=10_000) == []
    assert decide(storage, tiered_end=20, local_retention_ms=NOW - 1_001) == [0]
    assert decide(storage, tiered_end=20, local_retention_ms=NOW - 1_000) == []


def test_minus_two_means_the_limit_of_the_whole_log(storage: ModuleType) -> None:
    assert decide(storage, tiered_end=20, retention_bytes=200, retention_ms=-1) == [0]
    assert decide(storage, tiered_end=20, retention_ms=NOW - 1_001) == [0]
    assert decide(storage, tiered_end=20, local_retention_ms=-1, retention_ms=0, retention_bytes=-1) == []


def test_while_nothing_is_copied_local_segments_stay_as_long_as_the_log(storage: ModuleType) -> None:
    LogConfig(remote_copy_disable=True)
    config = LogConfig(remote_storage=True, remote_copy_disable=True, local_retention_ms=0, retention_ms=-1)
    assert config.retention_ms_on_disk == -1 and config.retention_bytes_on_disk == -1


def test_what_lies_before_the_start_goes_though_it_is_in_no_object_store(storage: ModuleType) -> None:
    assert decide(storage, tiered_end=0, start=10) == [0]
    assert decide(storage, tiered_end=0, start=19) == [0]


def test_the_retention_of_the_whole_log_deletes_no_local_segment() -> None:
    log = filled(open_directory(MemoryDisk()))
    log.config = LogConfig(segment_bytes=1000, remote_storage=True, retention_bytes=0)
    assert retention.enforce(log, now_ms=NOW_MS).forgotten == ()
    log.delete_records_before(log.segments[1].base_offset)
    [gone] = retention.enforce(log, now_ms=NOW_MS).forgotten
    assert gone.reason is DeletionReason.START_OFFSET


def test_with_nothing_in_the_object_store_and_no_copies_the_usual_retention_counts() -> None:
    log = filled(open_directory(MemoryDisk()))
    log.config = LogConfig(segment_bytes=1000, remote_storage=True, remote_copy_disable=True, retention_bytes=0)
    retention.enforce(log, now_ms=NOW_MS)
    assert log.log_start_offset == log.local_log_start_offset == 30


# What is served, and what is kept.


def test_the_log_start_stays_and_the_rest_is_read_elsewhere() -> None:
    log = tiered(open_directory(MemoryDisk()))
    start = log.segments.active.base_offset
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, start, 30)
    assert values(log, start) == [f"value {number}" for number in range(start, 30)]
    for offset in (0, start - 1):
        with pytest.raises(OffsetMovedToTieredStorage):
            log.read(offset, 1000)
    with pytest.raises(OffsetOutOfRange):
        log.read(31, 1000)
    log.delete_records_before(5)
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 1000)


def test_the_epochs_reach_back_to_the_log_start() -> None:
    log = tiered(open_directory(MemoryDisk()))
    whole = [EpochEntry(0, 0), EpochEntry(1, 12), EpochEntry(2, 24)]
    assert log.epochs.entries == whole
    assert log.end_offset_for_epoch(0) == (0, 12), "its first use compares the epochs with the batches that are here"
    assert log.epochs.entries == whole
    log.delete_records_before(13)
    local_retention.enforce_local(log, tiered_end=0, now_ms=NOW_MS)
    retention.enforce(log, now_ms=NOW_MS)


def test_wrong_epochs_of_the_local_part_are_mended_and_the_others_kept() -> None:
    log = tiered(open_directory(MemoryDisk()))
    log.epochs.replace([EpochEntry(0, 0), EpochEntry(1, 12), EpochEntry(2, 24), EpochEntry(9, 29)])
    assert log.end_offset_for_epoch(2) == (2, 30)
    assert log.epochs.entries == [EpochEntry(0, 0), EpochEntry(1, 12), EpochEntry(2, 24)]


def test_a_time_is_looked_up_in_the_local_part() -> None:
    log = tiered(open_directory(MemoryDisk()))
    found = offset_for_timestamp(log, 0)
    assert found is not None and found.offset == log.local_log_start_offset


@pytest.mark.parametrize("clean", [True, False])
def test_both_starts_survive_a_restart(clean: bool) -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = tiered(directory)
    local_start, epochs = log.local_log_start_offset, log.epochs.entries
    directory.close(broker_epoch=1) if clean else directory.close_handles()
    log = open_directory(disk, LogConfig()).logs[NAME]  # the topic's own configuration is not known yet
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, local_start, 30)
    assert log.epochs.entries == epochs
    with pytest.raises(OffsetMovedToTieredStorage):
        log.read(0, 1000)


def test_segments_that_a_crash_left_below_the_local_start_are_removed() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = filled(directory)
    second = log.segments[1].base_offset
    log.local_log_start_offset = second  # as `delete_local_segments` has it when it begins to rename
    assert log.keep is not None
    log.keep(log)
    directory.close_handles()
    log = open_directory(disk).logs[NAME]
    assert (log.log_start_offset, log.segments[0].base_offset) == (0, second)


def test_a_log_that_is_not_tiered_has_no_entry_in_the_second_checkpoint() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk, SMALL)
    log = filled(directory, config=SMALL)
    log.delete_segments(log.segments[:2], now_ms=NOW_MS)
    directory.close(broker_epoch=1)
    assert log.log_start_offset == log.local_log_start_offset > 0
    assert not disk.exists(f"{PATH}/{LOCAL_LOG_STARTS}")


def test_a_topic_that_is_not_tiered_any_more_starts_where_its_disk_does() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = tiered(directory)
    log.config = SMALL
    retention.enforce(log, now_ms=NOW_MS)
    assert log.log_start_offset == log.local_log_start_offset > 0
    directory.close(broker_epoch=1)
    assert open_directory(disk).logs[NAME].log_start_offset > 0


def test_a_cut_below_the_local_start_keeps_the_log_start_and_the_epochs_before_it() -> None:
    log = tiered(open_directory(MemoryDisk()))
    log.truncate_to(15, now_ms=NOW_MS)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 15, 15)
    assert log.epochs.entries == [EpochEntry(0, 0), EpochEntry(1, 12)]


def test_a_cut_below_the_log_start_empties_the_log() -> None:
    log = tiered(open_directory(MemoryDisk()))
    log.delete_records_before(20)
    log.truncate_to(15, now_ms=NOW_MS)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (15, 15, 15)


# A new follower.


def begun_behind(leader: Log, directory: LogDirectory) -> Log:
    follower = directory.create(NAME, TIERED, now_ms=NOW_MS)
    leader.producers.take_snapshot(sync=True)
    snapshots = leader.producers.snapshots
    offset = leader.local_log_start_offset
    tiered_log.begin_behind_remote_part(
        follower,
        offset,
        log_start_offset=leader.log_start_offset,
        epochs=leader.epochs.entries,
        producer_snapshot=leader.files.disk.read(snapshots.path(offset)),
        now_ms=NOW_MS,
    )
    return follower


def test_a_follower_begins_behind_the_remote_part_with_epochs_and_producers() -> None:
    leader, disk = tiered(open_directory(MemoryDisk())), MemoryDisk()
    directory = open_directory(disk)
    follower = begun_behind(leader, directory)
    offset = leader.local_log_start_offset
    assert (follower.log_start_offset, follower.local_log_start_offset, follower.log_end_offset) == (0, offset, offset)
    assert follower.epochs.entries == [entry for entry in leader.epochs.entries if entry.start_offset < offset]
    assert not tiered_log.lacks_remote_history(follower)
    read = leader.read(offset, 100_000).records
    assert read is not None
    follower.append_as_follower(read.read(), now_ms=NOW_MS)
    follower.advance_high_watermark(30)
    again = follower.append_as_leader(batch("value 29", producer=(7, 0, 29)), leader_epoch=3, now_ms=NOW_MS)
    assert again.duplicate
    directory.close(broker_epoch=1)
    follower = open_directory(disk).logs[NAME]
    assert (follower.log_start_offset, follower.local_log_start_offset, follower.log_end_offset) == (0, offset, 30)


def test_a_producer_that_wrote_only_to_the_remote_part_is_known_to_a_follower() -> None:
    leader = tiered(open_directory(MemoryDisk()))
    follower = begun_behind(leader, open_directory(MemoryDisk()))
    last = leader.local_log_start_offset - 1
    follower.advance_high_watermark(follower.log_end_offset)
    again = follower.append_as_leader(batch("again", producer=(7, 0, last)), leader_epoch=3, now_ms=NOW_MS)
    assert again.duplicate and again.first_offset == last


def test_a_damaged_producer_snapshot_changes_nothing() -> None:
    log = filled(open_directory(MemoryDisk()))
    with pytest.raises(CorruptFile, match="producer snapshot of the object store"):
        tiered_log.begin_behind_remote_part(
            log, 40, log_start_offset=0, epochs=(), producer_snapshot=b"\x00\x01junk", now_ms=NOW_MS
        )
    assert log.log_end_offset == 30


def test_a_begin_that_a_crash_interrupted_is_noticed() -> None:
    log = open_directory(MemoryDisk()).create(NAME, TIERED, now_ms=NOW_MS)
    log.truncate_fully_and_start_at(40, now_ms=NOW_MS, log_start_offset=0)
    assert tiered_log.lacks_remote_history(log)


def test_a_log_moves_to_another_directory_with_both_starts() -> None:
    disk = MemoryDisk()
    source = open_directory(disk)
    target = LogDirectory.open(disk, "/other", lambda _: TIERED, now_ms=NOW_MS)
    current = tiered(source)
    future = FutureLog.begin(source, target, current, "f" * 32, start_offset=start_of(current), now_ms=NOW_MS)
    while (piece := future.next_copy_step()) is not None:
        future.take(piece, now_ms=NOW_MS)
    log = future.promote(now_ms=NOW_MS)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, current.local_log_start_offset)
    assert log.epochs.entries == current.epochs.entries
    assert values(log, log.local_log_start_offset) == values(current, current.local_log_start_offset)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("(end > tiered_end and end > log_start_offset) or not has_to_go(number)", "not has_to_go(number)",
     test_only_what_is_in_the_object_store_is_deleted),
    ("end > tiered_end and end > log_start_offset", "end > tiered_end + 1 and end > log_start_offset",
     test_only_what_is_in_the_object_store_is_deleted),
    ("range(len(gone), len(segments) - 1)", "range(len(gone), len(segments) - 2)",
     test_the_active_segment_is_never_deleted),
    ("may_roll and is_alone and now_ms - active.newest_ms > age_ms", "is_alone and now_ms - active.newest_ms > age_ms",
     test_the_active_segment_is_rolled_when_all_of_it_is_too_old),
    ("config.retention_bytes_on_disk", "config.retention_bytes", test_the_local_limits_count),
    ("config.retention_ms_on_disk", "config.retention_ms", test_the_local_limits_count),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(local_retention, right, wrong, rule)
