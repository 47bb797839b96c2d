"""Checkpoints go by name, logs do not: what they say of one log is never believed of the next of its name, nor of
records that were written where others were cut off."""

import errno
from collections.abc import Sequence
from types import ModuleType

import pytest
from mutants.plant import planted
from support.crash_enumeration import CrashFound, Promise, crash_everywhere
from support.log_fixtures import NOW_MS, append, values

from trioka.protocol.errors import KafkaStorageError
from trioka.storage import cleaner, directory
from trioka.storage.checkpoint import read_offsets
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.testing.disks.disk_faults import ALWAYS, DiskOperation, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk

NAME, OTHER = TopicPartition("orders", 0), TopicPartition("users", 0)
CONFIG = LogConfig(segment_bytes=300, file_delete_delay_ms=100, cleanup_policy=frozenset({"compact"}))
ALL = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
RECORDS = 8


def open_directory(disk: MemoryDisk, storage: ModuleType = directory) -> LogDirectory:
    opened: LogDirectory = storage.LogDirectory.open(disk, "/logs", lambda name: CONFIG, now_ms=NOW_MS, threads=1)
    return opened


def compacted(disk: MemoryDisk, storage: ModuleType = directory) -> tuple[LogDirectory, Log]:
    """A log of eight records of which all is durable, replicated, and by the checkpoint compacted up to 6."""
    opened = open_directory(disk, storage)
    log = opened.create(NAME, CONFIG, now_ms=NOW_MS, topic_id=b"1" * 16)
    for number in range(RECORDS):
        append(log, str(number))
    log.sync()
    log.advance_high_watermark(RECORDS)
    log.delete_records_before(1)
    opened.compacted(log, 6)
    opened.checkpoint()
    return opened, log


def noted(disk: MemoryDisk, name: TopicPartition = NAME) -> list[int | None]:
    return [read_offsets(disk, f"/logs/{file}").get(name) for file in ALL]


def test_every_entry_goes_durably_before_the_directory_does() -> None:
    disk = MemoryDisk()
    opened, _ = compacted(disk)
    assert noted(disk) == [8, 1, 8, 6]
    seen: list[list[int | None]] = []

    def watch(operation: DiskOperation) -> None:
        if operation.kind is Kind.RENAME and "-delete" in str(operation):
            disk.before = None
            assert not disk.pending(), "not durable"
            seen.append(noted(disk))

    disk.settle()
    disk.before = watch
    opened.delete({NAME: "0" * 32}, now_ms=NOW_MS)
    assert seen == [[None] * 4]


def test_a_topic_that_is_made_again_is_dirty_from_its_start() -> None:
    disk = MemoryDisk()
    opened, _ = compacted(disk)
    opened.delete({NAME: "0" * 32}, now_ms=NOW_MS)
    log = opened.create(NAME, CONFIG, now_ms=NOW_MS, topic_id=b"2" * 16)
    assert log.first_dirty_offset is None
    for number in range(RECORDS):
        append(log, str(number))
    opened.close(broker_epoch=1)
    assert open_directory(disk).logs[NAME].first_dirty_offset is None


def test_what_was_compacted_is_there_after_a_restart() -> None:
    disk = MemoryDisk()
    compacted(disk)[0].close(broker_epoch=1)
    assert open_directory(disk).logs[NAME].first_dirty_offset == 6


def test_a_truncation_reaches_every_checkpoint_before_a_file() -> None:
    disk = MemoryDisk()
    _, log = compacted(disk)
    seen: list[list[int | None]] = []

    def watch(operation: DiskOperation) -> None:
        if operation.kind in (Kind.TRUNCATE, Kind.RENAME) and "/orders-0/0" in str(operation):
            seen.append(noted(disk))

    disk.before = watch
    log.truncate_to(4, now_ms=NOW_MS)
    assert seen[0] == [4, 1, 4, 4]
    assert log.first_dirty_offset == 4


def test_without_its_checkpoints_a_truncation_does_not_happen() -> None:
    """For lack of a descriptor, say: it is tried again later, and until then the log is whole."""
    disk = MemoryDisk()
    opened, log = compacted(disk)
    disk.faults.add(Fault(kinds=frozenset({Kind.CREATE, Kind.OPEN}), error=errno.EMFILE, times=ALWAYS))
    with pytest.raises(KafkaStorageError):
        log.truncate_to(4, now_ms=NOW_MS)
    disk.faults.clear()
    assert opened.failure is None
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1, RECORDS, RECORDS)
    assert values(log) == [str(number) for number in range(1, RECORDS)]
    log.truncate_to(4, now_ms=NOW_MS)
    assert values(log) == ["1", "2", "3"]


@pytest.mark.parametrize("file", ALL)
def test_an_entry_without_a_log_or_beyond_its_end_goes_with_the_next_start(file: str) -> None:
    """A directory was removed by hand, and the topic is created again: the entry must not wait for its log."""
    disk = MemoryDisk()
    compacted(disk)[0].close_handles()
    disk.replace(f"/logs/{file}", b"0\n2\norders 0 700\nusers 0 5\n")
    opened = open_directory(disk)
    log = opened.logs[NAME]
    assert log.log_end_offset == (700 if file == LOG_START_OFFSETS else RECORDS)
    assert noted(disk, OTHER)[ALL.index(file)] is None
    assert (noted(disk)[ALL.index(file)] or 0) <= log.log_end_offset
    if file == CLEANER_OFFSETS:
        assert log.first_dirty_offset is None


def test_a_compaction_that_outlives_its_topic_leaves_the_next_one_alone() -> None:
    disk = MemoryDisk()
    opened, log = compacted(disk)
    work = cleaner.clean(log, cleaner.log_to_clean(log, None, now_ms=NOW_MS), now_ms=NOW_MS, step_bytes=1)
    while not any(name.endswith(".cleaned") for name in disk.list("/logs/orders-0")):
        next(work)
    opened.delete({NAME: "0" * 32}, now_ms=NOW_MS)
    again = opened.create(NAME, CONFIG, now_ms=NOW_MS, topic_id=b"2" * 16)
    append(again, "new")
    before = disk.files()
    with pytest.raises(cleaner.CleaningAborted, match="closed"):
        next(work)
    opened.compacted(log, 8)  # even then
    assert disk.files() == before
    assert values(again) == ["new"]


def test_a_log_that_is_closed_touches_no_file() -> None:
    disk = MemoryDisk()
    opened, log = compacted(disk)
    opened.delete({NAME: "0" * 32}, now_ms=NOW_MS)
    opened.create(NAME, CONFIG, now_ms=NOW_MS, topic_id=b"2" * 16)
    before = disk.files()
    for change in (
        lambda: log.roll(now_ms=NOW_MS),
        lambda: log.truncate_fully_and_start_at(4, now_ms=NOW_MS),
        lambda: log.replace_segments([log.segments[0]], log.segments[:1], now_ms=NOW_MS),
    ):
        with pytest.raises(KafkaStorageError):
            change()
    log.sync()
    log.sweep(NOW_MS + 10**9)
    assert {path: content for path, content in disk.files().items() if "/orders-0/" in path} == {
        path: content for path, content in before.items() if "/orders-0/" in path
    }


# Crashes --------------------------------------------------------------------------------------------------------------


def made_again(storage: ModuleType = directory) -> object:
    def protocol(disk: MemoryDisk, promise: Promise) -> None:
        opened = open_directory(disk, storage)
        opened.delete({NAME: "0" * 32}, now_ms=NOW_MS)
        promise("deleted")
        log = opened.create(NAME, CONFIG, now_ms=NOW_MS, topic_id=b"2" * 16)
        for number in range(RECORDS):
            append(log, f"new {number}")
        log.sync()
        promise("made again")

    return protocol


def check(opened: LogDirectory, promised: Sequence[str]) -> None:
    log = opened.logs.get(NAME)
    if log is None or opened.topic_ids.get(NAME) == b"1" * 16:
        assert "made again" not in promised
        return
    assert "deleted" in promised
    assert log.first_dirty_offset is None, "the next topic is marked as compacted"
    assert (log.log_start_offset, log.quarantine.damages) == (0, ())
    assert log.report is None or not log.report.missing_offsets
    found = values(log)
    assert found == [f"new {number}" for number in range(len(found))]
    assert len(found) == RECORDS or "made again" not in promised


def test_a_topic_that_is_deleted_and_made_again_survives_every_crash() -> None:
    report = crash_everywhere(
        made_again(),  # type: ignore[arg-type]
        prepare=lambda disk: compacted(disk)[0].close(broker_epoch=1),
        recover=open_directory,
        check=check,
        pending_limit=6,
    )
    assert report.states > 50


def test_an_entry_that_outlives_its_log_would_be_found() -> None:
    mistaken = planted(
        directory,
        "self.checkpoint()\npaths = []",
        "paths = []",
    )
    with pytest.raises(CrashFound):
        crash_everywhere(
            made_again(mistaken),  # type: ignore[arg-type]
            prepare=lambda disk: compacted(disk)[0].close(broker_epoch=1),
            recover=open_directory,
            check=check,
            pending_limit=6,
        )
