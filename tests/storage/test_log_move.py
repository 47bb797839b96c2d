"""A log that moves to another directory: what the copy holds, and every crash on the way."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from support.crash_enumeration import CrashFound, Promise, Protocol, crash_everywhere, fail_each_operation
from support.log_fixtures import NOW_MS, append, batch, values

from trioka.protocol.errors import KafkaStorageError, OutOfOrderSequenceNumber
from trioka.storage import retention
from trioka.storage.checkpoint import read_offsets
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_end import LogEnd
from trioka.storage.log_move import CopyStep, FutureLog, longer_copy, start_of
from trioka.storage.segments import Segments
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.memory_disk import MemoryDisk

PENDING = int(os.environ.get("TRIOKA_CRASH_PENDING", "12"))
NAME = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=0)
COPY, GONE = "c" * 32, "d" * 32


def open_directory(disk: MemoryDisk, path: str) -> LogDirectory:
    return LogDirectory.open(disk, path, lambda name: CONFIG, now_ms=NOW_MS, threads=1)


def two_directories(disk: MemoryDisk, *records: str) -> tuple[LogDirectory, LogDirectory]:
    source, target = open_directory(disk, "/a"), open_directory(disk, "/b")
    log = source.create(NAME, CONFIG, now_ms=NOW_MS, topic_id=TOPIC_ID)
    for record in records:
        append(log, record)
    log.advance_high_watermark(log.log_end_offset)
    return source, target


def begin(source: LogDirectory, target: LogDirectory) -> FutureLog:
    log = source.logs[NAME]
    return FutureLog.begin(source, target, log, COPY, start_offset=start_of(log), now_ms=NOW_MS)


def copy(future: FutureLog, max_bytes: int = 300) -> list[CopyStep]:
    """Until nothing is missing. What was done, on the way."""
    done: list[CopyStep] = []
    while (piece := future.next_copy_step(max_bytes)) is not None:
        future.take(piece, now_ms=NOW_MS)
        done.append(piece.step)
        assert len(done) < 100
    return done


def move(future: FutureLog) -> Log:
    future.settle()
    assert future.is_nearly_caught_up
    log = future.promote(now_ms=NOW_MS)
    future.settle()
    future.retire(GONE, now_ms=NOW_MS)
    return log


TEXTS = [f"record {number}" for number in range(30)]


def test_the_copy_takes_the_place_of_the_log() -> None:
    disk = MemoryDisk()
    source, target = two_directories(disk, *TEXTS)
    before = source.logs[NAME]
    before.delete_records_before(3)
    reading = before.read(3, 1000).records
    future = begin(source, target)
    assert disk.exists(f"/b/orders-0.{COPY}-future/partition.metadata")
    copy(future)
    log = move(future)
    assert values(log) == TEXTS[3:]
    assert (log.log_start_offset, log.high_watermark) == (3, 30)
    assert (source.logs, source.replaced, target.futures) == ({}, {}, {})
    assert target.logs == {NAME: log}
    assert target.topic_ids == {NAME: TOPIC_ID}
    assert disk.list("/a/orders-0." + GONE + "-delete")
    assert reading is not None and len(reading.read()) == len(reading), "who reads the former log, reads on"
    append(log, "one more")
    source.sweep(NOW_MS)
    source.close(broker_epoch=1)
    target.close(broker_epoch=1)
    again = open_directory(disk, "/b")
    assert values(again.logs[NAME]) == [*TEXTS[3:], "one more"]
    assert again.report.clean and again.topic_ids == {NAME: TOPIC_ID}
    assert open_directory(disk, "/a").logs == {}


def test_a_flush_of_a_log_that_was_replaced_has_nothing_to_do() -> None:
    """A producer may have written to it before, and ask afterwards."""
    source, target = two_directories(MemoryDisk(), *TEXTS)
    current, future = source.logs[NAME], begin(source, target)
    copy(future)
    append(current, "one more")
    move(future)
    current.sync()


def test_what_is_written_meanwhile_is_copied_too() -> None:
    source, target = two_directories(MemoryDisk(), *TEXTS[:10])
    current = source.logs[NAME]
    future = begin(source, target)
    for text in TEXTS[10:20]:
        piece = future.next_copy_step(200)
        append(current, text)
        assert piece is not None
        future.take(piece, now_ms=NOW_MS)
    assert future.lag > 0
    copy(future)
    future.settle()
    for text in TEXTS[20:22]:
        append(current, text)
    assert future.is_nearly_caught_up and future.lag == 2
    assert values(future.promote(now_ms=NOW_MS)) == TEXTS[:22]


def test_a_producer_s_numbers_go_on_in_the_copy() -> None:
    source, target = two_directories(MemoryDisk())
    current = source.logs[NAME]
    for sequence in range(3):
        append(current, "x", producer=(7, 0, sequence))
    future = begin(source, target)
    copy(future)
    log = move(future)
    again = append(log, "x", producer=(7, 0, 2))
    assert again.duplicate and again.first_offset == 2
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, "x", producer=(7, 0, 9))
    assert not append(log, "x", producer=(7, 0, 3)).duplicate


def test_an_epoch_that_has_no_record_yet_is_known_in_the_copy() -> None:
    source, target = two_directories(MemoryDisk(), "one")
    future = begin(source, target)
    copy(future)
    source.logs[NAME].begin_epoch(4)
    assert not future.is_nearly_caught_up
    assert copy(future) == [CopyStep.BEGIN_EPOCH]
    log = move(future)
    assert log.end_offset_for_epoch(4) == (4, 1)
    assert log.end_offset_for_epoch(0) == (0, 1)


def test_retention_may_overtake_the_copy() -> None:
    source, target = two_directories(MemoryDisk(), *TEXTS)
    current = source.logs[NAME]
    future = begin(source, target)
    current.delete_records_before(25)
    retention.enforce(current, now_ms=NOW_MS)
    done = copy(future)
    assert done[0] is CopyStep.RESTART and done.count(CopyStep.RESTART) == 1
    assert values(move(future)) == TEXTS[25:]


def test_a_log_that_is_cut_is_copied_again() -> None:
    source, target = two_directories(MemoryDisk(), *TEXTS)
    current = source.logs[NAME]
    future = begin(source, target)
    copy(future)
    current.truncate_to(20, now_ms=NOW_MS)
    for text in ("a", "b"):
        append(current, text, epoch=2)
    assert CopyStep.RESTART in copy(future)
    for text in TEXTS:  # longer than the copy, so that only the epochs tell
        append(current, text, epoch=2)
    copy(future)
    current.truncate_to(21, now_ms=NOW_MS)
    for text in TEXTS:
        append(current, text, epoch=3)
    assert current.log_end_offset >= future.log.log_end_offset - 1
    assert CopyStep.RESTART in copy(future)
    assert values(move(future)) == [*TEXTS[:20], "a", *TEXTS]


def test_a_log_that_ends_behind_its_last_record_keeps_its_end() -> None:
    source, target = two_directories(MemoryDisk())
    current = source.logs[NAME]
    current.append_as_follower(batch("one", base_offset=0, leader_epoch=0), now_ms=NOW_MS)
    future = begin(source, target)
    assert copy(future) == [CopyStep.APPEND]
    current.append_as_follower(batch("two", base_offset=10, leader_epoch=0), now_ms=NOW_MS)
    current.segments.active.truncate_to(1, current.segments[0].size // 2)  # as a compaction may do it
    assert copy(future) == [CopyStep.SKIP]
    log = move(future)
    assert log.log_end_offset == 11
    assert append(log, "three").first_offset == 11


def test_a_copy_that_is_dropped_leaves_nothing() -> None:
    disk = MemoryDisk()
    source, target = two_directories(disk, *TEXTS)
    future = begin(source, target)
    copy(future)
    future.settle()
    assert read_offsets(disk, "/b/recovery-point-offset-checkpoint") == {NAME: 30}
    future.drop()
    assert read_offsets(disk, "/b/recovery-point-offset-checkpoint") == {}, "or a new one would be missed records"
    assert [name for name in disk.list("/b") if name.startswith("orders")] == []
    copy(begin(source, target))


def test_a_copy_that_was_not_finished_is_named_by_the_next_start_and_can_go() -> None:
    disk = MemoryDisk()
    source, target = two_directories(disk, *TEXTS)
    copy(begin(source, target))
    source.close(broker_epoch=1)
    target.close(broker_epoch=1)
    again = open_directory(disk, "/b")
    assert again.logs == {}
    assert again.report.unfinished == [f"orders-0.{COPY}-future"]
    again.drop_unfinished(f"orders-0.{COPY}-future")
    assert read_offsets(disk, "/b/recovery-point-offset-checkpoint") == {}
    assert again.report.unfinished == []


def test_of_two_logs_the_longer_stays_and_starts_where_the_later_starts() -> None:
    disk = MemoryDisk()
    source, target = two_directories(disk, *TEXTS)
    other = target.create(NAME, CONFIG, now_ms=NOW_MS)
    for text in [*TEXTS, "more"]:
        append(other, text)
    source.logs[NAME].delete_records_before(5)
    assert longer_copy([source, target], NAME) is target
    assert other.log_start_offset == 5
    source.logs[NAME].append_as_leader(batch("x"), leader_epoch=1, now_ms=NOW_MS)
    assert longer_copy([source, target], NAME) is source, "the later epoch counts more"


# Crashes -------------------------------------------------------------------------------------------------------------


class AllowedContents(NamedTuple):
    """At least so many of these records must be there, and no others."""

    history: tuple[str, ...]
    least: int


HISTORY = ("a1", "a2", "b1", "b2", "b3", "b4")


def prepared(disk: MemoryDisk) -> None:
    disk.make_directory("/a")
    disk.make_directory("/b")
    source, target = two_directories(disk, *HISTORY[:2])
    source.close(broker_epoch=1)
    target.close(broker_epoch=1)


def change_places(disk: MemoryDisk, promise: Promise) -> None:
    """Promises in every phase: before the copy, while it grows, when it has taken its place, and at last."""
    promise(AllowedContents(HISTORY, 2))
    source, target = open_directory(disk, "/a"), open_directory(disk, "/b")
    current = source.logs[NAME]
    future = begin(source, target)
    copy(future)
    append(current, "b1")
    current.sync()
    promise(AllowedContents(HISTORY, 3))
    copy(future)
    future.settle()
    append(current, "b2")
    log = future.promote(now_ms=NOW_MS)
    append(log, "b3")
    log.sync()
    promise(AllowedContents(HISTORY, 5))
    future.settle()
    append(log, "b4")
    future.retire(GONE, now_ms=NOW_MS)
    source.sweep(NOW_MS)
    log.sync()
    promise(AllowedContents(HISTORY, 6))


def keep_the_former(disk: MemoryDisk, promise: Promise) -> None:
    """Promises of the former log alone: nothing is synced after the copy has taken its place, until it settles."""
    promise(AllowedContents(HISTORY, 2))
    source, target = open_directory(disk, "/a"), open_directory(disk, "/b")
    current = source.logs[NAME]
    future = begin(source, target)
    copy(future)
    future.settle()
    append(current, "b1")
    log = future.promote(now_ms=NOW_MS)
    current.sync()  # for a producer who wrote before, and waits
    promise(AllowedContents(HISTORY, 3))
    append(log, "b2")
    future.settle()
    promise(AllowedContents(HISTORY, 4))
    future.retire(GONE, now_ms=NOW_MS)


def call_off(disk: MemoryDisk, promise: Promise) -> None:
    promise(AllowedContents(HISTORY, 2))
    source, target = open_directory(disk, "/a"), open_directory(disk, "/b")
    future = begin(source, target)
    copy(future)
    future.settle()
    append(source.logs[NAME], "b1")
    future.drop()
    source.logs[NAME].sync()
    promise(AllowedContents(HISTORY, 3))


PROTOCOLS = [change_places, keep_the_former, call_off]


def recover(disk: MemoryDisk) -> tuple[str, ...]:
    """Open both, keep one, work on, stop cleanly, open again."""
    directories = [open_directory(disk, path) for path in ("/a", "/b")]
    for directory in directories:
        assert directory.failure is None and not directory.report.damaged_files
        for name in list(directory.report.unfinished):
            directory.drop_unfinished(name)
    kept = longer_copy([directory for directory in directories if NAME in directory.logs], NAME)
    for directory in directories:
        if directory is not kept and NAME in directory.logs:
            directory.mark_stray({NAME: GONE})
    log = kept.logs[NAME]
    assert not log.quarantine, log.quarantine.damages[0]
    found = tuple(values(log))
    append(log, "++", epoch=9)
    log.advance_high_watermark(log.log_end_offset)
    for directory in directories:
        directory.close(broker_epoch=2)
    again = [open_directory(disk, path) for path in ("/a", "/b")]
    (only,) = [directory.logs[NAME] for directory in again if NAME in directory.logs]
    assert tuple(values(only)) == (*found, "++"), "the next start finds something else"
    return found


def check(found: tuple[str, ...], promises: Sequence[AllowedContents]) -> None:
    may = promises[-1]
    assert len(found) >= may.least, f"{found}, and {may.least} were promised"
    assert found == may.history[: len(found)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_power_loss_at_any_moment_loses_nothing_that_was_promised(protocol: Protocol) -> None:
    report = crash_everywhere(protocol, recover=recover, check=check, prepare=prepared, pending_limit=PENDING)
    print(report)
    assert report.states > 80


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_disk_that_fails_at_any_operation_loses_nothing_that_was_promised(protocol: Protocol) -> None:
    report = fail_each_operation(
        protocol,
        recover=recover,
        check=check,
        prepare=prepared,
        refusals=(KafkaStorageError, KeyError),  # KeyError: the directory went offline while it started
        models=(CrashModel.ANY_SUBSET,),
        pending_limit=2,
    )
    assert report.failed_operations > 50


def sync_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written after the rename is promised before the rename is durable."""
    real = Segments.sync

    def sync(self: Segments, end: LogEnd) -> None:
        self._moved = False
        real(self, end)

    monkeypatch.setattr(Segments, "sync", sync)


def retire_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    real = FutureLog.promote

    def promote(self: FutureLog, *, now_ms: int) -> Log:
        log = real(self, now_ms=now_ms)
        self.retire(GONE, now_ms=now_ms)
        monkeypatch.setattr(FutureLog, "retire", lambda *_, **__: None)
        return log

    monkeypatch.setattr(FutureLog, "promote", promote)


def keep_the_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(copies: Sequence[LogDirectory], name: TopicPartition) -> LogDirectory:
        return min(copies, key=lambda each: each.logs[name].log_end_offset)

    monkeypatch.setitem(globals(), "longer_copy", shorter)


def settle_without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FutureLog, "settle", lambda self: self.target.checkpoint())


MISTAKES = [
    (sync_no_name, change_places),
    (retire_too_early, keep_the_former),
    (keep_the_shorter, change_places),
    (settle_without_sync, keep_the_former),
]


@pytest.mark.parametrize(("mistake", "protocol"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(CrashFound):
        crash_everywhere(protocol, recover=recover, check=check, prepare=prepared, pending_limit=PENDING)
