"""What every Disk promises, asked of the real one and of the one in memory; then what only the real one can show."""

import errno
import mmap
import multiprocessing
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trioka.storage.files import cachestat
from trioka.storage.files.disk import (
    DIRECTORY_MODE,
    FILE_MODE,
    IOV_MAX,
    MAPS_PER_FILE,
    WHOLE_FILE_LIMIT,
    Disk,
    OsDisk,
    OsFile,
)
from trioka.testing.disks.memory_disk import MemoryDisk


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest, root: str) -> Disk:
    if request.param == "os":
        return OsDisk()
    memory = MemoryDisk()
    memory.make_directory(root)
    return memory


def refuses(number: int, action: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(OSError) as refusal:  # noqa: PT011 - the errno is what counts
        action(*arguments)
    assert refusal.value.errno == number


# Files.


def test_what_was_written_is_read(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    assert file.write(0, b"hello ", bytearray(b"wor"), memoryview(b"ld")) == 11
    assert file.read(0, 11) == b"hello world"
    assert file.read(6, 3) == b"wor"
    assert file.size() == disk.size(f"{root}/f") == 11
    file.close()
    assert disk.read(f"{root}/f") == b"hello world"


def test_a_read_is_short_only_at_the_end(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.write(0, b"abc")
    assert file.read(1, 100) == b"bc"
    assert file.read(3, 100) == b""
    assert file.read(1000, 1) == b""
    file.close()


def test_a_write_behind_the_end_leaves_zeros(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.write(4, b"x")
    assert file.read(0, 10) == b"\0\0\0\0x"
    file.close()


def test_any_number_of_buffers_is_written(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    buffers = [bytes([index % 251]) * (index % 3) for index in range(3 * IOV_MAX + 1)]
    assert file.write(2, *buffers) == sum(map(len, buffers))
    assert file.read(2, file.size()) == b"".join(buffers)
    assert file.write(0) == 0
    file.close()


def test_truncate_shrinks_and_grows(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.write(0, b"abcdef")
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 10) == b"ab\0\0"
    file.close()


def test_a_closed_file_refuses_everything_but_another_close(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.close()
    file.close()
    refuses(errno.EBADF, file.write, 0, b"x")
    refuses(errno.EBADF, file.read, 0, 1)
    refuses(errno.EBADF, file.sync)
    refuses(errno.EBADF, file.size)
    refuses(errno.EBADF, file.truncate, 0)
    refuses(errno.EBADF, file.map, 1)


def test_a_file_that_is_renamed_while_open_goes_on(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    disk.rename(f"{root}/f", f"{root}/g")
    file.write(0, b"x")
    file.close()
    assert disk.read(f"{root}/g") == b"x"


# Maps.


def test_a_map_shows_the_beginning_of_the_file(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.write(0, b"abcdef")
    view = file.map(4)
    assert bytes(view) == b"abcd"
    assert len(file.map(0)) == 0
    with pytest.raises(TypeError):
        view[0:1] = b"x"  # type: ignore[index]
    refuses(errno.EINVAL, file.map, 7)
    refuses(errno.EINVAL, file.map, -1)
    file.close()
    assert bytes(view[:2]) == b"ab"  # a map outlives its file


def test_a_map_is_dead_once_the_file_shrank(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.write(0, b"x" * 10_000)
    view = file.map(10_000)
    file.truncate(100)
    with pytest.raises(ValueError, match=r"closed|released"):
        view[9_000]
    file.close()


def test_a_file_does_not_shrink_under_a_map_in_use(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.write(0, b"x" * 10_000)
    view = file.map(10_000)
    reply = memoryview(view)[5_000:]
    refuses(errno.EBUSY, file.truncate, 100)
    assert file.size() == 10_000
    assert reply[4_999] == ord("x")
    reply.release()
    del reply
    file.truncate(100)
    assert file.size() == 100
    file.close()


def test_a_file_that_grows_keeps_its_maps(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.write(0, b"abc")
    view = file.map(3)
    file.truncate(10)
    file.write(10, b"def")
    assert bytes(view) == b"abc"
    file.close()


# Names.


def test_opening_what_is_not_there_is_an_error_unless_it_may_be_created(disk: Disk, root: str) -> None:
    refuses(errno.ENOENT, disk.open, f"{root}/f")
    assert not disk.exists(f"{root}/f")
    disk.open(f"{root}/f", create=True).close()
    assert disk.exists(f"{root}/f")
    assert not disk.is_directory(f"{root}/f")
    disk.open(f"{root}/f", create=True).close()
    refuses(errno.ENOENT, disk.size, f"{root}/g")
    refuses(errno.EISDIR, disk.open, root)


def test_directories_are_made_with_their_parents_and_listed_in_order(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/a/b/c")
    disk.make_directory(f"{root}/a/b/c")
    for name in ("z", "y", "10", "9"):
        disk.open(f"{root}/a/b/{name}", create=True).close()
    assert disk.list(f"{root}/a/b") == ["10", "9", "c", "y", "z"]
    assert disk.is_directory(f"{root}/a/b/c")
    refuses(errno.ENOENT, disk.list, f"{root}/none")
    refuses(errno.EEXIST, disk.make_directory, f"{root}/a/b/z")
    assert not disk.exists(f"{root}/a/b/z/below")


def test_a_rename_replaces_and_moves(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/d")
    disk.replace(f"{root}/f", b"new")
    disk.replace(f"{root}/d/f", b"old")
    disk.rename(f"{root}/f", f"{root}/d/f")
    assert disk.read(f"{root}/d/f") == b"new"
    assert disk.list(root) == ["d"]
    disk.rename(f"{root}/d", f"{root}/e")
    assert disk.read(f"{root}/e/f") == b"new"
    refuses(errno.ENOENT, disk.rename, f"{root}/none", f"{root}/x")


def test_a_rename_does_not_mix_files_and_directories(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/d/full")
    disk.make_directory(f"{root}/e")
    disk.replace(f"{root}/f", b"")
    refuses(errno.EISDIR, disk.rename, f"{root}/f", f"{root}/e")
    refuses(errno.ENOTDIR, disk.rename, f"{root}/e", f"{root}/f")
    refuses(errno.ENOTEMPTY, disk.rename, f"{root}/e", f"{root}/d")


def test_remove_takes_a_file_or_an_empty_directory(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/d/e")
    disk.replace(f"{root}/d/f", b"x")
    refuses(errno.ENOTEMPTY, disk.remove, f"{root}/d")
    disk.remove(f"{root}/d/e")
    disk.remove(f"{root}/d/f")
    disk.remove(f"{root}/d")
    assert disk.list(root) == []
    refuses(errno.ENOENT, disk.remove, f"{root}/d")


def test_a_tree_is_removed_with_all_that_is_in_it(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/d/e/f")
    disk.replace(f"{root}/d/e/g", b"x")
    disk.replace(f"{root}/kept", b"x")
    disk.remove_tree(f"{root}/d")
    assert disk.list(root) == ["kept"]
    refuses(errno.ENOENT, disk.remove_tree, f"{root}/d")


def test_replace_puts_new_content_and_leaves_no_temporary_file(disk: Disk, root: str) -> None:
    disk.replace(f"{root}/f", b"a long first content")
    disk.open(f"{root}/f.tmp", create=True).write(0, b"left by a crash, and longer than what comes")
    disk.replace(f"{root}/f", b"second")
    assert disk.read(f"{root}/f") == b"second"
    assert disk.list(root) == ["f"]


def test_a_file_too_large_to_be_read_whole_is_refused(disk: Disk, root: str) -> None:
    if isinstance(disk, MemoryDisk):
        pytest.skip("it would really take the memory")
    file = disk.open(f"{root}/f", create=True)
    file.truncate(WHOLE_FILE_LIMIT + 1)
    file.close()
    refuses(errno.EFBIG, disk.read, f"{root}/f")


def test_there_is_room_on_the_disk(disk: Disk, root: str) -> None:
    assert disk.free_bytes(root) > 0


# Only the real one.


def test_files_and_directories_are_for_their_owner_alone(root: str) -> None:
    disk = OsDisk()
    disk.make_directory(f"{root}/a/b")
    disk.replace(f"{root}/a/b/f", b"secret")
    assert stat.S_IMODE(os.stat(f"{root}/a").st_mode) == DIRECTORY_MODE
    assert stat.S_IMODE(os.stat(f"{root}/a/b").st_mode) == DIRECTORY_MODE
    assert stat.S_IMODE(os.stat(f"{root}/a/b/f").st_mode) == FILE_MODE


def test_descriptors_do_not_pass_to_child_processes(root: str) -> None:
    file = OsDisk().open(f"{root}/f", create=True)
    assert not os.get_inheritable(file.fileno())
    file.close()


def test_a_short_write_is_continued(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is made to take three bytes at a time."""
    pwritev = os.pwritev
    steps: list[int] = []

    def three_bytes(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        steps.append(offset)
        return pwritev(descriptor, [memoryview(b"".join(buffers))[:3]], offset)

    monkeypatch.setattr(os, "pwritev", three_bytes)
    monkeypatch.setattr(os, "pwrite", lambda fd, buffer, offset: three_bytes(fd, [buffer], offset))
    file = OsDisk().open(f"{root}/f", create=True)
    assert file.write(10, b"abcdefgh") == 8
    assert file.write(18, b"ij", b"", b"klmnop", b"q") == 9
    assert file.read(10, 100) == b"abcdefghijklmnopq"
    assert steps == [10, 13, 16, 18, 21, 24]
    file.close()


def test_a_kernel_that_writes_nothing_does_not_hang_us(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda fd, buffer, offset: 0)
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: 0)
    file = OsDisk().open(f"{root}/f", create=True)
    refuses(errno.EIO, file.write, 0, b"x")
    file.close()


def test_a_short_read_is_continued(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk().open(f"{root}/f", create=True)
    file.write(0, b"abcdefgh")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 3), offset))
    assert file.read(0, 8) == b"abcdefgh"
    assert file.read(4, 100) == b"efgh"
    file.close()


def _write_against_the_limit(path: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    file = OsDisk().open(path, create=True)
    file.write(0, b"x" * 900)
    refuses(errno.EFBIG, file.write, 900, b"y" * 50, b"z" * 100)
    assert file.size() == 1000


def test_a_write_that_cannot_be_completed_raises(root: str) -> None:
    """A limit on file sizes makes the kernel write a part and then refuse, as a full disk does."""
    child = multiprocessing.get_context("spawn").Process(target=_write_against_the_limit, args=(f"{root}/f",))
    child.start()
    child.join()
    assert child.exitcode == 0


def test_a_full_disk_is_enospc() -> None:
    descriptor = os.open("/dev/full", os.O_RDWR)
    file = OsFile("/dev/full", descriptor)
    refuses(errno.ENOSPC, file.write, 0, b"x")
    file.close()


def test_maps_of_one_file_are_bounded_and_given_back(root: str) -> None:
    file = OsDisk().open(f"{root}/f", create=True)
    file.write(0, b"x")
    maps = [file.map(1) for _ in range(MAPS_PER_FILE)]
    refuses(errno.EMFILE, file.map, 1)
    last = maps.pop()
    assert isinstance(last, mmap.mmap)
    last.close()
    maps.append(file.map(1))
    maps.clear()
    file.map(1)
    file.close()


def test_what_was_just_written_is_resident(root: str) -> None:
    file = OsDisk().open(f"{root}/f", create=True)
    file.write(0, b"x" * 200_000)
    assert file.is_resident(0, 200_000)
    assert file.is_resident(150_000, 1)
    assert file.is_resident(0, 0)
    assert file.is_resident(500_000, 10)  # nothing there to wait for
    file.close()


def test_what_is_not_in_memory_is_not_resident(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk().open(f"{root}/f", create=True)
    file.write(0, b"x" * 400_000)
    probed: list[int] = []

    def cold_behind_280_000(descriptor: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        probed.append(offset)
        if offset > 280_000:
            raise BlockingIOError(errno.EAGAIN, "cold")
        return 1

    monkeypatch.setattr(os, "preadv", cold_behind_280_000)
    monkeypatch.setattr(cachestat, "cached_pages", lambda *_: None)  # as on an older kernel
    assert file.is_resident(0, 280_000)
    assert not file.is_resident(200_000, 200_000)
    assert probed == [279_999, 0, 131_072, 262_144, 399_999]
    file.close()


def test_what_is_not_in_memory_is_not_resident_wherever_it_is(root: str) -> None:
    """The kernel is asked to forget some pages, and does."""
    file = OsDisk().open(f"{root}/f", create=True)
    file.write(0, b"x" * 4_000_000)
    file.sync()
    if cachestat.cached_pages(file.fileno(), 0, 4_000_000) is None:
        pytest.skip("this kernel does not count pages")
    assert file.is_resident(0, 4_000_000)
    assert file.is_resident(0, 5_000_000)  # nothing to wait for behind the end
    os.posix_fadvise(file.fileno(), 1 << 20, 1 << 20, os.POSIX_FADV_DONTNEED)
    if file.is_resident(3 << 19, 1):
        pytest.skip("this file system forgets nothing")
    assert not file.is_resident(0, 4_000_000)
    assert file.is_resident(3 << 20, 500_000)
    file.close()


def test_what_is_warmed_is_in_memory(root: str) -> None:
    file = OsDisk().open(f"{root}/f", create=True)
    file.write(0, b"x" * (8 << 20))
    file.sync()
    descriptor = file.fileno()
    if cachestat.cached_pages(descriptor, 0, 8 << 20) is None:
        pytest.skip("this kernel does not count pages")
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if cachestat.cached_pages(descriptor, 1 << 20, 6 << 20):
        pytest.skip("this file system forgets nothing")
    file.warm(1 << 20, 1 << 20)
    assert cachestat.cached_pages(descriptor, 1 << 20, 1 << 20) == cachestat.touched_pages(1 << 20, 1 << 20)
    file.warm(4 << 20, 1 << 30)  # as far as the file goes
    assert cachestat.cached_pages(descriptor, 4 << 20, 4 << 20) == cachestat.touched_pages(0, 4 << 20)
    file.close()


def test_to_warm_a_file_that_is_closed_is_an_error(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.close()
    refuses(errno.EBADF, file.warm, 0, 10)


def test_the_pages_of_a_range_are_those_that_it_touches() -> None:
    assert cachestat.touched_pages(0, 1) == cachestat.touched_pages(0, cachestat.PAGE_BYTES) == 1
    assert cachestat.touched_pages(cachestat.PAGE_BYTES - 1, 2) == 2


def test_what_is_resident_is_read_and_nothing_else_is(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk().open(f"{root}/f", create=True)
    file.write(0, b"0123456789")
    assert file.read_resident(2, 5) == b"23456"
    assert file.read_resident(8, 5) is None  # the file ends before

    def cold(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "cold")

    monkeypatch.setattr(os, "preadv", cold)
    assert file.read_resident(2, 5) is None
    monkeypatch.setattr(os, "preadv", lambda *_: 3)  # the rest is cold
    assert file.read_resident(2, 5) is None
    file.close()


def test_a_file_system_that_cannot_tell_counts_as_resident(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk().open(f"{root}/f", create=True)

    def unsupported(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "no such flag here")

    file.write(0, b"0123456789")
    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.read_resident(2, 5) == b"23456"
    assert file.is_resident(0, 10)
    file.close()


def test_a_disk_that_fails_does_not_look_like_an_empty_one(root: str) -> None:
    refuses(errno.ENAMETOOLONG, OsDisk().exists, f"{root}/{'x' * 300}")


def _try_lock(path: str) -> None:
    refuses(errno.EAGAIN, OsDisk().lock, path)


def test_a_lock_holds_against_another_process(root: str) -> None:
    held = OsDisk().lock(f"{root}/.lock")
    child = multiprocessing.get_context("spawn").Process(target=_try_lock, args=(f"{root}/.lock",))
    child.start()
    child.join()
    assert child.exitcode == 0
    held.close()
    OsDisk().lock(f"{root}/.lock").close()


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from trioka.storage.files.disk import OsDisk
disk, folder = OsDisk(), sys.argv[1]
disk.sync_directory(folder)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(3):
    disk.sync_directory(folder)
try:
    disk.open(folder + "/f", create=True)
except OSError as error:
    print(error.errno)
"""


def test_a_directory_can_be_synced_when_no_descriptor_is_left(tmp_path: Path) -> None:
    """Its sync is the last of several steps that cannot be taken back."""
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path)], check=True, timeout=60, capture_output=True
    )
    assert int(result.stdout) == errno.EMFILE
