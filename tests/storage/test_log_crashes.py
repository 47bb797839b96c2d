"""Every crash that a log can meet: S1 to S7, through the whole directory with its checkpoints and its marker.

A protocol says at each moment what may be found: one of some *histories* (all that was ever appended, in order), from
some record on, and up to a record that was promised at least. What is found must be whole, without a gap, never
quarantined, and the directory must work on from there.

It tries every combination of up to twelve un-synced operations, which is all there is but for three moments that have
more. TRIOKA_CRASH_PENDING=6 is quicker.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from support.crash_enumeration import CrashFound, Promise, Protocol, Report, crash_everywhere, fail_each_operation
from support.log_fixtures import NOW_MS, batch, read_all

from trioka.protocol.errors import KafkaStorageError
from trioka.storage import batch_scan as scan_module
from trioka.storage import recovery as recovery_module
from trioka.storage import segment_swap as swap_module
from trioka.storage.checkpoint import write_clean_marker
from trioka.storage.directory import LogDirectory
from trioka.storage.index_rebuild import epochs_of
from trioka.storage.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_end import LogEnd
from trioka.storage.recovery import _Loader
from trioka.storage.segment import Segment
from trioka.storage.segments import Segments
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.memory_disk import MemoryDisk, MemoryFile

PENDING = int(os.environ.get("TRIOKA_CRASH_PENDING", "12"))
NAME = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=1800, index_interval_bytes=100, file_delete_delay_ms=0)  # two batches in a segment
BULK = "x" * 600  # a batch is then two or three sectors, so that it can be torn
BIT = "y" * 100  # or less than one, so that a segment has several


class AllowedContents(NamedTuple):
    """What may be found: a part of one of these histories that holds at least [start, end)."""

    histories: tuple[tuple[str, ...], ...]
    start: int
    end: int


class LogContents(NamedTuple):
    first: int
    values: tuple[str, ...]


def open_directory(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, "/logs", lambda name: CONFIG, now_ms=NOW_MS, threads=1)


def add(log: Log, *values: str, epoch: int = 0, size: str = BULK) -> None:
    for value in values:
        log.append_as_leader(batch(value + size), leader_epoch=epoch, now_ms=NOW_MS)


def contents(log: Log) -> LogContents:
    values = [(record.value or b"").decode() for record in read_all(log)]
    assert all(value[2:] in (BULK, BIT) for value in values), "bytes that were not written"
    return LogContents(log.log_start_offset, tuple(value[:2] for value in values))


def prepared(*values: str) -> "PreparedDirectory":
    return PreparedDirectory(values)


class PreparedDirectory:
    """A directory that was stopped cleanly, with these records."""

    def __init__(self, values: tuple[str, ...]) -> None:
        self.values = values

    def __call__(self, disk: MemoryDisk) -> None:
        disk.make_directory("/logs")
        directory = open_directory(disk)
        log = directory.create(NAME, CONFIG, now_ms=NOW_MS)
        add(log, *self.values)
        log.advance_high_watermark(log.log_end_offset)
        directory.close(broker_epoch=1)


def recover(disk: MemoryDisk) -> LogContents:
    """Open, look, work on, stop cleanly, open again."""
    directory = open_directory(disk)
    assert directory.failure is None
    assert not directory.report.damaged_files
    if NAME not in directory.logs:
        return LogContents(0, ())
    log = directory.logs[NAME]
    assert not log.quarantine, log.quarantine.damages[0]
    assert log.report is None or not log.report.missing_offsets, "a recovery point beyond the log's end"
    found = contents(log)
    assert len(found.values) == log.log_end_offset - log.log_start_offset, "a gap"
    in_log = [entry for entry in epochs_of(log.segments) if entry.start_offset >= log.log_start_offset]
    assert set(in_log) <= set(log.epochs.entries) or log.log_start_offset > 0, (
        "epochs that the log has, and the cache does not"
    )
    add(log, "++", epoch=9)
    log.advance_high_watermark(log.log_end_offset)
    directory.close(broker_epoch=2)
    again = open_directory(disk)
    assert again.report.clean
    assert contents(again.logs[NAME]) == LogContents(found.first, (*found.values, "++")), (
        "the next start finds something else"
    )
    again.close(broker_epoch=3)
    return found


def check(found: LogContents, promises: Sequence[AllowedContents]) -> None:
    may = promises[-1]
    end = found.first + len(found.values)
    assert found.first <= may.start, f"the log starts at {found.first}, {may.start} was promised"
    assert end >= may.end, f"the log ends at {end}, {may.end} was promised"
    assert any(history[found.first : end] == found.values for history in may.histories), (
        f"{found.values} from {found.first} on is no part of {may.histories}"
    )


def search(protocol: Protocol, *values: str) -> Report:
    report = crash_everywhere(protocol, recover=recover, check=check, prepare=prepared(*values), pending_limit=PENDING)
    assert report.states > 10
    return report


# The protocols -------------------------------------------------------------------------------------------------------


def append_and_sync(disk: MemoryDisk, promise: Promise) -> None:
    promise(AllowedContents((("a1", "b1", "b2", "b3"),), 0, 1))
    log = open_directory(disk).logs[NAME]
    add(log, "b1")
    log.sync()
    promise(AllowedContents((("a1", "b1", "b2", "b3"),), 0, 2))
    add(log, "b2", "b3", epoch=1)
    log.sync()
    promise(AllowedContents((("a1", "b1", "b2", "b3"),), 0, 4))


def roll(disk: MemoryDisk, promise: Promise) -> None:
    history = (("a1", "a2", "b1", "b2", "b3"),)
    promise(AllowedContents(history, 0, 2))
    log = open_directory(disk).logs[NAME]
    add(log, "b1", "b2", "b3")
    assert len(log.segments) == 3
    log.sync()
    promise(AllowedContents(history, 0, 5))


def checkpoint(disk: MemoryDisk, promise: Promise) -> None:
    history = (("a1", "b1", "b2"),)
    promise(AllowedContents(history, 0, 1))
    directory = open_directory(disk)
    log = directory.logs[NAME]
    add(log, "b1")
    log.sync()
    promise(AllowedContents(history, 0, 2))
    directory.checkpoint()
    add(log, "b2")
    log.advance_high_watermark(2)
    directory.checkpoint()


def clean_stop(disk: MemoryDisk, promise: Promise) -> None:
    history = (("a1", "b1", "b2"),)
    promise(AllowedContents(history, 0, 1))
    directory = open_directory(disk)
    add(directory.logs[NAME], "b1", "b2")
    directory.close(broker_epoch=5)
    promise(AllowedContents(history, 0, 3))


def delete_segments(disk: MemoryDisk, promise: Promise) -> None:
    history = (("a1", "a2", "a3", "a4", "a5", "b1"),)
    promise(AllowedContents(history, 4, 5))
    directory = open_directory(disk)
    log = directory.logs[NAME]
    log.delete_segments(log.segments[:2], now_ms=NOW_MS)
    assert log.log_start_offset == 4
    add(log, "b1")
    log.sweep(NOW_MS)
    log.sync()
    promise(AllowedContents(history, 4, 6))


def delete_everything(disk: MemoryDisk, promise: Promise) -> None:
    history = (("a1", "a2", "a3", "b1"),)
    promise(AllowedContents(history, 3, 3))
    log = open_directory(disk).logs[NAME]
    log.delete_segments(list(log.segments), now_ms=NOW_MS)
    add(log, "b1")
    log.sync()
    promise(AllowedContents(history, 3, 4))


def truncate(disk: MemoryDisk, promise: Promise) -> None:
    old, new = ("a1", "a2", "a3", "a4", "a5"), ("a1", "c1", "c2", "c3")
    promise(AllowedContents((old,), 0, 1))
    log = open_directory(disk).logs[NAME]
    log.truncate_to(1, now_ms=NOW_MS)
    promise(AllowedContents((new,), 0, 1))
    add(log, "c1", "c2", epoch=1)
    log.sync()
    promise(AllowedContents((new,), 0, 3))


def truncate_what_was_not_synced(disk: MemoryDisk, promise: Promise) -> None:
    old, new = ("a1", "b1", "b2", "b3"), ("a1", "b1", "c1", "c2")
    promise(AllowedContents((old,), 0, 1))
    log = open_directory(disk).logs[NAME]
    add(log, "b1", "b2", "b3", epoch=1, size=BIT)
    log.truncate_to(2, now_ms=NOW_MS)
    promise(AllowedContents((new,), 0, 1))
    add(
        log, "c1", "c2", epoch=1, size=BIT
    )  # the same epoch, so that nothing but the bytes tells them from what was cut off


def truncate_below_the_start(disk: MemoryDisk, promise: Promise) -> None:
    """Records were deleted, and the checkpoint says so; then the log is cut before them, and goes on from there."""
    old, new = ("a1", "b1", "b2"), ("a1", "c1", "c2")
    promise(AllowedContents((old,), 2, 1))
    directory = open_directory(disk)
    log = directory.logs[NAME]
    add(log, "b1", "b2", size=BIT)
    log.advance_high_watermark(3)
    log.delete_records_before(2)
    directory.checkpoint()
    log.truncate_to(1, now_ms=NOW_MS)
    promise(AllowedContents((new,), 1, 1))
    add(log, "c1", "c2", epoch=1, size=BIT)
    log.sync()
    promise(AllowedContents((new,), 1, 3))


def reset_to_snapshot(disk: MemoryDisk, promise: Promise) -> None:
    old = ("a1", "a2", "a3")
    new = ("", "", "", "", "", "", "", "c1")
    promise(AllowedContents((old, new), 7, 0))
    log = open_directory(disk).logs[NAME]
    log.truncate_fully_and_start_at(7, now_ms=NOW_MS)
    promise(AllowedContents((new,), 7, 7))
    log.append_as_leader(batch("c1" + BULK), leader_epoch=3, now_ms=NOW_MS)
    log.sync()
    promise(AllowedContents((new,), 7, 8))


def compact(disk: MemoryDisk, promise: Promise) -> None:
    """Two segments become one of the same records: whatever is lost would show."""
    history = (("a1", "a2", "a3", "a4", "a5", "b1"),)
    promise(AllowedContents(history, 0, 5))
    log = open_directory(disk).logs[NAME]
    log.replace_segments([merged(log, 2)], log.segments[:2], now_ms=NOW_MS)  # type: ignore[list-item]
    add(log, "b1")
    log.sweep(NOW_MS)
    log.sync()
    promise(AllowedContents(history, 0, 6))


def merged(log: Log, count: int) -> object:
    new = log.new_cleaned_segment(log.segments[0].base_offset, now_ms=NOW_MS)
    for segment in log.segments[:count]:
        for found in segment.scan():
            header = found.header
            data = found.buffer[header.position : header.end]
            new.append(data, header.last_offset, header.max_timestamp, CONFIG.index_interval_bytes)
    return new


PROTOCOLS = [
    (append_and_sync, ("a1",)),
    (roll, ("a1", "a2")),
    (checkpoint, ("a1",)),
    (clean_stop, ("a1",)),
    (delete_segments, ("a1", "a2", "a3", "a4", "a5")),
    (delete_everything, ("a1", "a2", "a3")),
    (truncate, ("a1", "a2", "a3", "a4", "a5")),
    (truncate_what_was_not_synced, ("a1",)),
    (truncate_below_the_start, ("a1",)),
    (reset_to_snapshot, ("a1", "a2", "a3")),
    (compact, ("a1", "a2", "a3", "a4", "a5")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "values"), PROTOCOLS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_power_loss_at_any_moment_loses_nothing_that_was_promised(
    protocol: Protocol, values: tuple[str, ...]
) -> None:
    print(search(protocol, *values))


@pytest.mark.parametrize(("protocol", "values"), PROTOCOLS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_disk_that_fails_at_any_operation_loses_nothing_that_was_promised(
    protocol: Protocol, values: tuple[str, ...]
) -> None:
    report = fail_each_operation(
        protocol,
        recover=recover,
        check=check,
        prepare=prepared(*values),
        refusals=(KafkaStorageError, KeyError),  # KeyError: the directory went offline while it started
        models=(CrashModel.ANY_SUBSET,),  # the others have had their turn above
        pending_limit=2,
    )
    assert report.failed_operations > 10


# Planted mistakes: each is caught by the protocol beside it ----------------------------------------------------------


def sync_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery point moves without an fsync."""

    def sync(self: Segments, end: LogEnd) -> None:
        end.recovery_point = end.log_end_offset

    monkeypatch.setattr(Segments, "sync", sync)


def sync_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new segment is synced, its name is not."""
    real = MemoryDisk.sync_directory
    monkeypatch.setattr(
        MemoryDisk, "sync_directory", lambda self, path: None if path.endswith("orders-0") else real(self, path)
    )


def sync_only_the_active_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segments, "_not_synced", lambda self: [])


def leave_the_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running node still looks cleanly stopped."""
    monkeypatch.setattr(LogDirectory, "_remove_clean_marker", lambda self: None)


def mark_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LogDirectory.close

    def close(self: LogDirectory, *, broker_epoch: int) -> None:
        write_clean_marker(self.volume, f"{self.path}/.kafka_cleanshutdown", broker_epoch)
        real(self, broker_epoch=broker_epoch)

    monkeypatch.setattr(LogDirectory, "close", close)


def tell_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are cut before the checkpoints say so."""
    monkeypatch.setattr(LogDirectory, "_keep", lambda self, log: None)


def believe_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn tail is kept."""
    monkeypatch.setattr(scan_module, "check_crc", lambda buffer, header: True)


def overlook_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment behind a lost write is kept: recovery thinks that everything was promised."""
    monkeypatch.setattr(_Loader, "_drop_from", lambda self, number, reason: None)


def cut_without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """New batches may arrive in front of old ones that were cut off."""
    real = Segment.cut

    def cut(self: Segment, position: int) -> None:
        monkeypatch.setattr(MemoryFile, "sync", lambda file: None)
        real(self, position)
        monkeypatch.setattr(MemoryFile, "sync", really_sync)

    monkeypatch.setattr(Segment, "cut", cut)


really_sync = MemoryFile.sync


def swap_without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compacted segment takes its place before its bytes are on disk."""
    monkeypatch.setattr(swap_module, "sync_files", lambda segment: None)


def finish_no_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart throws a half-done swap away, with the old segments gone already."""
    monkeypatch.setattr(recovery_module, "finish_swaps", lambda *_, **__: False)


MISTAKES = [
    (sync_nothing, append_and_sync, ("a1",)),
    (sync_no_names, roll, ("a1", "a2")),
    (sync_only_the_active_segment, roll, ("a1", "a2")),
    (leave_the_marker, append_and_sync, ("a1",)),
    (mark_too_early, clean_stop, ("a1",)),
    (tell_no_checkpoint, truncate, ("a1", "a2", "a3", "a4", "a5")),
    (tell_no_checkpoint, delete_segments, ("a1", "a2", "a3", "a4", "a5")),
    (believe_every_batch, append_and_sync, ("a1",)),
    (overlook_gaps, roll, ("a1", "a2")),
    (cut_without_sync, truncate_what_was_not_synced, ("a1",)),
    (swap_without_sync, compact, ("a1", "a2", "a3", "a4", "a5")),
    (finish_no_swap, compact, ("a1", "a2", "a3", "a4", "a5")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "protocol", "values"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None],
    protocol: Protocol,
    values: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk_before = prepared(*values)
    mistake(monkeypatch)
    with pytest.raises(CrashFound):
        crash_everywhere(protocol, recover=recover, check=check, prepare=disk_before, pending_limit=PENDING)
