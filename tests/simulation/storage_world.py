"""A log directory on a disk that loses its power at any operation, fails, and is written by two threads at once.

The code under test is the production storage: `LogDirectory`, its log, its checkpoints, its recovery. The disk is
`MemoryDisk`, which forgets what was not synced under one of three models. A power loss comes between any two operations
of the disk, in the middle of an append, a cut, a checkpoint or a recovery. During a sync, the other threads of a broker
run, also before it takes the log's lock: a checkpoint is written, records are appended, the log is cut.

The model is a list of records. After a crash the log must be a prefix of it, of whole batches, and have everything
that was synced (S1); nothing is missing that the checkpoints contain (S2, S3, S6); a disk that fails is taken offline
(S4); every record that is read was written (S5).
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from threading import Lock
from typing import Any, NamedTuple

from support.crash_enumeration import READS
from support.log_fixtures import NOW_MS, batch, read_all

from trioka.protocol.errors import KafkaStorageError
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.recovery.index_rebuild import epochs_of
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.disk_faults import DiskOperation, Effect, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
MAX_RECOVERIES = 200  # in a row that are interrupted too
LOOK = 0.25  # so often the log is read while nothing happens
FAULTS: tuple[tuple[frozenset[Kind], Effect], ...] = (
    (frozenset({Kind.SYNC}), Effect.DROPS),
    (frozenset({Kind.SYNC, Kind.SYNC_DIRECTORY}), Effect.FAILS),
    (frozenset({Kind.WRITE}), Effect.HALF),
    (frozenset({Kind.WRITE, Kind.CREATE, Kind.RENAME, Kind.TRUNCATE}), Effect.FAILS),
)


class Violation(AssertionError):
    """A promise was broken."""


class PowerLost(BaseException):
    """Raised in the middle of an operation. The code under test must not catch it, because its process has ended."""


class InterceptedLock:
    """A log's lock: before one thread takes it, others may run."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._lock = Lock()

    def __enter__(self) -> None:
        self._before()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Row(NamedTuple):
    value: str
    epoch: int
    batch: int  # the offset of the first one in its batch


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    """How bad it is."""

    steps: int = 100
    segment_bytes: int = 1500
    value_bytes: int = 60  # at most; a sector has 512
    power: float = 0.01  # the probability of a power loss, at any operation of the disk
    error: float = 0.02  # how often an operation of a step fails
    meanwhile: float = 0.1  # the share of operations during which another thread acts
    model: CrashModel | None = None  # the result of a power loss; None: any of them
    sync: int = 8  # how often, in comparison
    cut: int = 4
    delete: int = 3
    stop: int = 3  # in order, or not

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"weather {seed}")
        return cls(
            segment_bytes=random.choice([700, 1500, 6000]),
            value_bytes=random.choice([10, 60, 600]),
            power=random.choice([0.001, 0.005, 0.02]),
            error=random.choice([0, 0.02, 0.1]),
            meanwhile=random.choice([0, 0.1, 0.5]),
            model=random.choice([None, *CrashModel]),
            sync=random.choice([2, 8, 30]),
            cut=random.choice([1, 4, 12]),
            delete=random.choice([0, 3]),
            stop=random.choice([1, 5]),
        )


CALM = {"power": 0.0, "error": 0.0, "meanwhile": 0.0, "cut": 0, "delete": 0, "stop": 0}


class StorageWorld:
    def __init__(self, seed: int, *, profile: FaultProfile | None = None) -> None:
        self.random = Random(seed)
        self.profile = profile = profile or FaultProfile.of(seed)
        self._config = LogConfig(
            segment_bytes=profile.segment_bytes + 4 * profile.value_bytes, index_interval_bytes=150
        )
        self.disk = MemoryDisk()
        self.disk.make_directory("/logs")
        self.disk.settle()
        self.rows: list[Row] = []  # by offset; the last ones may never have arrived
        self.start = 0
        self.kept = 0  # records before it survive any crash
        self.epoch = 0
        self.events = 0  # operations of all disks
        self.crashes = 0
        self._values = 0
        self._is_fair = False
        self._is_alone = True  # no other thread may act now
        self._is_looking = False  # no events during a check
        self._lowest = 0  # where the log ended, while a sync went on
        self._found: MemoryDisk | None = None  # the disk after the last power loss

    @property
    def log(self) -> Log:
        return self.directory.logs[NAME]

    def trace(self) -> object:
        return self.events, self.crashes, self.start, self.kept, self.rows

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        try:
            self._live(self._open)
            for _ in range(steps):
                self._live(self._select_partitions())
            self._is_fair = True
            self.disk.faults.clear()
            self._live(self._stop)
            self._compare()
        except AssertionError:
            raise
        except Exception as error:  # a sound log raises no such error
            raise Violation(f"{type(error).__name__}: {error}") from error

    def _select_partitions(self) -> Callable[[], None]:
        profile = self.profile
        steps = (self._append, self._sync, self._roll, self._cut, self._delete, self._stop, self._die, self._checkpoint)
        weights = (40, profile.sync, 2, profile.cut, profile.delete, profile.stop, profile.stop, 4)
        return self.random.choices(steps, weights)[0]

    def _live(self, step: Callable[[], None]) -> None:
        """One action, or an event in the middle of it."""
        fault = self._fault()
        try:
            step()
            self._look()
        except PowerLost:
            self._come_back()
        except KafkaStorageError:
            if self.directory.failure is None:
                raise
            self._reboot()
        else:
            if fault is not None and self.disk.faults.fired:
                raise Violation(f"S4: an operation failed ({fault.effect.value}), and the directory is still in use")
        self.disk.faults.clear()
        self.disk.faults.fired = 0

    def _fault(self) -> Fault | None:
        if self._is_fair or self.random.random() >= self.profile.error:
            return None
        kinds, effect = self.random.choice(FAULTS)
        number = self.random.choice((errno.EIO, errno.ENOSPC))
        fault = Fault(nth=self.random.randrange(1, 4), kinds=kinds, effect=effect, error=number)
        self.disk.faults.add(fault)
        return fault

    # -- what a broker does --------------------------------------------------------------------------------------------

    def _append(self) -> None:
        values = [self._value() for _ in range(self.random.choice((1, 1, 2, 4)))]
        end = len(self.rows)
        self.rows += [Row(value, self.epoch, end) for value in values]
        appended = self.log.append_as_leader(batch(*values, key=None), leader_epoch=self.epoch, now_ms=NOW_MS)
        if (appended.first_offset, appended.last_offset) != (end, len(self.rows) - 1):
            raise Violation(f"S1: appended at {appended.first_offset}, the log ended at {end}")

    def _value(self) -> str:
        self._values += 1
        return f"{self._values}:{'x' * self.random.randrange(self.profile.value_bytes)}"

    def _sync(self) -> None:
        """In a worker thread, while the others go on."""
        end = len(self.rows)
        self._lowest = end
        self._is_alone = False
        self.log.sync()
        self._is_alone = True
        self.kept = max(self.kept, min(end, self._lowest))
        if self.log.recovery_point > len(self.rows):
            raise Violation(f"S2: the recovery point is {self.log.recovery_point}, the log ends at {len(self.rows)}")

    def _checkpoint(self) -> None:
        self.directory.checkpoint()

    def _roll(self) -> None:
        self.log.roll(now_ms=NOW_MS)

    def _cut(self) -> None:
        """As a follower cuts because there is a new leader."""
        if len(self.rows) == self.start:
            return
        offset = self.random.randrange(max(self.start, len(self.rows) - 20), len(self.rows))
        offset = self.rows[offset].batch
        self.kept, self._lowest = min(self.kept, offset), min(self._lowest, offset)
        self.log.truncate_to(offset, now_ms=NOW_MS)
        self.start = min(self.start, offset)
        del self.rows[offset:]
        self.epoch += 1

    def _delete(self) -> None:
        """The oldest segments, or a few records."""
        log = self.log
        log.advance_high_watermark(len(self.rows))
        if self.random.random() < 0.5:
            self.start = self.random.randrange(self.start, len(self.rows) + 1)
            log.delete_records_before(self.start)
        else:
            gone = log.segments[: self.random.randrange(len(log.segments))]
            if gone:
                self.start = max(self.start, log.segments[len(gone)].base_offset)
                log.delete_segments(gone, now_ms=NOW_MS)
                log.sweep(NOW_MS + self._config.file_delete_delay_ms)

    def _stop(self) -> None:
        end = len(self.rows)
        self.directory.close(broker_epoch=1)
        self.kept = end
        self._open()
        if not self.directory.report.clean:
            raise Violation("S2: a stop in order was not noticed")
        self._compare()

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _before(self, operation: DiskOperation) -> None:
        """At every operation of the disk that changes something."""
        self.events += 1
        if self._is_fair or self._is_looking or operation.kind in READS:
            return
        if self.random.random() < self.profile.power:
            self.crashes += 1
            self._found = self.disk.crash(self.profile.model or self.random.choice(list(CrashModel)), self.random)
            raise PowerLost
        self._meanwhile()

    def _meanwhile(self) -> None:
        """The log's own thread, or another, runs while one syncs."""
        if not self._is_alone and self.random.random() < self.profile.meanwhile:
            self._is_alone = True
            others = (self._append, self._cut, self._checkpoint)
            self.random.choices(others, (4, 1 if self.profile.cut else 0, 4))[0]()
            self._is_alone = False

    def _die(self) -> None:
        """The process, and nothing else: all that was written is there."""
        end = len(self.rows)
        self.directory.close_handles()
        self._open()
        if self.log.log_end_offset != end:
            raise Violation(f"S1: nothing was lost, and the log ends at {self.log.log_end_offset}, not at {end}")
        self._compare()

    def _reboot(self) -> None:
        """The content of a disk's cache after an error is lost."""
        self.disk.faults.clear()
        self._found = self.disk.crash(self.profile.model or self.random.choice(list(CrashModel)), self.random)
        self._come_back()

    def _come_back(self) -> None:
        """Restarts from the remains of a power loss; another power loss may come during the check."""
        for _ in range(MAX_RECOVERIES):
            assert self._found is not None
            self.disk = self._found
            try:
                self._open()
                break
            except PowerLost:
                continue
        self._compare()

    def _open(self) -> None:
        self._is_alone = True
        self.disk.before = self._before
        self.directory = LogDirectory.open(self.disk, "/logs", lambda name: self._config, now_ms=NOW_MS, threads=1)
        if self.directory.failure is not None:
            raise self.directory.volume.offline()
        if NAME not in self.directory.logs:
            if self.kept:
                raise Violation("S1: the log is gone")
            self.directory.create(NAME, self._config, now_ms=NOW_MS)
        lock: Any = InterceptedLock(self._meanwhile)
        self.log.lock = self.log.segments._lock = lock

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        log = self.log
        if (log.log_start_offset, log.log_end_offset) != (self.start, len(self.rows)):
            raise Violation(f"S1: {log}, not {self.start}–{len(self.rows)}")
        if self.random.random() < LOOK:
            self._is_looking = True
            self._read(self.random.randrange(self.start, len(self.rows) + 1))
            self._is_looking = False

    def _compare(self) -> None:
        """Compares the model with the log after a stop."""
        self._is_looking = True
        log, report = self.log, self.directory.report
        if log.quarantine.damages or report.damaged_files:
            raise Violation(f"S6: damage, and nothing was damaged: {log.quarantine.damages} {report.damaged_files}")
        end = log.log_end_offset
        if not self.kept <= end <= len(self.rows):
            raise Violation(f"S1: the log ends at {end}; {self.kept} was synced, {len(self.rows)} written")
        if log.log_start_offset < end < len(self.rows) and self.rows[end].batch != end:
            raise Violation(f"S1: half a batch, up to {end}")
        if log.log_start_offset > self.start:
            raise Violation(f"S1: the log starts at {log.log_start_offset}, {self.start} was meant")
        self.start = log.log_start_offset
        del self.rows[end:]
        self._read(self.start)
        entries = [entry for entry in epochs_of(log.segments) if entry.start_offset >= self.start]
        if self.start == 0 and not set(entries) <= set(log.epochs.entries):
            raise Violation(f"I9: the batches say {entries}, the epochs {log.epochs.entries}")
        self.epoch += 1
        self._is_looking = False

    def _read(self, offset: int) -> None:
        found = [(record.offset, (record.value or b"").decode()) for record in read_all(self.log, offset)]
        if found != [(at, self.rows[at].value) for at in range(offset, len(self.rows))]:
            raise Violation(f"S5: what is read from {offset} on is not what was written")
