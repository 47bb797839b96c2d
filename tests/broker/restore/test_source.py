"""Copies of committed offsets, as a restore reads them: each offset once, the newest incarnation last."""

from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import assert_noticed

from trioka.archive.store import ReadOnlyStore
from trioka.broker.restore import source
from trioka.coordinator.decision import StoredRecord
from trioka.coordinator.offsets import Offsets
from trioka.coordinator.record_codec import GROUPS
from trioka.protocol.batch import build
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.record import Record

PREFIX = "offsets/"


@pytest.fixture
def module() -> ModuleType:
    return source


def commit_at(base_offset: int, committed: int) -> bytes:
    """A batch with one commit of the group `g`."""
    key = OffsetCommitKey(group="g", topic="orders", partition=0)
    value = OffsetCommitValue(offset=committed, metadata="", commit_timestamp=0)
    record = Record(base_offset, 0, *GROUPS.encode(StoredRecord(key, value)))
    return bytes(build([record], base_offset=base_offset))


def restored_offset(module: ModuleType, folder: Path, copies: dict[str, bytes]) -> list[int]:
    """What each of the copied logs says about the group, in their order."""
    (folder / PREFIX).mkdir(exist_ok=True)
    for name, data in copies.items():
        (folder / PREFIX / name).write_bytes(data)
    found = []
    for log in module._copied_logs(ReadOnlyStore(folder.as_uri()), PREFIX):
        offsets = Offsets()
        for copy in log:
            copy.replay(offsets)
        committed = offsets.get("g", "orders", 0)
        assert committed is not None
        found.append(committed.offset)
    return found


def name(incarnation: int, start: int, end: int) -> str:
    return f"{incarnation:010d}-{start:020d}-{end:020d}.log"


def test_each_offset_is_taken_once_and_in_order(module: ModuleType, tmp_path: Path) -> None:
    """Everything was copied again, and the objects of before are still there."""
    first, second, third = commit_at(0, 10), commit_at(1, 20), commit_at(2, 30)
    copies = {name(1, 0, 1): first, name(1, 0, 3): first + second + third, name(1, 1, 2): second}
    assert restored_offset(module, tmp_path, copies) == [30]


def test_the_newest_incarnation_comes_last(module: ModuleType, tmp_path: Path) -> None:
    """Its log began again at offset 0, so that older offsets say nothing about the order."""
    copies = {name(2, 0, 1): commit_at(0, 7), name(1, 500, 501): commit_at(500, 3)}
    assert restored_offset(module, tmp_path, copies) == [3, 7]


def test_a_planted_mistake_is_noticed(tmp_path: Path) -> None:
    def rule(module: ModuleType) -> None:
        test_the_newest_incarnation_comes_last(module, tmp_path)

    right = "for incarnation in sorted(by_incarnation):\n    yield _copies(store, sorted(by_incarnation[incarnation]))"
    assert_noticed(source, right, right.replace("in sorted(by_incarnation)", "in sorted(by_incarnation)[::-1]"), rule)
