"""Where compaction goes on: kept over restarts, and lost without harm."""

from types import ModuleType

import pytest
from planted import Rule, assert_noticed

from trioka.storage import cleaner_checkpoint
from trioka.storage.cleaner_checkpoint import CleanerCheckpoint
from trioka.storage.disk_faults import Fault
from trioka.storage.layout import TopicPartition
from trioka.storage.memory_disk import MemoryDisk

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 3)
PATH = "/logs/cleaner-offset-checkpoint"


@pytest.fixture
def storage() -> ModuleType:
    return cleaner_checkpoint


def written(storage: ModuleType) -> tuple[CleanerCheckpoint, MemoryDisk]:
    disk = MemoryDisk()
    disk.make_directory("/logs")
    checkpoint = storage.CleanerCheckpoint(disk, "/logs")
    checkpoint.put(ORDERS, 17)
    checkpoint.put(USERS, 5)
    return checkpoint, disk


def test_offsets_are_there_after_a_restart(storage: ModuleType) -> None:
    _, disk = written(storage)
    again = storage.CleanerCheckpoint(disk, "/logs")
    assert (again.get(ORDERS), again.get(USERS), again.get(TopicPartition("x", 0))) == (17, 5, None)
    assert disk.read(PATH) == b"0\n2\norders 0 17\nusers 3 5\n"


def test_a_truncated_log_lowers_its_offset_and_never_raises_it(storage: ModuleType) -> None:
    checkpoint, disk = written(storage)
    checkpoint.cut(ORDERS, 20)
    assert checkpoint.get(ORDERS) == 17
    checkpoint.cut(ORDERS, 9)
    checkpoint.cut(TopicPartition("x", 0), 9)
    assert storage.CleanerCheckpoint(disk, "/logs").get(ORDERS) == 9
    assert checkpoint.get(TopicPartition("x", 0)) is None


def test_logs_that_are_gone_are_forgotten(storage: ModuleType) -> None:
    checkpoint, disk = written(storage)
    checkpoint.keep_only({USERS})
    assert disk.read(PATH) == b"0\n1\nusers 3 5\n"


def test_a_damaged_file_means_that_everything_is_dirty(storage: ModuleType) -> None:
    checkpoint = storage.CleanerCheckpoint(MemoryDisk({PATH: b"0\n2\norders 0 17\n"}), "/logs")
    assert checkpoint.get(ORDERS) is None
    assert checkpoint.damage is not None
    checkpoint.put(ORDERS, 3)
    assert checkpoint.get(ORDERS) == 3


def test_a_failed_write_changes_nothing(storage: ModuleType) -> None:
    checkpoint, disk = written(storage)
    disk.faults.add(Fault(nth=1))
    with pytest.raises(OSError, match="Input/output"):
        checkpoint.put(ORDERS, 99)
    assert checkpoint.get(ORDERS) == 17


MISTAKES: list[tuple[str, str, Rule]] = [
    ("        write_offsets(self._disk, self.path, offsets)\n", "", test_offsets_are_there_after_a_restart),
    ("if self._offsets.get(partition, 0) > log_end_offset:", "if True:",
     test_a_truncated_log_lowers_its_offset_and_never_raises_it),
    ("if partition in partitions", "", test_logs_that_are_gone_are_forgotten),
    ("        write_offsets(self._disk, self.path, offsets)\n        self._offsets = offsets\n",
     "        self._offsets = offsets\n        write_offsets(self._disk, self.path, offsets)\n",
     test_a_failed_write_changes_nothing),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(cleaner_checkpoint, right, wrong, rule)
