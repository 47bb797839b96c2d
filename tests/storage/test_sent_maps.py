"""Maps from which the kernel sends: the right bytes, few of them, and never a reason for a signal."""

import errno
import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from unittest import mock

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.storage import file_pool
from trioka.storage.disk import OsDisk, map_for_send
from trioka.storage.file_pool import SENT_MAPS_LIMIT, FilePool
from trioka.testing.disks.memory_disk import MemoryDisk


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def new_file(directory: Path, size: int, name: str = "log") -> str:
    path = directory / name
    path.write_bytes(bytes(number % 251 for number in range(size)))
    return str(path)


def sent(view: memoryview | None) -> bytes:
    """What arrives at the other end of a socket."""
    assert view is not None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendmsg([view])
        ours.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: theirs.recv(65536), b""))


def test_what_is_sent_from_a_map_is_what_the_file_holds(tmp_path: Path) -> None:
    part = FilePool(OsDisk()).range(new_file(tmp_path, 9000), 4000, 3000)
    assert sent(part.view()) == part.read()
    assert len(part.read()) == 3000


def test_new_bytes_of_a_file_get_a_map_when_there_are_enough_of_them(tmp_path: Path) -> None:
    path = new_file(tmp_path, 8000)
    pool = FilePool(OsDisk())
    assert pool.range(path, 0, 8000).view() is not None
    pool.get(path).write(8000, b"n" * 1000)
    assert pool.range(path, 8000, 1000).view() is None, "an eighth"
    assert pool.range(path, 0, 8000).view() is not None, "the old map is still there"
    pool.get(path).write(9000, b"n" * 1000)
    assert sent(pool.range(path, 8000, 2000).view()) == b"n" * 2000


def a_reader_of_the_end_does_not_ask_for_the_size_of_its_file_with_each_range(module: ModuleType) -> None:
    with TemporaryDirectory() as folder, mock.patch.object(module, "map_for_send", wraps=map_for_send) as maps:
        path = new_file(Path(folder), 8000)
        pool = module.FilePool(OsDisk())
        assert pool.range(path, 0, 8000).view() is not None
        for number in range(10):
            pool.get(path).write(8000 + 100 * number, b"n" * 100)
            assert pool.range(path, 8000 + 100 * number, 100).view() is None
        assert maps.call_count == 2
        pool.get(path).write(9000, b"n" * 1000)
        assert sent(pool.range(path, 9900, 100).view()) == b"n" * 100, "a quarter more"


def a_file_whose_map_was_given_up_is_mapped_again(module: ModuleType) -> None:
    with TemporaryDirectory() as folder, mock.patch.object(module, "SENT_MAPS_LIMIT", 1):
        path, other = new_file(Path(folder), 8000), new_file(Path(folder), 100, "other")
        pool = module.FilePool(OsDisk())
        assert pool.range(path, 0, 8000).view() is not None
        pool.get(path).write(8000, b"n" * 100)
        assert pool.range(path, 8000, 100).view() is None
        assert pool.range(other, 0, 100).view() is not None, "in its place"
        assert pool.range(path, 0, 4000).view() is not None


END, AGAIN = (
    a_reader_of_the_end_does_not_ask_for_the_size_of_its_file_with_each_range,
    a_file_whose_map_was_given_up_is_mapped_again,
)


@pytest.mark.parametrize("rule", [END, AGAIN])
def test_a_rule_of_maps_holds(rule: Rule) -> None:
    rule(file_pool)


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("            if end < self._map_from:\n                return None\n", "", END),
        ("self._map_from = at_least", "self._map_from = 1 << 60", END),
        ("self._view = None\nself._map_from = 0", "self._view = None", AGAIN),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(file_pool, right, wrong, rule)


def test_a_range_behind_the_end_of_its_file_has_no_map(tmp_path: Path) -> None:
    assert FilePool(OsDisk()).range(new_file(tmp_path, 100), 0, 101).view() is None


def test_an_answer_on_its_way_does_not_keep_a_file_from_shrinking_and_ends_in_an_error_not_in_a_signal(
    tmp_path: Path,
) -> None:
    path = new_file(tmp_path, 20_000)
    pool = FilePool(OsDisk())
    view = pool.range(path, 8192, 8192).view()
    pool.get(path).truncate(100)
    with pytest.raises(OSError, match=os.strerror(errno.EFAULT)):
        sent(view)


def test_a_map_outlives_the_name_of_its_file_and_goes_with_its_last_user(tmp_path: Path) -> None:
    path = new_file(tmp_path, 9000)
    before = descriptors()
    pool = FilePool(OsDisk())
    view = pool.range(path, 1000, 5).view()
    pool.forget(path)
    os.unlink(path)
    assert sent(view) == bytes(number % 251 for number in range(1000, 1005))
    del view
    assert descriptors() == before


def test_there_are_no_more_maps_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SENT_MAPS_LIMIT < file_pool.OPEN_FILES_LIMIT
    monkeypatch.setattr(file_pool, "SENT_MAPS_LIMIT", 3)
    before = descriptors()
    pool = FilePool(OsDisk())
    for number in range(10):
        assert pool.range(new_file(tmp_path, 100, f"{number}"), 0, 100).view() is not None
    assert descriptors() == before + 10 + 3
    assert pool.range(f"{tmp_path}/0", 0, 100).view() is not None, "mapped again"
    assert descriptors() == before + 10 + 3
    pool.close()
    assert descriptors() == before


def test_a_file_in_memory_is_read_instead() -> None:
    disk = MemoryDisk()
    disk.open("/log", create=True).write(0, b"abc")
    part = FilePool(disk).range("/log", 0, 3)
    assert part.view() is None
    assert part.read() == b"abc"


def test_maps_that_slow_clients_hold_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a descriptor, and outlives the handle that it was made by."""
    monkeypatch.setattr(file_pool, "HELD_MAPS_LIMIT", 5)
    pool = FilePool(OsDisk(), limit=2)
    views = []
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        views.append(pool.range(new_file(folder, 9000), 0, 9000).view())
    assert [view is None for view in views] == [False] * 5 + [True] * 5
    views.clear()
    assert pool.range(f"{new_file(tmp_path, 9000)}", 0, 9000).view() is not None
    pool.close()
