"""A log's rules, one by one. (`test_log_walk.py` puts them together, `test_log_crashes.py` takes the power away.)"""

from collections.abc import Callable
from random import Random

import pytest
from support.log_fixtures import DIRECTORY, NAME, NOW_MS, SMALL, append, batch, open_log, read_all, reopen, values

from trioka.protocol.batch import build_marker, headers
from trioka.protocol.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    KafkaStorageError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
)
from trioka.protocol.record import EndTxnMarker
from trioka.storage.append_validation import AppendOrigin, UnexpectedAppendOffset
from trioka.storage.failstop_disk import FailStopDisk
from trioka.storage.file_pool import FilePool
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.recovery import ShutdownState
from trioka.testing.disks.disk_faults import ALWAYS, DiskOperation, Effect, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk


def finish(log: Log, producer: int, *, commit: bool, epoch: int = 0, coordinator: int = 0) -> int:
    """The coordinator's marker; its offset."""
    marker = build_marker(
        EndTxnMarker(commit, coordinator),
        offset=0,
        timestamp=NOW_MS,
        leader_epoch=0,
        producer_id=producer,
        producer_epoch=epoch,
    )
    answer = log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    return answer.first_offset


def writes(log: Log) -> list[str]:
    disk = log.files.disk
    assert isinstance(disk, MemoryDisk)
    return [operation.path for operation in disk.operations if operation.kind is Kind.WRITE]


# Appending -----------------------------------------------------------------------------------------------------------


def test_a_batch_gets_the_next_offsets_and_the_epoch_in_place() -> None:
    log = open_log()
    append(log, "a", "b")
    data = batch("c", "d", "e")
    answer = log.append_as_leader(memoryview(data), leader_epoch=3, now_ms=NOW_MS)
    assert answer == (2, 4, -1, 0, False)
    header = next(iter(headers(data)))
    assert (header.base_offset, header.leader_epoch) == (2, 3)
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3, 4]


def test_an_append_is_one_write() -> None:
    log = open_log()
    append(log, "a")
    before = len(writes(log))
    append(log, "b")
    assert len(writes(log)) == before + 1
    log.append_as_follower(batch("c", base_offset=2) + batch("d", base_offset=3), now_ms=NOW_MS)
    assert len(writes(log)) == before + 2


def test_log_append_time_is_returned_to_the_client() -> None:
    log = open_log(config=LogConfig(message_timestamp_type="LogAppendTime"))
    assert append(log, "a", timestamp=5).log_append_time_ms == NOW_MS
    assert [record.timestamp for record in read_all(log)] == [NOW_MS]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    with pytest.raises(RecordListTooLarge):
        append(open_log(), "x" * 2000)


def test_a_leader_of_an_older_epoch_is_fenced() -> None:
    log = open_log()
    append(log, "a", epoch=5)
    with pytest.raises(FencedLeaderEpoch):
        append(log, "b", epoch=4)
    assert values(log) == ["a"]


def test_a_new_leader_notes_its_epoch_before_it_writes() -> None:
    log = open_log()
    append(log, "a", epoch=1)
    log.begin_epoch(4)
    assert log.end_offset_for_epoch(1) == (1, 1)
    assert log.end_offset_for_epoch(3) == (1, 1)
    assert log.end_offset_for_epoch(4) == (4, 1)
    append(log, "b", epoch=4)
    assert reopen(log).end_offset_for_epoch(4) == (4, 2)


def test_a_failed_write_changes_nothing_that_is_known_and_ends_the_volume() -> None:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    volume = FailStopDisk(disk, "/logs")
    log = open_log(files=FilePool(volume))
    append(log, "a", producer=(7, 0, 0))
    disk.faults.add(Fault(kinds=frozenset({Kind.WRITE}), effect=Effect.HALF))
    with pytest.raises(KafkaStorageError):
        append(log, "b", producer=(7, 0, 1))
    assert log.log_end_offset == log.producers.end_offset == 1
    assert log.producers.producers[7].last_sequence == 0
    disk.faults.clear()
    with pytest.raises(KafkaStorageError):
        append(log, "c", producer=(7, 0, 1))
    assert volume.failure is not None
    found = open_log(MemoryDisk(disk.files()), clean=False)
    assert values(found) == ["a"], "the half batch is cut off by the next start"


def test_a_batch_behind_one_that_a_failed_disk_refused_is_not_called_out_of_order() -> None:
    """A client with several batches in flight would begin a new epoch, and write some of them twice."""
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    log = open_log(files=FilePool(FailStopDisk(disk, "/logs")))
    append(log, "a", producer=(7, 0, 0))
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, "c", producer=(7, 0, 2))
    disk.faults.add(Fault(kinds=frozenset({Kind.WRITE}), effect=Effect.HALF))
    for sequence in (1, 2, 3):
        with pytest.raises(KafkaStorageError):
            append(log, "b", producer=(7, 0, sequence))


def test_a_segment_whose_first_batch_is_damaged_takes_records() -> None:
    """Damage that is not known yet: rolling by time reads the timestamp of the first batch."""
    log = open_log()
    append(log, "a")
    again = reopen(log)
    file = again.files.get(again.segments.active.log_path)
    file.write(16, b"\x0a")  # the magic
    assert append(again, "b").first_offset == 1
    assert again.append_as_follower(batch("c", base_offset=2, leader_epoch=0), now_ms=NOW_MS).last_offset == 2


def test_a_closed_log_takes_nothing() -> None:
    log = open_log()
    log.close()
    log.close()
    with pytest.raises(KafkaStorageError):
        append(log, "a")


# Rolling -------------------------------------------------------------------------------------------------------------


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_is_rolled_before_it_gets_too_large() -> None:
    log = open_log()
    for _ in range(30):
        append(log, "x" * 30)
    assert len(log.segments) > 2
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert len(values(log)) == 30


def test_a_segment_is_rolled_by_the_time_between_its_records() -> None:
    log = open_log(config=LogConfig(segment_ms=100))
    append(log, "a", timestamp=NOW_MS)
    append(log, "b", timestamp=NOW_MS + 100)
    assert bases(log) == [0]
    append(log, "c", timestamp=NOW_MS + 101)
    assert bases(log) == [0, 2]
    append(reopen(log), "d", timestamp=NOW_MS + 200)


def test_a_segment_without_timestamps_is_rolled_by_the_clock() -> None:
    log = open_log(config=LogConfig(segment_ms=100))
    for now, expected in ((NOW_MS, [0]), (NOW_MS + 100, [0]), (NOW_MS + 101, [0, 2])):
        log.append_as_leader(batch("a", timestamp=-1), leader_epoch=0, now_ms=now)
        assert bases(log) == expected


def test_jitter_spreads_the_rolls() -> None:
    stopped = ShutdownState(clean=True)
    config = LogConfig(segment_ms=1000, segment_jitter_ms=900)
    rolled = set()
    for seed in range(20):
        disk = MemoryDisk()
        disk.make_directory(DIRECTORY)
        log = Log.open(FilePool(disk), DIRECTORY, NAME, config, stopped, now_ms=NOW_MS, random=Random(seed))
        append(log, "a")
        rolled.add(log.roll(now_ms=NOW_MS).jitter_ms)
    assert len(rolled) > 10
    assert max(rolled) < 900


def test_a_segment_is_rolled_when_an_index_is_full() -> None:
    log = open_log(config=LogConfig(index_interval_bytes=0, segment_index_bytes=12 * 5))
    for _ in range(20):
        append(log, "a")
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        assert len(segment.index.entries) * 8 <= 60
        assert len(segment.time_index.entries) * 12 <= 60


def test_a_segment_is_rolled_when_an_offset_is_too_far_from_its_base() -> None:
    log = open_log()
    append(log, "a")
    log.append_as_follower(batch("b", base_offset=2**31 - 1), now_ms=NOW_MS)
    assert bases(log) == [0]
    log.append_as_follower(batch("c", base_offset=2**31), now_ms=NOW_MS)
    assert bases(log) == [0, 2**31]
    log.append_as_follower(batch("d", base_offset=2**40), now_ms=NOW_MS)
    assert [record.offset for record in read_all(log)] == [0, 2**31 - 1, 2**31, 2**40]
    assert values(reopen(log)) == ["a", "b", "c", "d"]


def test_an_empty_segment_is_not_rolled_twice() -> None:
    log = open_log()
    append(log, "a")
    log.roll(now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    assert bases(log) == [0, 1]


# Following -----------------------------------------------------------------------------------------------------------


def test_a_follower_keeps_offsets_and_epochs() -> None:
    leader, follower = open_log(), open_log()
    for number in range(30):
        append(leader, f"{number}", epoch=number // 10)
    while follower.log_end_offset < leader.log_end_offset:
        answer = leader.read(follower.log_end_offset, 500)
        assert answer.records is not None
        follower.append_as_follower(answer.records.read(), now_ms=NOW_MS)
    assert values(follower) == values(leader)
    assert follower.epochs.entries == leader.epochs.entries
    with pytest.raises(UnexpectedAppendOffset):
        follower.append_as_follower(batch("again", base_offset=29), now_ms=NOW_MS)


def test_nothing_of_a_fetch_is_appended_if_a_batch_of_it_is_bad() -> None:
    log = open_log()
    bad = batch("b", base_offset=1)
    bad[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_follower(batch("a") + bad, now_ms=NOW_MS)
    assert log.log_end_offset == 0
    assert log.append_as_follower(b"", now_ms=NOW_MS).last_offset == -1


# Producers -----------------------------------------------------------------------------------------------------------


def test_a_retry_is_answered_with_the_first_offsets_and_not_written() -> None:
    log = open_log()
    first = append(log, "a", "b", producer=(7, 0, 0))
    append(log, "c", producer=(7, 0, 2))
    again = append(log, "a", "b", producer=(7, 0, 0))
    assert again == (first.first_offset, first.last_offset, NOW_MS + 1, 0, True)
    assert values(log) == ["a", "b", "c"]
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, "d", producer=(7, 0, 9))
    append(log, "d", producer=(7, 2, 0))
    with pytest.raises(InvalidProducerEpoch):
        append(log, "e", producer=(7, 1, 1))


def test_producers_survive_restarts_of_every_kind_and_truncation() -> None:
    log = open_log()
    for number in range(20):
        append(log, "x" * 40, producer=(7, 0, number))
    assert len(log.segments) > 2
    log = reopen(log)
    assert append(log, "x" * 40, producer=(7, 0, 19)).duplicate
    append(log, "y", producer=(7, 0, 20))
    log.sync()
    log = open_log(log.files.disk, clean=False, recovery_point=log.recovery_point)
    assert append(log, "y", producer=(7, 0, 20)).duplicate
    log.truncate_to(15, now_ms=NOW_MS)
    assert not append(log, "z", producer=(7, 0, 15), epoch=1).duplicate


def test_a_transaction_holds_the_last_stable_offset_until_its_end_is_replicated() -> None:
    log = open_log()
    append(log, "a")
    append(log, "b", producer=(7, 0, 0), transactional=True)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == log.producers.first_unstable_offset == 1
    finish(log, 7, commit=True)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3
    assert log.aborted_transactions(0, 3) == []


@pytest.mark.parametrize("event", [lambda log: log, reopen], ids=["at once", "after a new start"])
def test_the_last_stable_offset_is_not_below_the_start_of_the_log(event: Callable[[Log], Log]) -> None:
    log = open_log()
    append(log, "a", producer=(7, 0, 0), transactional=True)
    for text in "bcd":
        append(log, text)
    log.advance_high_watermark(4)
    log.delete_records_before(2)
    log = event(log)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == log.log_start_offset == 2
    finish(log, 7, commit=False)
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 5


def test_aborted_transactions_are_reported_over_segments_and_restarts() -> None:
    log = open_log()
    append(log, "a" * 400, producer=(7, 0, 0), transactional=True)
    append(log, "b" * 400, producer=(8, 0, 0), transactional=True)
    append(log, "c" * 400, producer=(7, 0, 1), transactional=True)
    last = finish(log, 7, commit=False)
    finish(log, 8, commit=True)
    assert len(log.segments) > 1
    for each in (log, reopen(log)):
        found = each.aborted_transactions(0, each.log_end_offset)
        assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found] == [(7, 0, last)]
    crashed = open_log(log.files.disk, clean=False)
    assert len(crashed.aborted_transactions(0, crashed.log_end_offset)) == 1


# Shrinking -----------------------------------------------------------------------------------------------------------


def test_truncation_takes_records_epochs_and_the_high_watermark_with_it() -> None:
    log = open_log()
    for number in range(10):
        append(log, f"{number}", epoch=number // 4)
    log.advance_high_watermark(10)
    log.truncate_to(5, now_ms=NOW_MS)
    assert values(log) == ["0", "1", "2", "3", "4"]
    assert log.high_watermark == 5
    assert log.epochs.latest_epoch == 1
    log.truncate_to(9, now_ms=NOW_MS)
    assert log.log_end_offset == 5
    append(log, "new", epoch=7)
    assert values(reopen(log))[-1] == "new"


def test_truncation_at_the_end_takes_an_epoch_that_wrote_nothing() -> None:
    """A leader that was succeeded before its first record follows now, and its own epoch is none that others know."""
    log = open_log()
    append(log, "a", "b", "c", epoch=2)
    log.begin_epoch(3)
    assert log.epochs.latest_epoch == 3
    log.truncate_to(log.log_end_offset, now_ms=NOW_MS)
    assert (log.epochs.latest_epoch, log.log_end_offset) == (2, 3)


def test_truncation_within_a_batch_takes_all_of_it() -> None:
    log = open_log()
    append(log, "a")
    append(log, "b", "c", "d")
    log.truncate_to(2, now_ms=NOW_MS)
    assert log.log_end_offset == 1


def test_truncation_below_the_first_segment_restarts() -> None:
    log = open_log()
    log.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    append(log, "a", epoch=2)
    log.truncate_to(20, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (20, 20, 20)
    append(log, "b", epoch=3)
    assert [record.offset for record in read_all(reopen(log))] == [20]


def test_deleted_segments_are_renamed_at_once_and_removed_later() -> None:
    log = open_log()
    for _ in range(30):
        append(log, "x" * 30)
    log.advance_high_watermark(30)
    range_before = log.read(0, 100).records
    gone = log.segments[:2]
    log.delete_segments(gone, now_ms=NOW_MS)
    assert log.log_start_offset == log.segments[0].base_offset > 0
    names = log.files.disk.list(DIRECTORY)
    assert sum(name.endswith(".log.deleted") for name in names) == 2
    assert log.sweep(NOW_MS + 999) == 0
    assert log.sweep(NOW_MS + 1000) == sum(segment.size for segment in gone)
    assert not any("deleted" in name for name in log.files.disk.list(DIRECTORY))
    assert range_before is not None
    assert len(range_before.read()) == len(range_before), "who reads it, has it"
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)


def test_nothing_is_deleted_beyond_the_high_watermark() -> None:
    log = open_log()
    append(log, "a")
    append(log, "b")
    log.advance_high_watermark(1)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(2)
    log.delete_records_before(1)
    assert values(log) == ["b"]
    assert log.log_start_offset == 1


def test_the_high_watermark_moves_forward_and_within_the_log() -> None:
    log = open_log()
    append(log, "a")
    assert log.advance_high_watermark(5)
    assert log.high_watermark == 1
    assert not log.advance_high_watermark(0)


# Files ---------------------------------------------------------------------------------------------------------------


def test_the_recovery_point_moves_with_the_sync_and_not_before() -> None:
    log = open_log()
    append(log, "a")
    assert log.recovery_point == 0
    log.sync()
    assert log.recovery_point == 1


def test_a_failed_sync_moves_nothing() -> None:
    log = open_log()
    append(log, "a")
    log.files.disk.faults.add(Fault(kinds=frozenset({Kind.SYNC}), effect=Effect.DROPS, times=ALWAYS))  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="error"):
        log.sync()
    assert log.recovery_point == 0


def test_a_sync_that_a_truncation_overtook_moves_nothing() -> None:
    log = open_log()
    append(log, "a")
    append(log, "b")
    disk = log.files.disk
    assert isinstance(disk, MemoryDisk)

    def cut_meanwhile(operation: DiskOperation) -> None:
        if operation.kind is Kind.SYNC:
            disk.before = None
            log.truncate_to(1, now_ms=NOW_MS)
            append(log, "c", epoch=1)

    disk.before = cut_meanwhile
    log.sync()
    assert log.recovery_point <= 1
    assert values(log) == ["a", "c"]


def test_a_log_that_was_opened_and_not_used_holds_no_file() -> None:
    log = reopen(open_log())
    assert len(log.files) == 0
    append(log, "a")
    assert len(log.files) == 1


def test_kafkas_files_are_there_after_a_clean_stop() -> None:
    log = open_log()
    for _ in range(20):
        append(log, "x" * 30, producer=(-1, -1, -1))
    log.close()
    names = log.files.disk.list(DIRECTORY)
    for segment in log.segments:
        base = f"{segment.base_offset:020d}"
        assert {f"{base}.log", f"{base}.index", f"{base}.timeindex"} <= set(names)
    assert f"{log.log_end_offset:020d}.snapshot" in names
    assert "leader-epoch-checkpoint" in names


def test_kafkas_files_are_there_for_a_log_without_records() -> None:
    """Where the index is missing, a start of Kafka's logs an error for each such partition."""
    expected = {f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"}
    log = open_log()
    disk = log.files.disk
    assert set(disk.list(DIRECTORY)) == expected
    for name in (f"{0:020d}.index", f"{0:020d}.timeindex"):  # as earlier versions left it
        disk.remove(f"{DIRECTORY}/{name}")
    log = reopen(log)
    assert set(disk.list(DIRECTORY)) == expected
    for text in "abc":
        append(log, text)
    log.roll(now_ms=NOW_MS)
    assert {f"{3:020d}.log", f"{3:020d}.index", f"{3:020d}.timeindex"} <= set(disk.list(DIRECTORY))


def test_a_config_may_change_while_the_log_is_used() -> None:
    log = open_log()
    append(log, "x" * 100)
    log.config = LogConfig(segment_bytes=300)
    append(log, "x" * 100)
    assert bases(log) == [0, 1]
