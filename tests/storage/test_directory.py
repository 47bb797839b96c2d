"""A log directory: what it reads at the start, writes while it runs and marks at the end; and how it fails."""

import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from mutants.plant import planted
from support.crash_enumeration import Promise, crash_everywhere
from support.log_fixtures import NOW_MS, append, values

from trioka.protocol import batch
from trioka.protocol.errors import KafkaStorageError
from trioka.protocol.record import Record
from trioka.storage import directory as directory_module
from trioka.storage.checkpoint import MetaProperties, read_offsets, write_meta_properties
from trioka.storage.directory import DirectoryInUse, LogDirectory
from trioka.storage.disk import Disk, OsDisk
from trioka.storage.layout import CorruptFile, TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.disk_faults import ALWAYS, Effect, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk

A, B = TopicPartition("a.b-c", 3), TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=1000, file_delete_delay_ms=100)
UNIQUE = "0123456789abcdef" * 2
ID = bytes(range(1, 17))


def open_directory(disk: Disk, **how: object) -> LogDirectory:
    return LogDirectory.open(disk, "/logs", lambda name: CONFIG, now_ms=NOW_MS, **how)  # type: ignore[arg-type]


def prepared() -> MemoryDisk:
    """Two partitions, stopped cleanly."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    for name in (A, B):
        log = directory.create(name, CONFIG, now_ms=NOW_MS, topic_id=ID)
        append(log, "one")
        append(log, "two")
        log.advance_high_watermark(1)
    directory.close(broker_epoch=42)
    return disk


def offsets(disk: Disk, kind: str) -> dict[TopicPartition, int]:
    return read_offsets(disk, f"/logs/{kind}-offset-checkpoint")


def test_a_clean_stop_is_found_with_everything_that_was_noted() -> None:
    directory = open_directory(prepared())
    assert directory.report.clean
    assert directory.report.broker_epoch == 42
    assert set(directory.logs) == {A, B}
    for log in directory.logs.values():
        assert values(log) == ["one", "two"]
        assert log.high_watermark == 1
        assert log.recovery_point == 2
        assert log.report is None
    assert directory.topic_ids == {A: ID, B: ID}


def test_the_marker_is_gone_durably_before_anything_else_is_written() -> None:
    disk = prepared()
    before = disk.operation_count
    open_directory(disk)
    done = [operation for operation in disk.operations if operation.number > before]
    marker = next(n for n, operation in enumerate(done) if operation.kind is Kind.REMOVE)
    assert "cleanshutdown" in done[marker].path
    assert done[marker + 1].kind is Kind.SYNC_DIRECTORY
    changing = {Kind.WRITE, Kind.CREATE, Kind.RENAME, Kind.TRUNCATE}
    assert not [operation for operation in done[:marker] if operation.kind in changing]


def test_the_marker_is_the_last_thing_that_is_written() -> None:
    disk = prepared()
    last = [operation for operation in disk.operations if operation.kind in (Kind.WRITE, Kind.RENAME)][-1]
    assert last.detail.endswith("/.kafka_cleanshutdown")


def lose_power_after_the_first_sync(log_directory: ModuleType = directory_module) -> None:
    for path in ("/logs", "/var/lib/trioka/logs"):
        for model in CrashModel:
            disk = MemoryDisk()
            made = log_directory.LogDirectory.open(disk, path, lambda name: CONFIG, now_ms=NOW_MS, threads=1)
            append(made.create(B, CONFIG, now_ms=NOW_MS), "promised")
            made.logs[B].sync()
            disk = disk.crash(model, Random(1))
            again = LogDirectory.open(disk, path, lambda name: CONFIG, now_ms=NOW_MS, threads=1)
            assert values(again.logs[B]) == ["promised"]


def test_what_is_synced_in_a_new_directory_is_not_lost_with_the_name_of_the_directory() -> None:
    lose_power_after_the_first_sync()


def test_a_directory_whose_own_name_is_not_synced_is_noticed() -> None:
    with pytest.raises(KeyError):
        lose_power_after_the_first_sync(
            planted(directory_module, "volume.make_root()", "volume.make_directory(self.path)")
        )


def test_checkpoints_have_recovery_points_high_watermarks_and_starts() -> None:
    disk = prepared()
    directory = open_directory(disk)
    append(directory.logs[A], "three")
    directory.logs[B].advance_high_watermark(2)
    directory.logs[B].delete_records_before(1)
    directory.checkpoint()
    assert offsets(disk, "recovery-point") == {A: 2, B: 2}
    assert offsets(disk, "replication") == {A: 1, B: 2}
    assert offsets(disk, "log-start") == {A: 0, B: 1}
    directory.logs[A].sync()
    directory.checkpoint()
    assert offsets(disk, "recovery-point") == {A: 3, B: 2}


def test_a_truncation_reaches_the_checkpoints_first() -> None:
    disk = prepared()
    directory = open_directory(disk)
    directory.logs[A].truncate_to(1, now_ms=NOW_MS)
    assert offsets(disk, "recovery-point") == {A: 1, B: 2}


def test_a_damaged_checkpoint_or_marker_means_a_scan_and_is_reported() -> None:
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", ".kafka_cleanshutdown"):
        disk = prepared()
        disk.replace(f"/logs/{name}", b"0\n7\n")
        directory = open_directory(disk)
        assert len(directory.report.damaged_files) == 1
        assert name in directory.report.damaged_files[0]
        assert all(values(log) == ["one", "two"] for log in directory.logs.values())


def test_without_a_sound_meta_properties_a_node_does_not_start() -> None:
    disk = prepared()
    write_meta_properties(disk, "/logs/meta.properties", MetaProperties(cluster_id="abc", node_id=3))
    directory = open_directory(disk)
    assert directory.meta is not None
    assert directory.meta.node_id == 3
    directory.close(broker_epoch=1)
    disk.replace("/logs/meta.properties", b"version=7\n")
    with pytest.raises(CorruptFile):
        open_directory(disk)


def test_two_processes_cannot_have_one_directory() -> None:
    disk = prepared()
    directory = open_directory(disk)
    with pytest.raises(DirectoryInUse):
        open_directory(disk)
    directory.close(broker_epoch=1)
    open_directory(disk).close(broker_epoch=2)


def test_what_is_no_partition_is_left_alone_and_named() -> None:
    disk = prepared()
    for name in (f"x-0.{UNIQUE}-future", f"x-1.{UNIQUE}-stray", "lost+found", f"x-2.{UNIQUE}-delete"):
        disk.make_directory(f"/logs/{name}")
    disk.open("/logs/notes.txt", create=True)
    directory = open_directory(disk)
    assert set(directory.logs) == {A, B}
    assert directory.report.ignored == ["lost+found", f"x-1.{UNIQUE}-stray"]
    assert directory.report.unfinished == [f"x-0.{UNIQUE}-future"]
    assert directory.report.removed == [f"x-2.{UNIQUE}-delete"]
    assert not disk.exists(f"/logs/x-2.{UNIQUE}-delete")


def test_a_deleted_partition_is_out_of_the_way_at_once_and_removed_later() -> None:
    disk = prepared()
    directory = open_directory(disk)
    log = directory.logs[A]
    reading = log.read(0, 1000).records
    directory.delete({A: UNIQUE}, now_ms=NOW_MS)
    assert A not in offsets(disk, "recovery-point"), "or a new one of the name would be missed records"
    assert not disk.exists("/logs/a.b-c-3")
    with pytest.raises(KafkaStorageError):
        append(log, "three")
    assert reading is not None
    assert len(reading.read()) == len(reading)
    directory.sweep(NOW_MS + 99)
    assert disk.exists(f"/logs/a.b-c-3.{UNIQUE}-delete")
    directory.sweep(NOW_MS + 100)
    assert not disk.exists(f"/logs/a.b-c-3.{UNIQUE}-delete")
    again = directory.create(A, CONFIG, now_ms=NOW_MS)
    assert again.log_end_offset == 0


def test_logs_that_are_begun_together_share_the_sync_of_their_names() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    before = disk.operation_count
    names = [TopicPartition("many", number) for number in range(10)]
    logs = [directory.begin(name, CONFIG, now_ms=NOW_MS, topic_id=ID) for name in names]
    assert not directory.logs, "none is durable yet"
    directory.admit(logs)
    assert list(directory.logs) == names
    done = [operation for operation in disk.operations if operation.number > before]
    synced = [operation.path for operation in done if operation.kind is Kind.SYNC_DIRECTORY]
    assert sorted(synced) == ["/logs", *(f"/logs/many-{number}" for number in range(10))]
    assert len([operation for operation in done if operation.kind is Kind.SYNC]) == 10


def test_partitions_that_leave_together_are_left_out_of_the_checkpoints_together() -> None:
    def cost(count: int) -> int:
        disk = MemoryDisk()
        directory = open_directory(disk)
        names = [TopicPartition("many", number) for number in range(count)]
        directory.admit([directory.begin(name, CONFIG, now_ms=NOW_MS, topic_id=ID) for name in names])
        before = disk.operation_count
        directory.delete({name: f"{name.partition:032x}" for name in names}, now_ms=NOW_MS)
        assert not directory.logs
        assert offsets(disk, "recovery-point") == {}
        assert not any(disk.exists(f"/logs/{name}") for name in names)
        syncs = (Kind.SYNC, Kind.SYNC_DIRECTORY)
        return len([each for each in disk.operations if each.number > before and each.kind in syncs])

    assert cost(1) == cost(20)


@dataclass
class ExpectedPartitions:
    """What was promised: these partitions are there, or they are not, or either."""

    there: frozenset[TopicPartition] = frozenset()
    gone: frozenset[TopicPartition] = frozenset()


class HookedDisk(OsDisk):
    """Something happens just before the names in a partition's directory are synced."""

    happens: Callable[[], None] | None = None

    def sync_directory(self, path: str) -> None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        super().sync_directory(path)


def test_a_partition_that_is_deleted_while_it_is_synced_fails_no_other(tmp_path: Path) -> None:
    disk = HookedDisk()
    directory = LogDirectory.open(disk, str(tmp_path / "logs"), lambda name: CONFIG, now_ms=NOW_MS)
    going, staying = (directory.create(name, CONFIG, now_ms=NOW_MS) for name in (A, B))
    for number in range(30):
        append(going, f"{number} of so many that a segment is full")
    assert len(going.segments) > 1
    disk.happens = lambda: directory.delete({A: UNIQUE}, now_ms=NOW_MS)
    going.sync()
    assert A not in directory.logs, "it happened meanwhile"
    assert directory.failure is None
    append(staying, "goes on")
    staying.sync()


def test_a_directory_that_is_gone_itself_is_a_failure(tmp_path: Path) -> None:
    disk = HookedDisk()
    root = tmp_path / "logs"
    directory = LogDirectory.open(disk, str(root), lambda name: CONFIG, now_ms=NOW_MS)
    disk.happens = lambda: disk.rename(str(root), str(tmp_path / "elsewhere"))
    with pytest.raises(KafkaStorageError):
        directory.volume.sync_directory(str(root))
    assert directory.failure is not None


def made_and_deleted_together(disk: MemoryDisk, promise: Promise) -> None:
    promise(ExpectedPartitions())
    directory = open_directory(disk)
    directory.admit([directory.begin(name, CONFIG, now_ms=NOW_MS, topic_id=ID) for name in (A, B)])
    promise(ExpectedPartitions(there=frozenset({A, B})))
    for name in (A, B):
        append(directory.logs[name], "one")
        directory.logs[name].sync()
    directory.checkpoint()
    promise(ExpectedPartitions())  # while they leave, nothing is promised of them
    directory.delete({A: UNIQUE, B: UNIQUE[::-1]}, now_ms=NOW_MS)
    promise(ExpectedPartitions(gone=frozenset({A, B})))
    promise(ExpectedPartitions(gone=frozenset({B})))
    directory.create(A, CONFIG, now_ms=NOW_MS, topic_id=ID)
    promise(ExpectedPartitions(there=frozenset({A}), gone=frozenset({B})))


def found_whole(disk: MemoryDisk) -> dict[TopicPartition, bytes | None]:
    directory = open_directory(disk)
    assert directory.failure is None
    assert not directory.report.damaged_files
    for log in directory.logs.values():
        assert not log.quarantine, log.quarantine.damages[0]
    return {name: directory.topic_ids.get(name) for name in directory.logs}


def kept(found: dict[TopicPartition, bytes | None], promises: Sequence[ExpectedPartitions]) -> None:
    must = promises[-1]
    assert all(found.get(name) == ID for name in must.there), "a partition is gone, or does not know its topic"
    assert not must.gone & found.keys(), "a deleted partition is back"


def test_partitions_that_are_made_and_deleted_together_survive_every_crash() -> None:
    report = crash_everywhere(
        made_and_deleted_together, recover=found_whole, check=kept, prepare=lambda disk: disk.make_directory("/logs")
    )
    assert report.states > 100


def test_a_stray_partition_keeps_its_files() -> None:
    disk = prepared()
    directory = open_directory(disk)
    directory.mark_stray({B: UNIQUE})
    assert B not in directory.logs
    assert disk.list(f"/logs/orders-0.{UNIQUE}-stray")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.SYNC])
def test_the_first_failure_takes_the_whole_directory_offline(code: int, kind: Kind) -> None:
    disk = prepared()
    result: list[OSError] = []
    directory = open_directory(disk, on_failure=result.append)
    logs: list[Log] = list(directory.logs.values())
    disk.faults.add(Fault(kinds=frozenset({kind}), effect=Effect.FAILS, error=code))
    with suppress(KafkaStorageError):
        append(logs[0], "three")
        logs[0].sync()
    assert directory.failure is not None
    assert directory.failure.errno == code
    assert [error.errno for error in result] == [code]
    for log in logs:
        with pytest.raises(KafkaStorageError):
            append(log, "four")
        with pytest.raises(KafkaStorageError):
            log.sync()  # never again, though the disk would do it now (S4)
    directory.close(broker_epoch=9)
    assert not disk.exists("/logs/.kafka_cleanshutdown")


def test_a_disk_that_fails_at_the_start_leaves_a_directory_that_is_offline() -> None:
    disk = prepared()
    result: list[OSError] = []
    disk.faults.add(Fault(nth=8, effect=Effect.FAILS, times=ALWAYS))
    directory = open_directory(disk, on_failure=result.append, threads=1)
    assert directory.failure is not None
    assert not directory.logs
    assert len(result) == 1


def test_many_logs_are_loaded_in_parallel_with_progress(tmp_path: Path) -> None:
    disk, path = OsDisk(), f"{tmp_path}/logs"
    directory = LogDirectory.open(disk, path, lambda name: CONFIG, now_ms=NOW_MS)
    names = [TopicPartition("orders", number) for number in range(30)]
    for name in names:
        append(directory.create(name, CONFIG, now_ms=NOW_MS), f"{name}")
    directory.close(broker_epoch=1)
    seen: list[tuple[int, int, TopicPartition]] = []
    directory = LogDirectory.open(
        disk,
        path,
        lambda name: CONFIG,
        now_ms=NOW_MS,
        threads=4,
        progress=lambda done, total, name: seen.append((done, total, name)),
    )
    assert [done for done, _, _ in seen] == list(range(1, 31))
    assert {name for _, _, name in seen} == set(names)
    assert all(values(directory.logs[name]) == [f"{name}"] for name in names)
    directory.close(broker_epoch=1)


def test_an_unclean_stop_loses_no_bytes_that_the_machine_still_has(tmp_path: Path) -> None:
    disk, path = OsDisk(), f"{tmp_path}/logs"
    directory = LogDirectory.open(disk, path, lambda name: CONFIG, now_ms=NOW_MS)
    log = directory.create(B, CONFIG, now_ms=NOW_MS)
    for number in range(40):
        append(log, f"{number}")
    directory.close_handles()  # the process dies
    again = LogDirectory.open(disk, path, lambda name: CONFIG, now_ms=NOW_MS)
    assert not again.report.clean
    assert values(again.logs[B]) == [f"{number}" for number in range(40)]
    again.close(broker_epoch=1)


def test_checkpoints_that_are_written_from_two_threads_do_not_clash(tmp_path: Path) -> None:
    directory = LogDirectory.open(OsDisk(), str(tmp_path), lambda _: LogConfig(), now_ms=0)
    directory.create(TopicPartition("t", 0), LogConfig(), now_ms=0)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(directory.checkpoint) for _ in range(40)]:
            done.result()
    assert directory.failure is None
    directory.close(broker_epoch=1)


@pytest.mark.parametrize("threads", [1, 4])
def test_many_logs_are_closed_as_cleanly_as_few(tmp_path: Path, threads: int) -> None:
    names = [TopicPartition("t", number) for number in range(3 * directory_module.MAX_CLOSED_WITHOUT_THREADS)]
    directory = LogDirectory.open(OsDisk(), str(tmp_path), lambda name: LogConfig(), now_ms=1, threads=threads)
    for name in names:
        directory.create(name, LogConfig(), now_ms=1).append_as_leader(
            batch.build([Record(0, 1, None, b"v")]), leader_epoch=0, now_ms=1
        )
    directory.close(broker_epoch=7)
    found = LogDirectory.open(OsDisk(), str(tmp_path), lambda name: LogConfig(), now_ms=1)
    assert found.report.clean and sorted(found.logs) == sorted(names)
    assert all(log.log_end_offset == log.recovery_point == 1 and log.report is None for log in found.logs.values())
    found.close_handles()
