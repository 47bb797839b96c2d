"""A log directory fails once and for all."""

import errno
from collections.abc import Callable

import pytest

from trioka.protocol.errors import KafkaStorageError
from trioka.storage.disk import Disk
from trioka.storage.failstop_disk import FailStopDisk, OutOfDescriptors, must_complete
from trioka.testing.disks.disk_faults import Effect, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk


def volume_on(disk: MemoryDisk) -> FailStopDisk:
    disk.make_directory("/logs")
    return FailStopDisk(disk, "/logs")


@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.SYNC, Kind.TRUNCATE, Kind.READ, Kind.RENAME, Kind.SYNC_DIRECTORY])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_after_the_first_failure_nothing_touches_the_disk(kind: Kind, error: int) -> None:
    disk = MemoryDisk()
    volume = volume_on(disk)
    file = volume.open("/logs/f", create=True)
    actions: dict[Kind, Callable[[], object]] = {
        Kind.WRITE: lambda: file.write(0, b"x"),
        Kind.SYNC: file.sync,
        Kind.TRUNCATE: lambda: file.truncate(9),
        Kind.READ: lambda: file.read(0, 1),
        Kind.RENAME: lambda: volume.rename("/logs/f", "/logs/g"),
        Kind.SYNC_DIRECTORY: lambda: volume.sync_directory("/logs"),
    }
    disk.faults.add(Fault(kinds=frozenset({kind}), error=error))
    with pytest.raises(KafkaStorageError, match="/logs is offline"):
        actions[kind]()
    assert volume.failure is not None
    assert volume.failure.errno == error
    count = disk.operation_count
    for action in actions.values():
        with pytest.raises(KafkaStorageError):
            action()
    looks: list[Callable[[str], object]] = [
        volume.list,
        volume.size,
        volume.exists,
        volume.read,
        volume.open,
        volume.lock,
    ]
    for look in looks:
        with pytest.raises(KafkaStorageError):
            look("/logs/f")
    assert disk.operation_count == count
    file.close()


def test_a_failed_sync_cannot_be_tried_again() -> None:
    """Without the volume the second sync would succeed, with the bytes gone."""
    disk = MemoryDisk()
    volume = volume_on(disk)
    file = volume.open("/logs/f", create=True)
    file.write(0, b"x")
    disk.faults.add(Fault(kinds=frozenset({Kind.SYNC}), effect=Effect.DROPS))
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            file.sync()


def test_an_answer_is_not_a_failure() -> None:
    volume = volume_on(MemoryDisk())
    with pytest.raises(FileNotFoundError):
        volume.open("/logs/none")
    with pytest.raises(FileNotFoundError):
        volume.remove("/logs/none")
    volume.replace("/logs/d", b"123")
    with pytest.raises(FileExistsError):
        volume.make_directory("/logs/d")
    file = volume.open("/logs/d")
    part = memoryview(file.map(3))[1:]
    with pytest.raises(OSError, match="busy"):
        file.truncate(0)
    part.release()
    assert volume.failure is None
    assert volume.read("/logs/d") == b"123"


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("kind", [Kind.OPEN, Kind.CREATE, Kind.MAP, Kind.LIST, Kind.SYNC_DIRECTORY])
def test_a_shortage_of_descriptors_is_no_failure(kind: Kind, error: int) -> None:
    disk = MemoryDisk()
    volume = volume_on(disk)
    volume.replace("/logs/f", b"123")
    file = volume.open("/logs/f")
    actions: dict[Kind, Callable[[], object]] = {
        Kind.OPEN: lambda: volume.open("/logs/f"),
        Kind.CREATE: lambda: volume.open("/logs/g", create=True),
        Kind.MAP: lambda: file.map(3),
        Kind.LIST: lambda: volume.list("/logs"),
        Kind.SYNC_DIRECTORY: lambda: volume.sync_directory("/logs"),
    }
    disk.faults.add(Fault(kinds=frozenset({kind}), error=error))
    with pytest.raises(OutOfDescriptors) as shortage:
        actions[kind]()
    assert (shortage.value.code, shortage.value.retriable) == (KafkaStorageError.code, True)
    assert volume.failure is None
    actions[kind]()


@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.SYNC])
def test_what_is_open_needs_no_descriptor_so_the_same_error_is_a_failure(kind: Kind) -> None:
    disk = MemoryDisk()
    volume = volume_on(disk)
    file = volume.open("/logs/f", create=True)
    disk.faults.add(Fault(kinds=frozenset({kind}), error=errno.EMFILE))
    with pytest.raises(KafkaStorageError, match="offline"):
        file.sync() if kind is Kind.SYNC else file.write(0, b"x")
    assert volume.failure is not None


def test_steps_that_belong_together_and_find_no_descriptor_take_the_volume_offline() -> None:
    disk = MemoryDisk()
    volume = volume_on(disk)
    disk.faults.add(Fault(kinds=frozenset({Kind.SYNC_DIRECTORY}), error=errno.EMFILE))
    with pytest.raises(OutOfDescriptors), must_complete(volume):
        volume.sync_directory("/logs")
    assert volume.failure is not None
    assert volume.failure.errno == errno.EMFILE


def test_the_first_failure_is_reported_once() -> None:
    disk = MemoryDisk()
    disk.make_directory("/logs")
    result: list[OSError] = []
    volume = FailStopDisk(disk, "/logs/", result.append)
    disk.faults.add(Fault(kinds=frozenset({Kind.LIST, Kind.CREATE}), times=9))
    for _ in range(3):
        with pytest.raises(KafkaStorageError):
            volume.list("/logs")
    assert [error.errno for error in result] == [errno.EIO]


def test_one_volume_fails_alone() -> None:
    disk = MemoryDisk()
    disk.make_directory("/a")
    disk.make_directory("/b")
    first, second = FailStopDisk(disk, "/a"), FailStopDisk(disk, "/b")
    disk.faults.add(Fault(kinds=frozenset({Kind.CREATE})))
    with pytest.raises(KafkaStorageError):
        first.replace("/a/f", b"")
    second.replace("/b/f", b"")


@pytest.mark.parametrize("path", ["/other", "/logs2/f", "/logs/../other", "/logs/..", "logs/f"])
def test_a_path_outside_is_a_mistake_of_ours(path: str) -> None:
    with pytest.raises(AssertionError, match="not below /logs"):
        volume_on(MemoryDisk()).exists(path)


def test_a_volume_is_a_disk() -> None:
    disk: Disk = volume_on(MemoryDisk())
    disk.make_directory("/logs/t-0")
    disk.replace("/logs/t-0/f", b"x")
    disk.rename("/logs/t-0", "/logs/t-1")
    assert disk.list("/logs/t-1") == ["f"]
    assert disk.free_bytes("/logs") > 0
    assert disk.is_directory("/logs/t-1")
    file = disk.open("/logs/t-1/f")
    assert file.is_resident(0, 1)
    assert file.size() == 1
    disk.remove_tree("/logs/t-1")
    assert disk.list("/logs") == []
