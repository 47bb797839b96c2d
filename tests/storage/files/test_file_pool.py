"""Few descriptors for many files, and ranges that outlive their names."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Thread
from types import ModuleType

import pytest
from mutants.plant import planted, within

from trioka.storage.files import file_pool
from trioka.storage.files.disk import Buffer, File, OsDisk
from trioka.storage.files.file_pool import FilePool


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


def test_a_file_stays_open_for_a_thread_that_has_got_it_and_not_used_it_yet(pool: FilePool, tmp_path: Path) -> None:
    """Otherwise its descriptor could name another file by then, and a record would be written there."""
    stays_open_for_its_users(pool, tmp_path)


def stays_open_for_its_users(pool: FilePool, tmp_path: Path) -> None:
    before = descriptors()
    file = pool.get(f"{tmp_path}/a")
    for other in (lambda: pool.forget_below(str(tmp_path)), pool.release_descriptors, pool.close):
        thread = Thread(target=other)
        thread.start()
        thread.join()
        pool.get(f"{tmp_path}/b")
        file.write(0, b"x")
        assert file.read(0, 2) == b"xa"
        assert pool.get(f"{tmp_path}/b").read(0, 2) == b"bb"
    pool.close()
    del file
    assert descriptors() == before


def test_a_pool_that_closes_what_others_use_is_noticed(tmp_path: Path) -> None:
    hasty = planted(
        file_pool,
        "        self._open.discard(id(self))\n",
        "        self._open.discard(id(self))\n        self.file.close()\n",
    )
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 10)
    with pytest.raises((AssertionError, OSError)):
        stays_open_for_its_users(hasty.FilePool(OsDisk(), limit=2, views_limit=1), tmp_path)


def test_threads_that_open_and_forget_files_do_not_disturb_each_other(pool: FilePool, tmp_path: Path) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        random = Random(seed)
        try:
            for _ in range(2000):
                name = random.choice("abc")
                if random.random() < 0.2:
                    pool.forget_below(str(tmp_path))
                elif pool.get(f"{tmp_path}/{name}").read(0, 2) != name.encode() * 2:
                    wrong.append(name)
        except Exception as error:
            wrong.append(error)

    threads = [Thread(target=work, args=(seed,)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


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
    ("descriptors", "files"), [(256, 128), (1024, 512), (20_000, 12_992), (65_536, 32_768), (1 << 20, 32_768)]
)
def test_the_more_a_process_may_open_the_more_logs_stay_open(descriptors: int, files: int) -> None:
    assert file_pool.open_files_limit(descriptors) == files
    assert file_pool.open_files_limit(descriptors, 4) == files // 4


def a_thousand_answers_hold_no_more_files_than_the_limit(module: ModuleType, folder: Path) -> None:
    """As a reader of as many partitions has them: ranges of all of them, at the same time."""
    for number in range(100):
        (folder / str(number)).write_bytes(b"%03d" % number)
    before, pool, most = descriptors(), module.FilePool(OsDisk(), limit=10, views_limit=1), 0
    parts = []
    for number in [*range(100), *range(100)]:
        parts.append(pool.for_response(pool.range(f"{folder}/{number}", 0, 3)))
        assert pool.get(f"{folder}/{number}").read(0, 3) == b"%03d" % number
        most = max(most, descriptors() - before)
        assert descriptors() - before == pool.open_files
    assert most <= 11
    found = [bytes(part) if isinstance(part, memoryview) else part.read() for part in parts]
    assert found == [b"%03d" % (number % 100) for number in range(200)]
    assert any(not isinstance(part, memoryview) for part in parts), "the first ones are sent from their files"
    parts.clear()
    assert isinstance(pool.for_response(pool.range(f"{folder}/1", 0, 3)), module.FileRange), "there is room again"
    pool.close()
    assert descriptors() == before


def test_a_thousand_answers_hold_no_more_files_than_the_limit(tmp_path: Path) -> None:
    a_thousand_answers_hold_no_more_files_than_the_limit(file_pool, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("handles and len(self._open) >= self.limit", "len(handles) >= self.limit"),
        ("self.is_over_limit", "False"),
        ("self.is_over_limit", "True"),
        ("        self._open.discard(id(self))\n", "        pass\n"),
    ],
)
def test_a_pool_that_does_not_count_what_is_held_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        a_thousand_answers_hold_no_more_files_than_the_limit(planted(file_pool, right, wrong), tmp_path)


RAISED = """
import resource
from trioka.storage.files.disk import raise_descriptor_limit, descriptor_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
assert descriptor_limit() == 100
raise_descriptor_limit()
assert descriptor_limit() == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536))
"""


def test_a_node_takes_as_many_descriptors_as_it_may_have() -> None:
    subprocess.run([sys.executable, "-c", RAISED], check=True, timeout=60)


class FullTable(OsDisk):
    """There are descriptors for so many files, and others have the rest."""

    def __init__(self, pool_may_have: int, error: int = errno.EMFILE) -> None:
        self.left = pool_may_have
        self.error = error
        self.pool: FilePool | None = None

    def open(self, path: str, *, create: bool = False) -> File:
        if self.pool is not None and len(self.pool) >= self.left:
            raise OSError(self.error, "too many open files", path)
        return super().open(path, create=create)


def gives_back_what_it_can(module: ModuleType, folder: Path, error: int = errno.EMFILE) -> None:
    for name in "abcdef":
        (folder / name).write_bytes(name.encode())
    disk = FullTable(4, error)
    pool = disk.pool = module.FilePool(disk, limit=100)
    for name in "abcdef":
        assert pool.get(f"{folder}/{name}").read(0, 1) == name.encode()
    assert len(pool) == 4  # c, d, e and f: the older half of four went when e came
    assert pool.get(f"{folder}/d").read(0, 1) == b"d"
    pool.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_where_no_descriptor_is_left_the_older_half_is_given_back(tmp_path: Path, error: int) -> None:
    gives_back_what_it_can(file_pool, tmp_path, error)


def test_a_map_that_finds_no_descriptor_gives_back_too(tmp_path: Path) -> None:
    """A map keeps a descriptor of its own; `map` counts them here as a kernel would."""

    class FewMaps(OsDisk):
        maps_left = 2

        def open(self, path: str, *, create: bool = False) -> File:
            file = super().open(path, create=create)
            real = file.map

            def map_one(size: int) -> Buffer:
                if not self.maps_left:
                    self.maps_left = 2  # what is given back can be taken
                    raise OSError(errno.EMFILE, "too many open files", path)
                self.maps_left -= 1
                return real(size)

            return Wrapped(file, map_one)  # type: ignore[return-value]

    class Wrapped:
        def __init__(self, file: File, map_one: Callable[[int], Buffer]) -> None:
            self.map, self.close = map_one, file.close

    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    pool = FilePool(FewMaps())
    assert [bytes(pool.view(f"{tmp_path}/{name}", 1)) for name in "abc"] == [b"a", b"b", b"c"]
    pool.close()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            within(
                "FilePool._open_file",
                "if not is_out_of_descriptors(error) or not self.release_descriptors():\n    raise",
            ),
            "raise",
        ),
        (
            "self._handles.popitem(last=False)",
            "self._handles.clear()",
        ),
    ],
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
