"""A log does what a list of records does, through a thousand random steps: appends, rolls, cuts, deletions, restarts,
power losses and flipped bits in the indexes. The list is the model; it knows nothing of segments."""

from random import Random
from typing import NamedTuple

import pytest
from support.log_fixtures import NOW_MS, batch, read_all

from trioka.protocol.errors import OffsetOutOfRange
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, file_delete_delay_ms=10)
STEPS = 120
SEEDS = range(25)


class Row(NamedTuple):
    offset: int
    timestamp: int
    value: str
    epoch: int
    batch_start: int


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk()
        self.disk.make_directory("/logs")
        self.disk.settle()
        self.directory = self.open()
        self.directory.create(NAME, CONFIG, now_ms=NOW_MS)
        self.rows: list[Row] = []
        self.start = 0  # of the log
        self.end = 0
        self.epoch = 0
        self.synced = 0  # a power loss may not take what is before
        self.clock = NOW_MS
        self.written = 0

    @property
    def log(self) -> Log:
        return self.directory.logs[NAME]

    def open(self) -> LogDirectory:
        return LogDirectory.open(self.disk, "/logs", lambda name: CONFIG, now_ms=NOW_MS, threads=1)

    # Steps -----------------------------------------------------------------------------------------------------------

    def append(self) -> None:
        if self.random.random() < 0.1:
            self.epoch += 1
        count = self.random.choice((1, 1, 2, 5))
        self.clock += self.random.randrange(-50, 100)
        values = [f"{self.written + index}:{'x' * self.random.randrange(60)}" for index in range(count)]
        self.written += count
        answer = self.log.append_as_leader(
            batch(*values, timestamp=self.clock), leader_epoch=self.epoch, now_ms=self.clock
        )
        assert answer.first_offset == self.end
        self._note(self.end, values)

    def append_as_follower(self) -> None:
        """Two batches of a compacted leader: with gaps."""
        data = bytearray()
        rows = []
        at = self.end
        for _ in range(2):
            at += self.random.choice((0, 0, 3))
            values = [f"{self.written}:f"]
            self.written += 1
            data += batch(*values, timestamp=self.clock, base_offset=at, leader_epoch=self.epoch)
            rows.append((at, values))
            at += 1
        self.log.append_as_follower(data + data[:30], now_ms=self.clock)
        for at, values in rows:
            self._note(at, values)

    def _note(self, offset: int, values: list[str]) -> None:
        for index, value in enumerate(values):
            self.rows.append(Row(offset + index, self.clock + index, value, self.epoch, offset))
        self.end = offset + len(values)

    def roll(self) -> None:
        self.log.roll(now_ms=self.clock)

    def sync(self) -> None:
        self.log.sync()
        self.synced = self.end
        if self.random.random() < 0.5:
            self.directory.checkpoint()

    def truncate(self) -> None:
        if self.end == self.start:
            return
        offset = self.random.randrange(max(self.start, self.end - 30), self.end)
        self.log.truncate_to(offset, now_ms=self.clock)
        cut = {row.batch_start for row in self.rows if row.offset >= offset}
        self.rows = [row for row in self.rows if row.batch_start not in cut]
        self.end = self.log.log_end_offset
        assert self.end <= offset
        assert self.end >= max((row.offset + 1 for row in self.rows), default=0)
        self.start = min(self.start, self.end)
        self.synced = min(self.synced, self.end)
        self.epoch += 1  # as a follower cuts because there is a new leader

    def delete_records(self) -> None:
        self.log.advance_high_watermark(self.end)
        self.start = self.random.randrange(self.start, self.end + 1)
        self.log.delete_records_before(self.start)

    def delete_segments(self) -> None:
        self.log.advance_high_watermark(self.end)
        count = self.random.randrange(len(self.log.segments) + 1)
        self.log.delete_segments(self.log.segments[:count], now_ms=self.clock)
        self.start = max(self.start, self.log.log_start_offset)
        self.log.sweep(self.clock + 10)

    def restart(self) -> None:
        self.directory.close(broker_epoch=1)
        self.directory = self.open()
        assert self.directory.report.clean
        self.synced = self.end
        self.start = self.log.log_start_offset

    def lose_power(self) -> None:
        self.disk = self.disk.crash(self.random.choice(list(CrashModel)), self.random)
        self.directory = self.open()
        log = self.log
        assert not log.quarantine, log.quarantine.damages
        assert log.log_end_offset >= self.synced, "what was synced is gone"
        assert log.log_end_offset <= self.end
        self.start = log.log_start_offset  # DeleteRecords is not durable at once
        self.end = self.synced = log.log_end_offset
        self.rows = [row for row in self.rows if row.offset < self.end]
        self.epoch += 1

    def flip_a_bit_beside_the_log(self) -> None:
        paths = [path for path, data in self.disk.files().items() if path.endswith("index") and data]
        if paths:
            path = self.random.choice(paths)
            self.disk.flip_bit(path, self.random.randrange(self.disk.size(path)), self.random.randrange(8))
            self.directory.files.close()  # a MemoryDisk's maps are copies: look again

    # What must hold --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        visible = [row for row in self.rows if row.offset >= self.start]
        begin = self.random.randrange(self.start, self.end + 1)
        found = read_all(log, begin, max_bytes=self.random.choice((1, 200, 10_000)))
        assert [(r.offset, (r.value or b"").decode()) for r in found] == [
            (row.offset, row.value) for row in visible if row.offset >= begin
        ]
        with pytest.raises(OffsetOutOfRange):
            log.read(self.end + 1, 100)
        self.check_times(visible)
        for row in visible:
            assert log.epochs.epoch_for_offset(row.offset) == row.epoch

    def check_times(self, visible: list[Row]) -> None:
        time = self.random.randrange(NOW_MS - 100, self.clock + 100)
        expected = next((row for row in visible if row.timestamp >= time), None)
        found = offset_for_timestamp(self.log, time)
        assert (found and (found.offset, found.timestamp, found.leader_epoch)) == (
            expected and (expected.offset, expected.timestamp, expected.epoch)
        )
        newest = offset_of_max_timestamp(self.log)
        if visible and len(visible) == len(self.rows):
            top = max(row.timestamp for row in visible)
            first = next(row for row in visible if row.timestamp == top)
            assert newest is not None
            assert (newest.offset, newest.timestamp) == (first.offset, top)


STEP_WEIGHTS = [
    (Walk.append, 40),
    (Walk.append_as_follower, 8),
    (Walk.roll, 4),
    (Walk.sync, 8),
    (Walk.truncate, 4),
    (Walk.delete_records, 3),
    (Walk.delete_segments, 3),
    (Walk.restart, 4),
    (Walk.lose_power, 4),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_is_a_list_of_records(seed: int) -> None:
    walk = Walk(seed)
    steps, weights = zip(*STEP_WEIGHTS, strict=True)
    for _ in range(STEPS):
        walk.random.choices(steps, weights)[0](walk)
        walk.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_is_a_list_of_records_though_its_indexes_rot(seed: int) -> None:
    walk = Walk(seed)
    steps, weights = zip(*STEP_WEIGHTS, (Walk.flip_a_bit_beside_the_log, 20), strict=True)
    for _ in range(STEPS):
        walk.random.choices(steps, weights)[0](walk)
        walk.check()
