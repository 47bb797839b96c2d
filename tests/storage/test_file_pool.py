"""Few descriptors for many files, and ranges that outlive their names."""

import os
from pathlib import Path

import pytest

from trioka.storage.disk import OsDisk
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
