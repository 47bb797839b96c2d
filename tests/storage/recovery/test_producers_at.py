"""The producer snapshot that goes to the object store: open transactions are in it even if the file is gone."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import DIRECTORY, NOW_MS, batch, open_log

from trioka.protocol.batch import build_marker
from trioka.protocol.errors import KafkaStorageError
from trioka.protocol.record import EndTxnMarker
from trioka.protocol.remote_segment.indexes import decode_open_transactions
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.log import Log
from trioka.storage.recovery import producers_at
from trioka.testing.disks.memory_disk import MemoryDisk


@pytest.fixture
def module() -> ModuleType:
    return producers_at


def log_with_transactions(disk: MemoryDisk) -> Log:
    """Three closed segments: producer 7 ends its transaction in the second one, producer 8 ends its own nowhere."""
    log = open_log(disk)
    for producer in (7, 8):
        _append(log, batch("a", producer=(producer, 0, 0), transactional=True))
    log.roll(now_ms=NOW_MS)
    marker = build_marker(
        EndTxnMarker(commit=True, coordinator_epoch=1),
        offset=0,
        timestamp=NOW_MS,
        leader_epoch=0,
        producer_id=7,
        producer_epoch=0,
    )
    _append(log, marker, AppendOrigin.COORDINATOR)
    log.roll(now_ms=NOW_MS)
    _append(log, batch("b", producer=(8, 0, 1), transactional=True))
    log.roll(now_ms=NOW_MS)
    return log


def _append(log: Log, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append_as_leader(memoryview(data), leader_epoch=0, now_ms=NOW_MS, origin=origin)


def snapshot(module: ModuleType, disk: MemoryDisk, log: Log, *, begins_empty: bool = True) -> bytes:
    closed = list(log.segments)[:-1]
    ends = [segment.base_offset for segment in list(log.segments)[1:]]
    segments = [
        module.SegmentFile(segment.log_path, segment.base_offset, end, segment.size)
        for segment, end in zip(closed, ends, strict=True)
    ]
    made: bytes = module.snapshot_at_end(disk, DIRECTORY, segments, begins_empty=begins_empty)
    return made


def test_a_missing_snapshot_is_computed_from_the_log(module: ModuleType) -> None:
    disk = MemoryDisk()
    log = log_with_transactions(disk)
    paths = [log.producers.snapshots.path(segment.base_offset) for segment in list(log.segments)[1:]]
    written = disk.read(paths[-1])
    assert decode_open_transactions(written) == {8: 1}
    assert snapshot(module, disk, log) == written
    for path in reversed(paths):  # from the one before it, and at last from the beginning of the log
        disk.remove(path)
        assert snapshot(module, disk, log) == written


def test_a_torn_snapshot_is_computed_again(module: ModuleType) -> None:
    disk = MemoryDisk()
    log = log_with_transactions(disk)
    path = log.producers.snapshots.path(log.segments.active.base_offset)
    written = disk.read(path)
    disk.replace(path, written[:-3])
    assert snapshot(module, disk, log) == written


def test_a_segment_is_not_copied_if_its_producers_cannot_be_known(module: ModuleType) -> None:
    disk = MemoryDisk()
    log = log_with_transactions(disk)
    for segment in list(log.segments)[1:]:
        disk.remove(log.producers.snapshots.path(segment.base_offset))
    with pytest.raises(KafkaStorageError, match="is not copied"):
        snapshot(module, disk, log, begins_empty=False)


MISTAKES = [
    ("segments[number:]", "segments[-1:]", test_a_missing_snapshot_is_computed_from_the_log),
    ("number == 0 and begins_empty", "number == 0", test_a_segment_is_not_copied_if_its_producers_cannot_be_known),
    ("_read(disk, files, end) is not None", "disk.exists(files.path(end))", test_a_torn_snapshot_is_computed_again),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(producers_at, right, wrong, rule)
