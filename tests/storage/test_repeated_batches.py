"""Five of five: whatever became of a log, its producers may repeat each of their last five batches (T1), and no sixth.

A client has up to five requests in flight, and a broker appends the later ones before it has answered the earlier. So
when the broker stops, a client may repeat all five.
"""

from collections.abc import Callable
from random import Random
from types import ModuleType

import pytest
from mutants.plant import planted, within
from support import log_fixtures
from support.log_fixtures import DIRECTORY, NOW_MS, SMALL, append, open_log, reopen

from trioka.protocol.errors import OutOfOrderSequenceNumber
from trioka.storage import index_rebuild, producer_state, recovery
from trioka.storage import log as log_module
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_move import FutureLog, start_of
from trioka.storage.producer_snapshot import ProducerSnapshot, SnapshotFiles
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.memory_disk import MemoryDisk

WIDE = LogConfig(segment_bytes=100_000, index_interval_bytes=200, file_delete_delay_ms=1000)
FIRST, SECOND = 1, 2
LAST_FIVE, SIXTH = range(3, 8), 2
Event = Callable[[Log], Log]


def write(log: Log, sequence: int, producer: int = FIRST) -> int:
    """Two records; the offset of the first, now or since its first try."""
    return append(log, f"{producer}.{sequence}", "more", producer=(producer, 0, 2 * sequence)).first_offset


def written(log: Log, *, before_roll: int = 8) -> dict[tuple[int, int], int]:
    """Eight batches of two producers, in turns; the active segment has those that come after so many."""
    offsets = {}
    for sequence in range(8):
        if sequence == before_roll:
            log.roll(now_ms=NOW_MS)
        for producer in (FIRST, SECOND):
            offsets[producer, sequence] = write(log, sequence, producer)
    log.advance_high_watermark(log.log_end_offset)
    return offsets


def assert_five_of_five(log: Log, offsets: dict[tuple[int, int], int]) -> None:
    end = log.log_end_offset
    for producer in (FIRST, SECOND):
        assert {sequence: write(log, sequence, producer) for sequence in LAST_FIVE} == {
            sequence: offsets[producer, sequence] for sequence in LAST_FIVE
        }
        with pytest.raises(OutOfOrderSequenceNumber):
            write(log, SIXTH, producer)
    assert log.log_end_offset == end
    assert write(log, 8) == end
    assert write(log, 4) == offsets[FIRST, 4]


def crash(log: Log, *, recovery_point: int) -> Log:
    """The process is killed: what it has written is there."""
    disk = log.files.disk
    log.close_handles()
    return open_log(disk, config=log.config, clean=False, recovery_point=recovery_point, log_start=log.log_start_offset)


def cut(log: Log) -> Log:
    """Another broker leads, without the last batch."""
    end = log.log_end_offset
    append(log, "not replicated", producer=(3, 0, 0))
    log.truncate_to(end, now_ms=NOW_MS)
    return log


def crash_after_a_sync(log: Log) -> Log:
    log.sync()
    return crash(log, recovery_point=log.recovery_point)


def stop_twice(log: Log) -> Log:
    return reopen(reopen(log))


def stop_and_cut(log: Log) -> Log:
    """The snapshot of the clean stop lies within the segment."""
    return cut(reopen(log))


EVENTS: dict[str, Event] = {
    "a clean stop": reopen,
    "two clean stops": stop_twice,
    "a crash that nothing was synced before": lambda log: crash(log, recovery_point=0),
    "a crash after a sync": crash_after_a_sync,
    "a truncation": cut,
    "a truncation after a clean stop": stop_and_cut,
}


@pytest.mark.parametrize("before_roll", [8, 6, 7], ids=["in one segment", "two after a roll", "one after a roll"])
@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_five_of_five_batches_are_known_after(event: Event, before_roll: int) -> None:
    log = open_log(config=WIDE)
    offsets = written(log, before_roll=before_roll)
    assert_five_of_five(event(log), offsets)


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_five_of_five_batches_are_known_at_a_roll_after(event: Event) -> None:
    log = open_log(config=WIDE)
    offsets = written(log)
    log.roll(now_ms=NOW_MS)
    assert_five_of_five(event(log), offsets)


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_five_of_five_batches_are_known_in_small_segments_after(event: Event) -> None:
    log = open_log(config=SMALL)
    offsets = written(log)
    assert len(log.segments) > 1
    assert_five_of_five(event(log), offsets)


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
@pytest.mark.parametrize("kept", [0, 1, 3])
def test_five_of_five_batches_are_known_though_their_records_are_deleted_after(event: Event, kept: int) -> None:
    """As the applications of Kafka Streams do it, all the time."""
    log = open_log(config=WIDE)
    offsets = written(log)
    log.delete_records_before(log.log_end_offset - kept)
    assert_five_of_five(event(log), offsets)


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
@pytest.mark.parametrize("before_roll", [8, 6])
def test_five_of_five_batches_are_known_though_retention_took_their_segments_after(
    event: Event, before_roll: int
) -> None:
    log = open_log(config=WIDE)
    offsets = written(log, before_roll=before_roll)
    old = log.segments[:1] if before_roll == 6 else list(log.segments)
    log.delete_segments(old, now_ms=NOW_MS)
    assert log.log_start_offset == (offsets[FIRST, 6] if before_roll == 6 else log.log_end_offset)
    assert_five_of_five(event(log), offsets)


@pytest.mark.parametrize("model", CrashModel)
def test_five_of_five_batches_are_known_after_the_power_was_lost(model: CrashModel) -> None:
    """What was synced is there, and perhaps a snapshot that was not."""
    for seed in range(20):
        disk = MemoryDisk()
        log = open_log(disk, config=WIDE)
        offsets = written(log, before_roll=6)
        log.sync()
        again = open_log(disk.crash(model, Random(seed)), config=WIDE, clean=False, recovery_point=log.recovery_point)
        assert_five_of_five(again, offsets)


@pytest.mark.parametrize("model", CrashModel)
def test_five_of_five_batches_are_known_after_retention_and_a_loss_of_power(model: CrashModel) -> None:
    """Nothing but the snapshot knows of them, which the roll did not sync."""
    for seed in range(20):
        disk = MemoryDisk()
        log = open_log(disk, config=WIDE)
        offsets = written(log)
        log.sync()
        log.delete_segments(list(log.segments), now_ms=NOW_MS)
        end = log.log_end_offset
        again = open_log(disk.crash(model, Random(seed)), config=WIDE, clean=False, recovery_point=end, log_start=end)
        assert_five_of_five(again, offsets)


def test_an_expired_producer_does_not_come_back_with_its_batches() -> None:
    log = open_log(config=WIDE)
    written(log)
    log.close()
    later = NOW_MS + index_rebuild.PRODUCER_EXPIRATION_MS + 1
    again = open_log(log.files.disk, config=WIDE, recovery_point=log.recovery_point, now_ms=later)
    assert not again.producers.producers


def test_a_producer_that_must_restart_does_not_repeat_its_records() -> None:
    """Its window has only batches of its epoch."""
    log = open_log(config=WIDE)
    written(log)
    append(log, "anew", producer=(FIRST, 1, 0))
    again = reopen(log)
    assert [len(again.producers.producers[producer].window) for producer in (FIRST, SECOND)] == [1, 5]


# A snapshot of Kafka's, which names one batch of each producer ------------------------------------------------------


def without_our_part(log: Log) -> None:
    snapshots = SnapshotFiles.scan(log.files.disk, DIRECTORY)
    for offset in snapshots.offsets:
        snapshots.write(offset, ProducerSnapshot(snapshots.read(offset).entries), sync=True)


def as_kafka_stops(log: Log) -> Log:
    log.close()
    without_our_part(log)
    return open_log(
        log.files.disk, config=log.config, recovery_point=log.recovery_point, log_start=log.log_start_offset
    )


def as_kafka_crashes(log: Log) -> Log:
    log.sync()
    without_our_part(log)
    return crash(log, recovery_point=log.recovery_point)


@pytest.mark.parametrize("event", [as_kafka_stops, as_kafka_crashes])
@pytest.mark.parametrize("before_roll", [8, 6])
@pytest.mark.parametrize("config", [WIDE, SMALL])
def test_what_a_snapshot_of_kafkas_does_not_name_is_found_in_the_log(
    event: Event, before_roll: int, config: LogConfig
) -> None:
    log = open_log(config=config)
    offsets = written(log, before_roll=before_roll)
    assert_five_of_five(event(log), offsets)


def test_only_the_last_part_of_the_log_is_read_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_rebuild, "RECENT_BATCHES_BYTES", 300)
    log = open_log(config=WIDE)
    offsets = written(log)
    again = as_kafka_stops(log)
    known = len(again.producers.producers[FIRST].window)
    assert 1 < known < 5
    assert write(again, 8 - known) == offsets[FIRST, 8 - known]
    with pytest.raises(OutOfOrderSequenceNumber):
        write(again, 8 - known - 1)


def test_nothing_is_read_where_too_much_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_rebuild, "MAX_RECENT_BATCHES_BYTES", 100)
    log = open_log(config=WIDE)
    offsets = written(log)
    again = as_kafka_stops(log)
    assert write(again, 7) == offsets[FIRST, 7]
    with pytest.raises(OutOfOrderSequenceNumber):
        write(again, 6)


def test_damage_in_that_part_of_the_log_stops_no_start() -> None:
    log = open_log(config=WIDE)
    offsets = written(log)
    log.close()
    without_our_part(log)
    disk = log.files.disk
    assert isinstance(disk, MemoryDisk)
    place = next(place for place in log.segments.active.places() if place.base_offset == offsets[FIRST, 4])
    disk.flip_bit(log.segments.active.log_path, place.position + 70, 3)
    again = open_log(disk, config=WIDE, recovery_point=log.recovery_point)
    assert write(again, 7) == offsets[FIRST, 7]


def test_of_a_snapshot_of_ours_nothing_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(config=WIDE)
    offsets = written(log)
    monkeypatch.setattr(index_rebuild, "_last_places", lambda segments, upto: pytest.fail("the log was read"))
    assert_five_of_five(reopen(log), offsets)


def test_a_clean_stop_leaves_a_snapshot_though_all_records_are_deleted() -> None:
    """Or the next start would have to read the segment."""
    log = open_log(config=WIDE)
    written(log)
    log.delete_records_before(log.log_end_offset)
    log.close()
    assert SnapshotFiles.scan(log.files.disk, DIRECTORY).latest == log.log_end_offset


# Moved to another directory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deleted", [False, True])
def test_five_of_five_batches_are_known_after_a_move_to_another_directory(deleted: bool) -> None:
    disk, name = MemoryDisk(), TopicPartition("orders", 0)
    source, target = (
        LogDirectory.open(disk, path, lambda name: WIDE, now_ms=NOW_MS, threads=1) for path in ("/a", "/b")
    )
    log = source.create(name, WIDE, now_ms=NOW_MS)
    offsets = written(log)
    if deleted:
        log.delete_records_before(log.log_end_offset)
    future = FutureLog.begin(source, target, log, "c" * 32, start_offset=start_of(log), now_ms=NOW_MS)
    while (piece := future.next_copy_step()) is not None:
        future.take(piece, now_ms=NOW_MS)
    future.settle()
    moved = future.promote(now_ms=NOW_MS)
    future.settle()
    future.retire("d" * 32, now_ms=NOW_MS)
    assert_five_of_five(moved, offsets)
    target.close(broker_epoch=1)
    target = LogDirectory.open(disk, "/b", lambda name: WIDE, now_ms=NOW_MS, threads=1)
    assert write(target.logs[name], 8) == offsets[SECOND, 7] + 2


# Mistakes ------------------------------------------------------------------------------------------------------------


def after_a_clean_stop() -> None:
    test_five_of_five_batches_are_known_after(reopen, 8)


def without_reading_the_log() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_of_a_snapshot_of_ours_nothing_is_read_again(patch)


def after_kafka_has_stopped() -> None:
    test_what_a_snapshot_of_kafkas_does_not_name_is_found_in_the_log(as_kafka_stops, 8, WIDE)


def after_deletion_and_a_truncation() -> None:
    test_five_of_five_batches_are_known_though_their_records_are_deleted_after(cut, 1)


def after_deletion_and_a_move() -> None:
    test_five_of_five_batches_are_known_after_a_move_to_another_directory(True)


def after_retention_and_a_loss_of_power() -> None:
    test_five_of_five_batches_are_known_after_retention_and_a_loss_of_power(CrashModel.ANY_SUBSET)


MISTAKES: list[tuple[ModuleType, str, ModuleType, str, str, Callable[[], None]]] = [
    (producer_state, "ProducerState", recovery, "window[-WINDOW_BATCHES:]", "window[-1:]", after_a_clean_stop),
    (producer_state, "ProducerState", recovery, "batches if entries else None", "None", without_reading_the_log),
    (producer_state, "ProducerState", recovery, "elif self._producers:\n"
     "    self._snapshot_offset = NO_OFFSET  # no file knows of them, though no record may be " "left\n" "else:\n"
     "    self._snapshot_offset = log_start", "elif self._producers:\n"
     "    self._snapshot_offset = log_start  # no file knows of them, though no record may be " "left\n" "else:\n"
     "    self._snapshot_offset = log_start",
     test_a_clean_stop_leaves_a_snapshot_though_all_records_are_deleted),
    (producer_state, "ProducerState", recovery,
     "if (last.last_sequence, last.last_offset) == (found.last_sequence, found.last_offset):", "if True:",
     test_damage_in_that_part_of_the_log_stops_no_start),
    (recovery, "load", log_module, "        restore_recent_batches(self.producers, self.segments)\n", "",
     after_kafka_has_stopped),
    (log_module, "Log", log_fixtures, within("Log.replay_producers_from", "self.segments[0].base_offset"),
     "self.log_start_offset", after_deletion_and_a_truncation),
    (log_module, "Log", log_fixtures, "        self.producers.snapshots.settle(start)\n", "",
     after_retention_and_a_loss_of_power),
    (producer_state, "ProducerState", recovery,
     "self._producers, self._open, self._completed = other._producers, other._open, other._completed", "pass",
     after_deletion_and_a_move),
]  # fmt: skip


@pytest.mark.parametrize(("module", "what", "user", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    what: str,
    user: ModuleType,
    right: str,
    wrong: str,
    rule: Callable[[], None],
) -> None:
    rule()
    monkeypatch.setattr(user, what, getattr(planted(module, right, wrong), what))
    with pytest.raises((Exception, pytest.fail.Exception)):
        rule()
