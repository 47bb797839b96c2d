"""Whether a read would wait: who asks the kernel, about how much, and who believes what it has said."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import append, open_log

from trioka.storage import page_cache_probe
from trioka.storage.disk import File
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.segment import LOOK_BYTES
from trioka.storage.warm_parts import BELIEVED_S, PART_BYTES
from trioka.testing.disks.memory_disk import MemoryDisk, MemoryFile

KB = 1 << 10
MB = 1 << 20


class AskedFile(MemoryFile):
    """What is asked about is noted, and what lies before `cold` bytes is not there."""

    __slots__ = ()

    def is_resident(self, offset: int, size: int) -> bool:
        assert isinstance(self._disk, AskedDisk)
        if not self.path.endswith(".log"):
            return True
        self._disk.asked.append((offset, size))
        return offset >= self._disk.cold


class AskedDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []
        self.cold = 0

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        file.__class__ = AskedFile
        return file


@pytest.fixture
def storage() -> ModuleType:
    return page_cache_probe


def filled(size: int) -> tuple[Log, AskedDisk]:
    """With batches of about a quarter of a megabyte, in one segment."""
    disk = AskedDisk()
    log = open_log(disk, config=LogConfig(segment_bytes=1 << 30))
    while log.segments.active.size < size:
        append(log, "x" * (256 * KB))
    return log, disk


def read(storage: ModuleType, log: Log, offset: int, size: int, now: float) -> int:
    """As a fetch does it. The next offset; -1 if it would have waited."""
    if storage.cold_part(log, offset, size, now) is not None:
        return -1
    return log.read(offset, size).next_offset


def test_who_reads_on_asks_ahead_and_nobody_asks_again_for_a_moment(storage: ModuleType) -> None:
    log, disk = filled(6 * MB)
    following = second = read(storage, log, 0, MB, 10.0)
    assert disk.asked == [(0, MB + LOOK_BYTES)]  # a first read may be the only one
    disk.asked.clear()
    while following < log.log_end_offset:
        following = read(storage, log, following, MB, 10.0)
    ((start, size),) = disk.asked
    assert start + size == log.segments.active.size
    assert read(storage, log, second, MB, 10.0 + BELIEVED_S / 2) > second  # of another reader
    assert len(disk.asked) == 1
    read(storage, log, second, MB, 10.0 + BELIEVED_S)
    assert len(disk.asked) == 2


def test_who_reads_little_asks_about_little(storage: ModuleType) -> None:
    log, disk = filled(8 * MB)
    following = read(storage, log, 0, 300 * KB, 10.0)
    disk.asked.clear()
    read(storage, log, following, 300 * KB, 10.0)
    ((_, size),) = disk.asked
    assert size == storage.AHEAD_TIMES * (300 * KB + LOOK_BYTES)


def test_what_was_appended_since_is_in_memory(storage: ModuleType) -> None:
    log, disk = filled(2 * MB)
    following = read(storage, log, read(storage, log, 0, MB, 10.0), MB, 10.0)
    for _ in range(8):
        append(log, "x" * (256 * KB))
    disk.asked.clear()
    assert read(storage, log, following, MB, 10.1) > following
    assert not disk.asked


def test_a_read_across_two_parts_needs_both(storage: ModuleType) -> None:
    log, disk = filled(PART_BYTES + 2 * MB)
    following = read(storage, log, 0, PART_BYTES - MB, 10.0)
    disk.asked.clear()
    read(storage, log, following, 2 * MB, 10.0)
    (first, size), (second, rest) = disk.asked
    assert first + size == second == PART_BYTES
    assert second + rest == log.segments.active.size


def test_something_missing_ends_every_belief(storage: ModuleType) -> None:
    log, disk = filled(6 * MB)
    second = read(storage, log, 0, MB, 10.0)
    third = read(storage, log, second, MB, 10.0)
    disk.cold = log.segments.active.size
    assert read(storage, log, third, MB, 10.0) > third  # believed
    assert read(storage, log, 0, MB, 10.0) == -1  # where nobody has asked
    assert read(storage, log, third, MB, 10.0) == -1


def test_where_only_what_comes_next_is_missing_a_read_does_not_wait(storage: ModuleType) -> None:
    log, disk = filled(6 * MB)
    second = read(storage, log, 0, MB, 10.0)
    asked = disk.asked
    asked.clear()
    position = log.segments.active.known_start(second)
    assert position is not None

    class HalfCold(AskedFile):
        __slots__ = ()

        def is_resident(self, offset: int, size: int) -> bool:
            asked.append((offset, size))
            return size <= 2 * MB

    log.files.get(log.segments.active.log_path).__class__ = HalfCold
    assert read(storage, log, second, MB, 10.0) > second
    assert asked[-1] == (position, MB + LOOK_BYTES)
    assert read(storage, log, second, MB, 10.0) > second
    assert len(asked) == 4  # what was only asked about is not believed


MISTAKES = [
    ("AHEAD_TIMES * (end", "1 * (end", test_who_reads_on_asks_ahead_and_nobody_asks_again_for_a_moment),
    ("if not goes_on or not", "if not", test_who_reads_on_asks_ahead_and_nobody_asks_again_for_a_moment),
    ("min(ahead, behind, segment.size)", "min(behind, segment.size)", test_who_reads_little_asks_about_little),
    ("behind if asked_end == segment.size else asked_end", "asked_end", test_what_was_appended_since_is_in_memory),
    ("min(ahead, behind, segment.size)", "min(ahead, segment.size)", test_a_read_across_two_parts_needs_both),
    ("        position = behind\n", "        position = end\n", test_a_read_across_two_parts_needs_both),
    ("    segment.files.warm_parts.forget()\n", "", test_something_missing_ends_every_belief),
    (
        "    if segment.files.get(segment.log_path).is_resident(position, size):\n        return None\n",
        "",
        test_where_only_what_comes_next_is_missing_a_read_does_not_wait,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(page_cache_probe, right, wrong, rule)
