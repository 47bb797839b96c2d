"""Compaction under power loss and failing disks (S7): a round is done, or it is as if it had not begun."""

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
from mutants.plant import planted
from support.compacted_log import DIRECTORY, Partition, committed
from support.crash_enumeration import CrashFound, Promise, crash_everywhere, fail_each_operation

from trioka.storage.cleaning import cleaner
from trioka.storage.log_config import LogConfig
from trioka.testing.disks.memory_disk import MemoryDisk

CRASH_CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=400, index_interval_bytes=0)


def prepare(disk: MemoryDisk) -> None:
    disk.make_directory(DIRECTORY)
    partition = Partition(disk, CRASH_CONFIG)
    partition.put((b"a", b"1"), (b"b", b"1"))
    partition.put((b"c", b"1"), producer=1, epoch=0, sequence=0, transactional=True)
    partition.end(commit=False, producer=1)
    partition.roll()
    partition.put((b"a", b"2"), (b"c", b"2"))
    partition.roll()
    partition.put((b"b", None), (b"d", b"3"))
    partition.roll()
    partition.put((b"e", b"4"))
    partition.log.sync()
    partition.keep(partition.log)


EXPECTED = {b"a": b"2", b"b": None, b"c": b"2", b"d": b"3", b"e": b"4"}


def a_round(storage: ModuleType) -> Callable[[MemoryDisk, Promise], None]:
    def compact(disk: MemoryDisk, promise: Promise) -> None:
        Partition(disk, CRASH_CONFIG, clean=False).compact(storage)
        promise("compacted")

    return compact


def recover(disk: MemoryDisk) -> Partition:
    return Partition(disk, CRASH_CONFIG, clean=False)


def check(partition: Partition, promised: Sequence[str]) -> None:
    assert committed(partition) == EXPECTED
    assert partition.log.log_end_offset == 9
    assert not partition.log.quarantine
    assert not any(name.endswith((".cleaned", ".swap")) for name in partition.names())
    if promised:
        assert [offset for offset, _, _ in partition.left()] == [4, 5, 6, 7, 8]
    partition.compact()
    assert committed(partition) == EXPECTED


@pytest.mark.slow
def test_a_crash_at_any_step_of_a_round_loses_nothing() -> None:
    report = crash_everywhere(a_round(cleaner), prepare=prepare, recover=recover, check=check)
    assert report.states > 100


@pytest.mark.slow
def test_a_round_whose_disk_fails_at_any_operation_loses_nothing() -> None:
    report = fail_each_operation(a_round(cleaner), prepare=prepare, recover=recover, check=check, pending_limit=4)
    assert report.failed_operations > 20


@pytest.mark.slow
def test_a_round_that_loses_a_batch_would_be_found() -> None:
    hasty = planted(cleaner, "            self._copy(last, is_last=True)\n", "            pass\n")
    with pytest.raises(CrashFound):
        crash_everywhere(a_round(hasty), prepare=prepare, recover=recover, check=check)
