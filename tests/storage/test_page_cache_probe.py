"""Whether a read would wait: the kernel is asked, each time, about what is read."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import append, open_log

from trioka.storage import page_cache_probe
from trioka.storage.disk import File
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.segment import HEADER_READ_BYTES
from trioka.testing.disks.memory_disk import MemoryDisk, MemoryFile

KB = 1 << 10
MB = 1 << 20


class ProbedFile(MemoryFile):
    """What is asked about is noted, and what lies before `cold` bytes is not there."""

    __slots__ = ()

    def is_resident(self, offset: int, size: int) -> bool:
        assert isinstance(self._disk, ProbedDisk)
        if not self.path.endswith(".log"):
            return True
        self._disk.probed.append((offset, size))
        return offset >= self._disk.cold


class ProbedDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.probed: list[tuple[int, int]] = []
        self.cold = 0

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        file.__class__ = ProbedFile
        return file


@pytest.fixture
def storage() -> ModuleType:
    return page_cache_probe


def filled(size: int) -> tuple[Log, ProbedDisk]:
    """With batches of about a quarter of a megabyte, in one segment."""
    disk = ProbedDisk()
    log = open_log(disk, config=LogConfig(segment_bytes=1 << 30))
    while log.segments.active.size < size:
        append(log, "x" * (256 * KB))
    return log, disk


def read(storage: ModuleType, log: Log, offset: int, size: int) -> int:
    """As a fetch does it. The next offset; -1 if it would have waited."""
    if storage.uncached_range(log, offset, size) is not None:
        return -1
    return log.read(offset, size).next_offset


def test_the_kernel_is_asked_about_each_read_and_about_no_more(storage: ModuleType) -> None:
    log, disk = filled(6 * MB)
    following = 0
    while following < log.log_end_offset:
        position = log.segments.active.known_start(following) or 0
        disk.probed.clear()
        following = read(storage, log, following, MB)
        assert disk.probed == [(position, min(MB + HEADER_READ_BYTES, log.segments.active.size - position))]
    disk.probed.clear()
    assert read(storage, log, following, MB) == following  # behind the end there is nothing to ask about
    assert not disk.probed


def test_evicted_pages_are_noticed_and_no_byte_of_the_segment_counts_as_cached(storage: ModuleType) -> None:
    log, disk = filled(6 * MB)
    second = read(storage, log, 0, MB)
    segment = log.segments.active
    position = segment.known_start(second)
    assert position is not None
    segment.checked.add(0, segment.size)
    disk.cold = segment.size
    part = storage.uncached_range(log, second, MB)
    assert part is not None
    assert (part.path, part.position, part.size) == (segment.log_path, position, MB + HEADER_READ_BYTES)
    assert part.segment is segment
    assert not segment.checked.covers(0, 1)


def test_where_only_what_comes_next_is_missing_a_read_does_not_wait(storage: ModuleType) -> None:
    log, _ = filled(6 * MB)
    second = read(storage, log, 0, MB)

    class HalfCold(ProbedFile):
        __slots__ = ()

        def is_resident(self, offset: int, size: int) -> bool:
            return size <= 2 * MB

    log.files.get(log.segments.active.log_path).__class__ = HalfCold
    assert read(storage, log, second, MB) > second


MISTAKES = [
    (
        "min(max_bytes + HEADER_READ_BYTES, segment.size - position)",
        "segment.size - position",
        test_where_only_what_comes_next_is_missing_a_read_does_not_wait,
    ),
    (
        "min(max_bytes + HEADER_READ_BYTES, segment.size - position)",
        "min(max_bytes, segment.size - position)",
        test_the_kernel_is_asked_about_each_read_and_about_no_more,
    ),
    (
        "size <= 0 or segment.files.get(segment.log_path).is_resident(position, size)",
        "segment.files.get(segment.log_path).is_resident(position, size)",
        test_the_kernel_is_asked_about_each_read_and_about_no_more,
    ),
    (
        "    segment.checked.cut(0)\n",
        "",
        test_evicted_pages_are_noticed_and_no_byte_of_the_segment_counts_as_cached,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(page_cache_probe, right, wrong, rule)
