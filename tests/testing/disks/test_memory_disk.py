"""The disk in memory: what a crash may lose, what it must keep, and how it fails on demand."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from trioka.testing.disks import memory_disk
from trioka.testing.disks.crash_models import ALL, LOST, SECTOR, CrashModel, Fill, Survival, Write, draw, every
from trioka.testing.disks.disk_faults import ALWAYS, DiskOperation, Effect, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk

SEEDS = range(200)


def refuses(number: int, action: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(OSError) as refusal:  # noqa: PT011 - the errno is what counts
        action(*arguments)
    assert refusal.value.errno == number


def outcomes(disk: MemoryDisk, model: CrashModel) -> list[dict[str, bytes]]:
    """Every different set of files that a crash can leave."""
    pending = disk.pending()
    found = [disk.after(pending, survivals).files() for survivals in every(model, pending)]
    return [files for index, files in enumerate(found) if files not in found[:index]]


def contents(disk: MemoryDisk, model: CrashModel, path: str = "/f") -> set[bytes | None]:
    return {files.get(path) for files in outcomes(disk, model)}


# What is durable.


@pytest.mark.parametrize("model", CrashModel)
def test_nothing_that_was_synced_is_lost(model: CrashModel) -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    file = disk.open("/d/f", create=True)
    disk.sync_directory("/d")
    file.write(0, b"x" * 2000)
    file.truncate(1500)
    file.sync()
    file.write(1500, b"y" * 2000)
    disk.open("/d/g", create=True)
    for seed in SEEDS:
        found = disk.crash(model, Random(seed))
        assert found.read("/d/f")[:1500] == b"x" * 1500
    for files in outcomes(disk, model):
        assert files["/d/f"][:1500] == b"x" * 1500


def test_a_sync_of_a_file_does_not_make_its_name_durable() -> None:
    disk = MemoryDisk()
    file = disk.open("/f", create=True)
    file.write(0, b"x")
    file.sync()
    assert contents(disk, CrashModel.ORDERED_PREFIX) == {None, b"x"}
    disk.sync_directory("/")
    assert contents(disk, CrashModel.ORDERED_PREFIX) == {b"x"}


def test_a_sync_of_a_directory_does_not_make_the_bytes_durable() -> None:
    disk = MemoryDisk()
    disk.open("/f", create=True).write(0, b"x")
    disk.sync_directory("/")
    assert contents(disk, CrashModel.ORDERED_PREFIX) == {b"", b"x"}


def test_a_new_directory_is_lost_with_all_that_is_in_it_until_its_parent_is_synced() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.replace("/d/f", b"x")
    assert {} in outcomes(disk, CrashModel.ORDERED_PREFIX)
    disk.sync_directory("/")
    assert outcomes(disk, CrashModel.ORDERED_PREFIX) == [{"/d/f": b"x"}]


def test_a_rename_is_never_half_done() -> None:
    disk = MemoryDisk({"/a/f": b"new", "/b/f": b"old"})
    disk.rename("/a/f", "/b/f")
    for model in CrashModel:
        assert outcomes(disk, model) == [{"/a/f": b"new", "/b/f": b"old"}, {"/b/f": b"new"}]


@pytest.mark.parametrize("synced", ["/a", "/b"])
def test_a_rename_is_durable_once_either_directory_is_synced(synced: str) -> None:
    disk = MemoryDisk({"/a/f": b"new", "/b/f": b"old"})
    disk.rename("/a/f", "/b/f")
    disk.sync_directory(synced)
    assert outcomes(disk, CrashModel.ANY_SUBSET) == [{"/b/f": b"new"}]


def test_a_remove_may_be_undone_by_a_crash() -> None:
    disk = MemoryDisk({"/f": b"x"})
    disk.remove("/f")
    assert not disk.exists("/f")
    assert contents(disk, CrashModel.ORDERED_PREFIX) == {None, b"x"}
    disk.sync_directory("/")
    assert contents(disk, CrashModel.ORDERED_PREFIX) == {None}


def test_a_removed_directory_leaves_nothing_pending() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d/e")
    disk.replace("/d/e/f", b"x")
    disk.open("/d/e/g", create=True).write(0, b"x")
    disk.remove_tree("/d")
    disk.sync_directory("/")
    disk.open("/other", create=True)
    disk.sync_directory("/")
    assert list(disk.pending()) == []
    assert disk.used_bytes() == 0


def test_a_killed_process_leaves_all_that_it_wrote_and_no_more_of_it_synced() -> None:
    disk = MemoryDisk({"/f": b"old"})
    held = disk.lock("/f")
    held.write(0, b"new")
    found = disk.after_kill()
    assert found.files() == {"/f": b"new"}
    assert contents(found, CrashModel.ORDERED_PREFIX) == {b"old", b"new"}
    held.write(0, b"OLD")  # by the killed process: not visible
    assert found.lock("/f").read(0, 3) == b"new"


def test_the_old_disk_is_as_it_was_after_a_crash() -> None:
    disk = MemoryDisk()
    file = disk.open("/f", create=True)
    file.write(0, b"x" * 1000)
    found = disk.crash(CrashModel.ORDERED_PREFIX, Random(1))
    found.replace("/f", b"something else")
    assert disk.read("/f") == b"x" * 1000
    file.write(1000, b"y")
    assert disk.size("/f") == 1001


# The three models.


def two_sectors_and_two_more() -> MemoryDisk:
    disk = MemoryDisk({"/f": b""})
    disk.open("/f").write(0, b"a" * 2 * SECTOR)
    disk.open("/f").write(2 * SECTOR, b"b" * 2 * SECTOR)
    return disk


def test_in_order_a_prefix_of_the_sectors_arrives() -> None:
    whole = b"a" * 2 * SECTOR + b"b" * 2 * SECTOR
    assert contents(two_sectors_and_two_more(), CrashModel.ORDERED_PREFIX) == {whole[: n * SECTOR] for n in range(5)}


def test_any_subset_may_leave_a_hole_of_zeros() -> None:
    found = contents(two_sectors_and_two_more(), CrashModel.ANY_SUBSET)
    assert bytes(2 * SECTOR) + b"b" * 2 * SECTOR in found  # the second write without the first
    assert bytes(SECTOR) + b"a" * SECTOR in found  # half of the first
    assert b"a" * 2 * SECTOR + bytes(SECTOR) + b"b" * SECTOR in found


def test_metadata_first_leaves_files_of_the_right_size_with_the_wrong_content() -> None:
    found = contents(two_sectors_and_two_more(), CrashModel.METADATA_FIRST)
    assert bytes(4 * SECTOR) in found
    sized = [content for content in found if content is not None and len(content) == 4 * SECTOR]
    garbage = [c for c in sized if c.strip(b"ab\0")]
    assert garbage, "no state with garbage"


def test_metadata_first_keeps_old_bytes_where_they_were_overwritten() -> None:
    disk = MemoryDisk({"/f": b"old"})
    disk.open("/f").write(0, b"newer")
    found = contents(disk, CrashModel.METADATA_FIRST)
    assert b"old\0\0" in found
    assert all(content and content[:3] in (b"old", b"new") for content in found)


def test_a_truncate_may_be_lost_while_a_later_write_arrives() -> None:
    disk = MemoryDisk({"/f": b"abcdef"})
    file = disk.open("/f")
    file.truncate(2)
    file.write(2, b"X")
    assert contents(disk, CrashModel.ORDERED_PREFIX) == {b"abcdef", b"ab", b"abX"}
    assert contents(disk, CrashModel.ANY_SUBSET) == {b"abcdef", b"ab", b"abX", b"abXdef"}


def test_sectors_are_those_of_the_file_and_not_of_the_write() -> None:
    across = Write(number=1, inode=1, offset=SECTOR - 1, data=b"xy")
    assert across.sectors == 2
    disk = MemoryDisk({"/f": b"." * 2 * SECTOR})
    disk.open("/f").write(SECTOR - 1, b"xy")
    (change,) = disk.pending()
    found = disk.after([change], [Survival(0b10)]).read("/f")
    assert found[SECTOR - 1 : SECTOR + 1] == b".y"


def test_chance_only_draws_what_the_model_allows() -> None:
    disk = MemoryDisk({"/f": b""})
    for number in range(4):
        disk.open("/f").write(number * 300, bytes([65 + number]) * 300)
    disk.open("/g", create=True)
    pending = disk.pending()
    whole = disk.files()["/f"]
    for seed in SEEDS:
        prefix = disk.crash(CrashModel.ORDERED_PREFIX, Random(seed)).read("/f")
        assert prefix == whole[: len(prefix)]
        survivals = draw(CrashModel.METADATA_FIRST, pending, Random(seed))
        sizes = [survival != LOST for survival in survivals]
        assert sizes == sorted(sizes, reverse=True)  # names and sizes arrive in order
    assert len({disk.crash(CrashModel.ANY_SUBSET, Random(seed)).read("/f") for seed in SEEDS}) > 10


@pytest.mark.parametrize("model", CrashModel)
def test_the_same_seed_leaves_the_same_disk(model: CrashModel) -> None:
    disk = two_sectors_and_two_more()
    for seed in range(20):
        assert disk.crash(model, Random(seed)).files() == disk.crash(model, Random(seed)).files()


def test_every_outcome_has_one_fate_for_each_pending_operation() -> None:
    pending = two_sectors_and_two_more().pending()
    for model in CrashModel:
        for survivals in every(model, pending):
            assert len(survivals) == len(pending)
    assert [ALL, ALL] in every(CrashModel.ANY_SUBSET, pending)
    assert Survival(0, Fill.GARBAGE) in [
        s for survivals in every(CrashModel.METADATA_FIRST, pending) for s in survivals
    ]


# Faults.


def kinds(*names: Kind) -> frozenset[Kind]:
    return frozenset(names)


def test_the_kth_operation_fails_and_does_nothing() -> None:
    disk = MemoryDisk({"/f": b"abc"})
    disk.faults.add(Fault(nth=2, kinds=kinds(Kind.WRITE), error=errno.EROFS))
    file = disk.open("/f")
    file.write(0, b"1")
    refuses(errno.EROFS, file.write, 1, b"2")
    file.write(2, b"3")
    assert disk.read("/f") == b"1b3"
    assert disk.faults.fired == 1


def test_a_fault_without_kinds_counts_every_operation() -> None:
    disk = MemoryDisk({"/f": b"abc"})
    disk.faults.add(Fault(nth=3, times=2))
    file = disk.open("/f")
    file.read(0, 1)
    refuses(errno.EIO, file.sync)
    refuses(errno.EIO, disk.rename, "/f", "/g")
    disk.rename("/f", "/g")


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_operation_can_fail(kind: Kind) -> None:
    disk = MemoryDisk({"/d/f": b"abc"})
    file = disk.open("/d/f")
    before = disk.files()
    disk.faults.add(Fault(kinds=kinds(kind), times=ALWAYS))
    action: dict[Kind, Callable[[], object]] = {
        Kind.OPEN: lambda: disk.open("/d/f"),
        Kind.CREATE: lambda: disk.open("/d/g", create=True),
        Kind.READ: lambda: file.read(0, 1),
        Kind.WRITE: lambda: file.write(0, b"x"),
        Kind.TRUNCATE: lambda: file.truncate(0),
        Kind.SYNC: file.sync,
        Kind.MAP: lambda: file.map(1),
        Kind.LIST: lambda: disk.list("/d"),
        Kind.MAKE_DIRECTORY: lambda: disk.make_directory("/e"),
        Kind.RENAME: lambda: disk.rename("/d/f", "/d/g"),
        Kind.REMOVE: lambda: disk.remove("/d/f"),
        Kind.SYNC_DIRECTORY: lambda: disk.sync_directory("/d"),
    }
    refuses(errno.EIO, action[kind])
    refuses(errno.EIO, action[kind])
    assert disk.files() == before
    assert not disk.pending()
    disk.faults.clear()
    action[kind]()


def test_half_a_write_may_arrive() -> None:
    disk = MemoryDisk({"/f": b""})
    disk.faults.add(Fault(kinds=kinds(Kind.WRITE), effect=Effect.HALF, error=errno.EIO))
    refuses(errno.EIO, disk.open("/f").write, 0, b"abcdef")
    assert disk.read("/f") == b"abc"


def test_a_sync_that_drops_its_pages_succeeds_the_second_time_and_loses_the_bytes() -> None:
    disk = MemoryDisk({"/f": b""})
    disk.faults.add(Fault(kinds=kinds(Kind.SYNC), effect=Effect.DROPS))
    file = disk.open("/f")
    file.write(0, b"abc")
    refuses(errno.EIO, file.sync)
    assert file.read(0, 3) == b"abc"  # a reader sees it still
    file.write(3, b"def")
    file.sync()
    assert contents(disk, CrashModel.ANY_SUBSET) == {b"\0\0\0def"}


def test_a_lying_sync_makes_nothing_durable() -> None:
    disk = MemoryDisk({"/f": b""})
    disk.faults.add(Fault(kinds=kinds(Kind.SYNC, Kind.SYNC_DIRECTORY), effect=Effect.LIES, times=ALWAYS))
    file = disk.open("/f")
    file.write(0, b"abc")
    file.sync()
    disk.rename("/f", "/g")
    disk.sync_directory("/")
    assert {"/f": b""} in outcomes(disk, CrashModel.ORDERED_PREFIX)


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = MemoryDisk({"/f": b"abc"}, capacity_bytes=10)
    file = disk.open("/f")
    refuses(errno.ENOSPC, file.write, 3, b"0123456789")
    assert disk.read("/f") == b"abc0123456"
    assert disk.free_bytes("/") == 0
    file.write(0, b"ABC")  # there is room for bytes that are there already
    refuses(errno.ENOSPC, file.write, 10, b"x")
    disk.remove("/f")
    assert disk.free_bytes("/") == 10


def test_a_bit_flips_at_rest_and_stays_flipped() -> None:
    disk = MemoryDisk({"/f": b"abc"})
    disk.flip_bit("/f", 1, 0)
    assert disk.read("/f") == b"acc"
    assert contents(disk, CrashModel.ORDERED_PREFIX) == {b"acc"}


def test_a_hook_is_called_before_each_operation() -> None:
    disk = MemoryDisk({"/f": b""})
    result: list[tuple[str, bytes]] = []

    def tell(operation: DiskOperation) -> None:
        result.append((operation.kind.value, disk.files()["/f"]))

    disk.before = tell
    file = disk.open("/f")
    file.write(0, b"x")
    file.sync()
    assert result == [("open", b""), ("write", b""), ("sync", b"x")]


def test_operations_are_counted_and_can_be_read_back() -> None:
    disk = MemoryDisk()
    disk.replace("/f", b"abc")
    assert [str(operation).split(maxsplit=1)[1] for operation in disk.operations] == [
        "create /f.tmp",
        "truncate /f.tmp to 0 bytes",
        "write /f.tmp 3 bytes at 0",
        "sync /f.tmp",
        "rename /f.tmp to /f",
        "sync directory /",
    ]
    assert disk.operation_count == 6


def test_a_file_that_is_never_synced_is_written_back_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_disk, "PENDING_PER_FILE", 3)
    disk = MemoryDisk({"/f": b""})
    for number in range(10):
        disk.open("/f").write(number, b"x")
    assert len(disk.pending()) <= 3


def test_a_locked_file_is_free_after_a_crash() -> None:
    disk = MemoryDisk()
    disk.lock("/.lock")
    refuses(errno.EAGAIN, disk.lock, "/.lock")
    disk.crash(CrashModel.ORDERED_PREFIX, Random(0)).lock("/.lock").close()


def test_there_is_no_descriptor_for_sendfile() -> None:
    refuses(errno.EOPNOTSUPP, MemoryDisk({"/f": b""}).open("/f").fileno)
