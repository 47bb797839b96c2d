"""A power loss while local segments of a tiered log are deleted, or while a follower begins behind the object store.

Whatever the disk kept: the log starts where it did, its local part has no gap and reaches as far as was promised, and
no epoch of it is lost.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from support.crash_enumeration import CrashFound, crash_everywhere
from support.log_fixtures import NAME, NOW_MS, batch, values

from trioka.storage import tiered_log
from trioka.storage.checkpoint import EpochEntry
from trioka.storage.directory import LogDirectory
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.producer_snapshot import ProducerSnapshot, encode
from trioka.testing.disks.memory_disk import MemoryDisk

CONFIG = LogConfig(segment_bytes=500, file_delete_delay_ms=0, remote_storage=True)
BULK = "x" * 150
PENDING = 6
LOCAL_AFTER = 4  # of six records, two in a segment


class RecoveredLog(NamedTuple):
    log_start: int
    local_start: int
    values: tuple[str, ...]


def open_directory(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, "/logs", lambda _: CONFIG, now_ms=NOW_MS)


def add(log: Log, *texts: str, epoch: int) -> None:
    for text in texts:
        log.append_as_leader(batch(text + BULK), leader_epoch=epoch, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


def prepare(disk: MemoryDisk) -> None:
    disk.make_directory("/logs")
    directory = open_directory(disk)
    log = directory.create(NAME, CONFIG, now_ms=NOW_MS)
    add(log, "a0", "a1", "a2", epoch=0)
    add(log, "b3", "b4", "b5", epoch=1)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    directory.close(broker_epoch=1)


def recover(disk: MemoryDisk) -> RecoveredLog:
    directory = open_directory(disk)
    assert directory.failure is None and not directory.report.damaged_files
    log = directory.logs[NAME]
    assert not log.quarantine and (log.report is None or not log.report.missing_offsets)
    found = RecoveredLog(
        log.log_start_offset,
        log.local_log_start_offset,
        tuple(each[:2] for each in values(log, log.local_log_start_offset)),
    )
    assert len(found.values) == log.log_end_offset - found.local_start, "a gap"
    if not tiered_log.lacks_remote_history(log):
        assert log.epochs.entries[0].start_offset == found.log_start, "epochs of the remote part are lost"
    directory.close(broker_epoch=2)
    again = open_directory(disk).logs[NAME]
    assert (again.log_start_offset, again.local_log_start_offset) == found[:2], "the next start finds something else"
    return found


def delete_local(disk: MemoryDisk, promise: Callable[[int], None]) -> None:
    promise(6)
    log = open_directory(disk).logs[NAME]
    log.advance_high_watermark(6)
    tiered_log.delete_local_segments(log, log.segments[:2], now_ms=NOW_MS)
    assert log.local_log_start_offset == LOCAL_AFTER
    add(log, "b6", epoch=1)
    log.sweep(NOW_MS)
    log.sync()
    promise(7)


def check_deletion(found: RecoveredLog, promises: Sequence[int]) -> None:
    end = found.local_start + len(found.values)
    assert found.log_start == 0, f"the log starts at {found.log_start}"
    assert found.local_start <= LOCAL_AFTER and end >= promises[-1]
    assert found.values == ("a0", "a1", "a2", "b3", "b4", "b5", "b6")[found.local_start : end]


def begin(disk: MemoryDisk, promise: Callable[[int], None]) -> None:
    promise(0)
    directory = open_directory(disk)
    log = directory.logs[NAME]
    log.advance_high_watermark(6)
    tiered_log.begin_behind_remote_part(
        log,
        20,
        log_start_offset=0,
        epochs=(EpochEntry(0, 0), EpochEntry(1, 3), EpochEntry(2, 9)),
        producer_snapshot=encode(ProducerSnapshot([], None)),
        now_ms=NOW_MS,
    )
    promise(20)
    add(log, "c0", epoch=2)
    log.sync()
    promise(21)


def check_beginning(found: RecoveredLog, promises: Sequence[int]) -> None:
    end = found.local_start + len(found.values)
    assert end >= promises[-1]
    whole = ("a0", "a1", "a2", "b3", "b4", "b5")
    assert found.values == whole[found.local_start : end] if found.local_start < 20 else found.values in ((), ("c0",))
    assert found.log_start == 0, f"the log starts at {found.log_start}"


PROTOCOLS = [(delete_local, check_deletion), (begin, check_beginning)]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "check"), PROTOCOLS)
def test_a_power_loss_at_any_moment_leaves_both_starts_right(protocol: object, check: object) -> None:
    report = crash_everywhere(protocol, recover=recover, check=check, prepare=prepare, pending_limit=PENDING)  # type: ignore[arg-type]
    assert report.states > 10


def write_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogDirectory, "_keep", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "check"), PROTOCOLS[:1])
def test_a_planted_mistake_is_found(protocol: object, check: object, monkeypatch: pytest.MonkeyPatch) -> None:
    write_no_checkpoint(monkeypatch)
    with pytest.raises(CrashFound):
        crash_everywhere(protocol, recover=recover, check=check, prepare=prepare, pending_limit=PENDING)  # type: ignore[arg-type]
