"""Few descriptors for many files, and ranges that outlive their names."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from planted import planted

from trioka.storage import file_pool
from trioka.storage.disk import File, OsDisk
from trioka.storage.file_pool import FilePool


@pytest.fixture
def pool(tmp_path: Path) -> FilePool:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 10)
    return FilePool(OsDisk(), limit=2, views_limit=1)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_more_files_are_open_than_the_limit(pool: FilePool, tmp_path: Path) -> None:
    before = descriptors()
    for name in "abcabc":
        assert pool.get(f"{tmp_path}/{name}").read(0, 3) == name.encode() * 3
    assert len(pool) == 2
    assert descriptors() == before + 2
    pool.close()
    assert descriptors() == before


def test_a_range_is_readable_after_its_file_was_evicted_renamed_and_removed(pool: FilePool, tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    before = descriptors()
    part = pool.range(path, 2, 4)
    pool.get(f"{tmp_path}/b")
    pool.get(f"{tmp_path}/c")
    pool.forget(path)
    os.rename(path, path + ".deleted")
    Path(path).write_bytes(b"something else")
    assert pool.get(path).read(0, 9) == b"something"
    os.unlink(path + ".deleted")
    assert part.read() == b"aaaa"
    assert len(part) == 4
    pool.close()
    assert descriptors() == before + 1
    del part
    assert descriptors() == before, "the last one to hold it closes it"


def test_a_view_grows_with_its_file_and_is_forgotten_before_it_shrinks(pool: FilePool, tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    assert bytes(pool.view(path, 10)) == b"a" * 10
    pool.get(path).write(10, b"new")
    assert bytes(pool.view(path, 13))[10:] == b"new"
    pool.forget_view(path)
    pool.get(path).truncate(2)
    assert bytes(pool.view(path, 2)) == b"aa"
    pool.view(f"{tmp_path}/b", 3)
    pool.close()


def test_everything_below_a_directory_is_forgotten_and_nothing_else(pool: FilePool, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d2").write_bytes(b"x")
    (tmp_path / "d" / "x").write_bytes(b"x")
    pool.get(f"{tmp_path}/d/x")
    pool.get(f"{tmp_path}/d2")
    pool.forget_below(f"{tmp_path}/d")
    assert len(pool) == 1
    pool.close()


@pytest.mark.parametrize(
    ("descriptors", "files"), [(256, 512), (1024, 512), (20_000, 12_992), (65_536, 32_768), (1 << 20, 32_768)]
)
def test_the_more_a_process_may_open_the_more_logs_stay_open(descriptors: int, files: int) -> None:
    assert file_pool.open_files_limit(descriptors) == files


RAISED = """
import resource
from trioka.storage.disk import allow_many_descriptors, descriptors_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
assert descriptors_limit() == 100
allow_many_descriptors()
assert descriptors_limit() == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536))
"""


def test_a_node_takes_as_many_descriptors_as_it_may_have() -> None:
    subprocess.run([sys.executable, "-c", RAISED], check=True, timeout=60)


class FullTable(OsDisk):
    """There are descriptors for so many files, and others have the rest."""

    def __init__(self, pool_may_have: int) -> None:
        self.left = pool_may_have
        self.pool: FilePool | None = None

    def open(self, path: str, *, create: bool = False) -> File:
        if self.pool is not None and len(self.pool) >= self.left:
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, create=create)


def gives_back_what_it_can(module: ModuleType, folder: Path) -> None:
    for name in "abcdef":
        (folder / name).write_bytes(name.encode())
    disk = FullTable(4)
    pool = disk.pool = module.FilePool(disk, limit=100)
    for name in "abcdef":
        assert pool.get(f"{folder}/{name}").read(0, 1) == name.encode()
    assert len(pool) == 4  # c, d, e and f: the older half of four went when e came
    assert pool.get(f"{folder}/d").read(0, 1) == b"d"
    pool.close()


def test_where_no_descriptor_is_left_the_older_half_is_given_back(tmp_path: Path) -> None:
    gives_back_what_it_can(file_pool, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("error.errno != errno.EMFILE or", "True or"), ("popitem(last=False)\n        return", "clear()\n        return")],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, OSError, KeyError)):
        gives_back_what_it_can(planted(file_pool, right, wrong), tmp_path)


def test_another_error_is_not_answered_by_giving_files_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    pool = FilePool(OsDisk())
    pool.get(f"{tmp_path}/a")
    with pytest.raises(FileNotFoundError):
        pool.get(f"{tmp_path}/b")
    assert len(pool) == 1
