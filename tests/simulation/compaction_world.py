"""A compacted topic that is written, cut, deleted and made again under a compaction, on a disk that loses its power.

The code under test is the production storage: `LogDirectory`, its log, its checkpoints, its cleaner. A round of
compaction is a generator, and between two of its steps anything may happen to its log, as in a broker. A power loss
comes before any operation of the disk, in the middle of a swap, of a deletion, of a start.

The model is a list of records by offset, of the current topic. Every record in the log was written there, in this life
of the topic. The last record of each key is there; if that is a tombstone, it may be gone, and then no record
of the key is left: **a deleted key does not come back**.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from support.crash_enumeration import READS
from support.log_fixtures import NOW_MS

from trioka.protocol.batch import build, records
from trioka.protocol.errors import KafkaError
from trioka.protocol.record import Record
from trioka.storage.cleaning import cleaner
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.disk_faults import DiskOperation
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
MAX_STARTS = 200  # in a row that are interrupted too
KEYS = "abcdef"


class Violation(AssertionError):
    """A promise was broken."""


class PowerLost(BaseException):
    """In the middle of something."""


class Row(NamedTuple):
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    """How bad it is."""

    steps: int = 300
    segment_bytes: int = 300
    power: float = 0.002  # the probability of a power loss, at any operation of the disk
    model: CrashModel | None = None
    tombstones: float = 0.3
    compact: int = 20  # how often, in comparison
    sync: int = 4
    cut: int = 2
    delete: int = 2  # the topic
    stop: int = 2

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"weather {seed}")
        return cls(
            segment_bytes=random.choice([200, 300, 800]),
            power=random.choice([0, 0.001, 0.005]),
            model=random.choice([None, *CrashModel]),
            tombstones=random.choice([0.1, 0.4]),
            compact=random.choice([2, 10, 60]),
            cut=random.choice([0, 2, 6]),
            delete=random.choice([0, 1, 4]),
            stop=random.choice([0, 2, 6]),
        )


CALM = {"power": 0.0, "cut": 0, "delete": 0, "stop": 0}


class CompactionWorld:
    def __init__(self, seed: int, *, profile: FaultProfile | None = None) -> None:
        self.random = Random(seed)
        self.profile = profile = profile or FaultProfile.of(seed)
        self._config = LogConfig(
            cleanup_policy=frozenset({"compact"}),
            segment_bytes=profile.segment_bytes,
            index_interval_bytes=100,
            delete_retention_ms=0,
            min_cleanable_dirty_ratio=0.01,
            file_delete_delay_ms=0,
        )
        self.disk = MemoryDisk()
        self.disk.make_directory("/logs")
        self.disk.settle()
        self.rows: list[Row] = []  # by offset; the last ones may never have arrived
        self.kept = 0
        self.life = 1  # of the topic: its id
        self.epoch = 0
        self.events = self.crashes = self.rounds = self.abandoned = 0
        self._shadows: set[str] = set()  # keys whose last record was cut: older ones may have been compacted away
        self._work: Generator[None, None, cleaner.CleanResult] | None = None
        self._worked_on: Log | None = None
        self._values = 0
        self._is_fair = False
        self._found: MemoryDisk | None = None

    @property
    def log(self) -> Log:
        return self.directory.logs[NAME]

    def trace(self) -> object:
        return self.events, self.crashes, self.rounds, self.abandoned, self.life, self.rows

    def run(self, steps: int) -> None:
        try:
            self._live(self._open)
            for _ in range(steps):
                self._live(self._select_partitions())
            self._is_fair = True
            self._live(self._stop)
            self._live(self._compact_whole)
        except AssertionError:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error

    def _select_partitions(self) -> Callable[[], None]:
        profile = self.profile
        chances: dict[Callable[[], None], float] = {
            self._put: 60,
            self._roll: 10,
            self._sync: profile.sync,
            self._cut: profile.cut,
            self._delete: profile.delete,
            self._stop: profile.stop,
            self._die: profile.stop,
            self._compact: profile.compact,
            self._compact_whole: profile.compact / 10,
        }
        return self.random.choices(list(chances), list(chances.values()))[0]

    def _live(self, step: Callable[[], None]) -> None:
        try:
            step()
        except PowerLost:
            self._come_back()
        if step != self._put:
            self._compare()

    # -- what a broker does --------------------------------------------------------------------------------------------

    def _put(self) -> None:
        self._values += 1
        key = self.random.choice(KEYS)
        value = None if self.random.random() < self.profile.tombstones else str(self._values)
        self.rows.append(Row(key, value))
        self._shadows.discard(key)
        record = Record(0, NOW_MS, key.encode(), None if value is None else value.encode())
        batch = build([record], base_offset=0, leader_epoch=-1)
        appended = self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=NOW_MS)
        if appended.first_offset != len(self.rows) - 1:
            raise Violation(f"S1: appended at {appended.first_offset}, the log ended at {len(self.rows) - 1}")
        self.log.advance_high_watermark(len(self.rows))

    def _roll(self) -> None:
        self.log.roll(now_ms=NOW_MS)

    def _sync(self) -> None:
        end = len(self.rows)
        self.log.sync()
        self.kept = end
        if self.random.random() < 0.5:
            self.directory.checkpoint()
        self.directory.sweep(NOW_MS)

    def _compact(self) -> None:
        """A step of a round: of the current round, if there is one, in any state of its log."""
        if self._work is None:
            to_clean = cleaner.log_to_clean(self.log, self.log.first_dirty_offset, now_ms=NOW_MS)
            self._worked_on = self.log
            self._work = cleaner.clean(
                self.log, to_clean, now_ms=NOW_MS, step_bytes=self.random.choice((1, 300)), map_bytes=1000
            )
        assert self._worked_on is not None
        try:
            next(self._work)
        except StopIteration as done:
            self.directory.compacted(self._worked_on, done.value.first_dirty_offset)
            self.rounds += 1
        except (cleaner.CleaningAborted, KafkaError, OSError):
            self.abandoned += 1
        else:
            return
        self._work = self._worked_on = None

    def _compact_whole(self) -> None:
        """Twice: what was a tombstone's first round may be its last."""
        for _ in range(2):
            self._compact()
            while self._work is not None:
                self._compact()

    def _end_round(self) -> None:
        if self._work is not None:
            self._work.close()
        self._work = self._worked_on = None

    def _cut(self) -> None:
        """As a follower cuts because there is a new leader, which need not have everything."""
        if not self.rows:
            return
        offset = self.random.randrange(max(0, len(self.rows) - 12), len(self.rows))
        self.kept = min(self.kept, offset)
        self.epoch += 1
        try:
            self.log.truncate_to(offset, now_ms=NOW_MS)
        finally:  # or a power loss, which leaves the log longer; then fewer checks apply
            end = min(offset, self.log.log_end_offset)
            self.kept = min(self.kept, end)
            self._shadows |= {row.key for row in self.rows[end:]}
        del self.rows[end:]

    def _delete(self) -> None:
        """The topic is deleted, and another has its name."""
        self.life += 1
        self.rows, self.kept, self._shadows = [], 0, set()
        self.directory.delete({NAME: f"{self.life:032x}"}, now_ms=NOW_MS)
        self.directory.create(NAME, self._config, now_ms=NOW_MS, topic_id=self._topic_id)

    @property
    def _topic_id(self) -> bytes:
        return self.life.to_bytes(16, "big")

    def _stop(self) -> None:
        self._end_round()
        end = len(self.rows)
        self.directory.close(broker_epoch=1)
        self.kept = end
        self._open()

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _before(self, operation: DiskOperation) -> None:
        self.events += 1
        if self._is_fair or operation.kind in READS:
            return
        if self.random.random() < self.profile.power:
            self.crashes += 1
            self._found = self.disk.crash(self.profile.model or self.random.choice(list(CrashModel)), self.random)
            raise PowerLost

    def _die(self) -> None:
        """The process, and nothing else."""
        self._end_round()
        self.directory.close_handles()
        self._open()

    def _come_back(self) -> None:
        self.disk.before = None
        self._end_round()
        for _ in range(MAX_STARTS):
            assert self._found is not None
            self.disk = self._found
            try:
                self._open()
                break
            except PowerLost:
                continue

    def _open(self) -> None:
        self.disk.before = self._before
        self.directory = LogDirectory.open(self.disk, "/logs", lambda name: self._config, now_ms=NOW_MS, threads=1)
        if NAME in self.directory.logs and self.directory.topic_ids.get(NAME) not in (None, self._topic_id):
            self.directory.mark_stray({NAME: f"{self.random.getrandbits(128):032x}"})
        elif NAME in self.directory.logs and NAME not in self.directory.topic_ids:
            self.directory.assign_topic_ids({NAME: self._topic_id})
        if NAME not in self.directory.logs:
            if self.kept:
                raise Violation("S1: the log is gone")
            self.directory.create(NAME, self._config, now_ms=NOW_MS, topic_id=self._topic_id)
        end = self.log.log_end_offset
        if not self.kept <= end <= len(self.rows):
            raise Violation(f"S1: the log ends at {end}; {self.kept} was synced, {len(self.rows)} written")
        self._shadows |= {row.key for row in self.rows[end:]}
        del self.rows[end:]
        self.log.advance_high_watermark(end)
        self.epoch += 1

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        before, self.disk.before = self.disk.before, None
        found: dict[str, int] = {}
        for segment in self.log.segments:
            for each in segment.scan():
                for record in records(each.buffer, each.header):
                    row = Row((record.key or b"").decode(), None if record.value is None else record.value.decode())
                    if record.offset >= len(self.rows) or self.rows[record.offset] != row:
                        raise Violation(f"S5: {row} at {record.offset} was not written there")
                    found[row.key] = record.offset
        last = {row.key: offset for offset, row in enumerate(self.rows)}
        for key, offset in last.items():
            is_deleted = self.rows[offset].value is None and key not in found
            if key not in self._shadows and not is_deleted and found.get(key) != offset:
                raise Violation(f"S7: of {key} the last record is at {offset}, and {found.get(key)} is found")
        if self.log.quarantine:
            raise Violation(f"S6: damage, and nothing was damaged: {self.log.quarantine.damages}")
        self.disk.before = before
