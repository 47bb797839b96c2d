"""Bits that flip on all replicas of a partition: a batch with one good copy left is never lost (S6).

The logs and their repair are production code: `storage.scrub` finds damage, `cluster.healing` chooses the source,
`storage.segment_repair` installs the copy; on disks that lose their power. The cluster around them is minimal: one
replica leads, the others fetch from it, and records on all are committed. `replication_world` tests that.

A bit flips only where another replica still has a good copy of the same batch, on its disk. From then on there must be
one at every moment, through all cuts, copies, swaps and restarts; no reader gets a wrong byte; and after the faults
every replica has all of it again. Offset and leader epoch of a batch are left alone: they are in no checksum, and where
the batch beside it is damaged too, a wrong offset cannot be detected.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from types import ModuleType

from support.log_fixtures import NOW_MS, batch

from trioka.cluster.image.partition import Partition
from trioka.cluster.replication.healing import RepairAction, first_uncommitted_damage, repair_action, sources
from trioka.protocol.batch import headers
from trioka.protocol.errors import CorruptMessage, KafkaError
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.recovery import segment_repair
from trioka.storage.recovery.scrub import SegmentScrub
from trioka.storage.segments.batch_scan import BadBatch
from trioka.storage.segments.quarantine import Damage
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
REPLICAS = 3
FETCH_BYTES = 600
CALM_ROUNDS = 60
NOT_IN_CRC = (*range(8), *range(12, 16))


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    """How often something happens, in comparison."""

    steps: int = 250
    segment_bytes: int = 700
    append: int = 30
    fetch: int = 60
    flip: int = 10
    scrub: int = 10
    heal: int = 20
    read: int = 20
    crash: int = 2
    elect: int = 2

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"weather {seed}")
        return cls(
            segment_bytes=random.choice([400, 700, 5000]),
            flip=random.choice([3, 15, 60]),
            scrub=random.choice([3, 20]),
            heal=random.choice([5, 30]),
            crash=random.choice([0, 2, 6]),
            elect=random.choice([0, 3]),
        )


CALM = {"flip": 0, "crash": 0, "elect": 0}


class Replica:
    def __init__(self, id: int, config: LogConfig) -> None:
        self.id = id
        self._config = config
        self.disk = MemoryDisk()
        self.start()

    @property
    def log(self) -> Log:
        return self.directory.logs[NAME]

    def start(self) -> None:
        self.directory = LogDirectory.open(self.disk, "/logs", lambda name: self._config, now_ms=NOW_MS, threads=1)
        if NAME not in self.directory.logs:
            self.directory.create(NAME, self._config, now_ms=NOW_MS)

    def contents(self) -> str:
        """Of all its segments, as they are on its disk now."""
        path = self.log.directory
        names = [name for name in self.disk.list(path) if name.endswith(".log")]
        return b"".join(self.disk.read(f"{path}/{name}") for name in names).decode("latin-1")


class RotWorld:
    def __init__(self, seed: int, *, profile: FaultProfile | None = None, mending: ModuleType = segment_repair) -> None:
        self.random = Random(seed)
        self.profile = profile or FaultProfile.of(seed)
        self._mend = mending
        config = LogConfig(segment_bytes=self.profile.segment_bytes, index_interval_bytes=100)
        self.replicas = [Replica(number, config) for number in range(REPLICAS)]
        self.leader = 0
        self.epoch = 0
        self.truth: dict[int, bytes] = {}  # by first offset: every batch that is committed
        self.written: dict[int, bytes] = {}  # that the leader has, committed or not
        self.flips = self.healed = self.cuts = self.crashes = 0
        self.events: list[str] = []

    def trace(self) -> object:
        return self.events, sorted(self.truth.items())

    # -- what happens --------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        profile = self.profile
        weights = {
            name: getattr(profile, name)
            for name in ("append", "fetch", "flip", "scrub", "heal", "read", "crash", "elect")
        }
        for _ in range(steps):
            (what,) = self.random.choices(list(weights), list(weights.values()))
            self.events.append(what)
            getattr(self, what)()
            self._check_copies(what)
        for _ in range(CALM_ROUNDS):
            for replica in self.replicas:
                self._scrub(replica)
                self._heal(replica)
            for _ in range(5):
                self.fetch()
        self._check_everything_is_healed()

    def append(self) -> None:
        log = self.replicas[self.leader].log
        values = [
            f"{self.random.getrandbits(64):x}" * self.random.randint(1, 4) for _ in range(self.random.randint(1, 3))
        ]
        appended = log.append_as_leader(batch(*values), leader_epoch=self.epoch, now_ms=NOW_MS)
        answer = log.read(appended.first_offset, 1)
        assert answer.records is not None
        self.written[appended.first_offset] = bytes(answer.records.read())

    def fetch(self) -> None:
        """A follower fetches from its leader, as broker/replication/fetcher.py does."""
        replica, leader = self.random.choice(self.replicas), self.replicas[self.leader]
        log = replica.log
        if replica is leader:
            return
        damage = first_uncommitted_damage(log.quarantine.damages, log.high_watermark)
        offset = log.log_end_offset if damage is None else damage.first_offset
        try:
            answer = leader.log.read(offset, FETCH_BYTES) if offset <= leader.log.log_end_offset else None
        except CorruptMessage:
            log.advance_high_watermark(leader.log.high_watermark)  # which the error response contains
            return
        data = bytes(answer.records.read()) if answer is not None and answer.records is not None else b""
        log.advance_high_watermark(leader.log.high_watermark)
        if damage is None:
            if data:
                log.append_as_follower(data, now_ms=NOW_MS)
            self._commit()
        elif first_uncommitted_damage(log.quarantine.damages, log.high_watermark) is not None:
            cure = repair_action(
                damage, leads=False, high_watermark=log.high_watermark, log_end_offset=log.log_end_offset
            )
            if cure is RepairAction.CUT:
                self.cuts += 1
                log.truncate_to(damage.first_offset, now_ms=NOW_MS)
            elif data:
                self._put_in(replica, {damage: data})

    def _commit(self) -> None:
        ends = []
        for replica in self.replicas:
            damage = first_uncommitted_damage(replica.log.quarantine.damages, replica.log.high_watermark)
            ends.append(replica.log.log_end_offset if damage is None else damage.first_offset)
        self.replicas[self.leader].log.advance_high_watermark(min(ends))
        high_watermark = self.replicas[self.leader].log.high_watermark
        for offset, data in self.written.items():
            if offset < high_watermark:
                self.truth.setdefault(offset, data)

    def flip(self) -> None:
        if not self.truth:
            return
        replica, offset = self.random.choice(self.replicas), self.random.choice(sorted(self.truth))
        data = self.truth[offset]
        others = [other for other in self.replicas if other is not replica and self._has(other, data)]
        path = self._path_of(replica, data)
        if others and path is not None:
            at = self.random.choice([at for at in range(len(data)) if at not in NOT_IN_CRC])
            position = replica.disk.read(path).index(data)
            replica.disk.flip_bit(path, position + at, self.random.randrange(8))
            replica.log.files.close()
            replica.log.segments.holding(offset).checked.cut(0)  # the next read comes from the disk
            self.flips += 1

    def scrub(self) -> None:
        self._scrub(self.random.choice(self.replicas))

    def _scrub(self, replica: Replica) -> None:
        for segment in list(replica.log.segments):
            work = SegmentScrub(replica.log, segment)
            work.run()
            work.note(replica.log)

    def heal(self) -> None:
        self._heal(self.random.choice(self.replicas))

    def _heal(self, replica: Replica) -> None:
        """As broker/replication/healing.py does."""
        log = replica.log
        patches: dict[Damage, bytes] = {}
        for damage in log.quarantine.damages:
            cure = repair_action(
                damage,
                leads=replica.id == self.leader,
                high_watermark=log.high_watermark,
                log_end_offset=log.log_end_offset,
            )
            if cure is RepairAction.FETCH:
                for node in sources(self._partition(), replica.id, lambda node: True):
                    data = self._copy(self.replicas[node].log, damage)
                    if self._accepts(log, damage, data):
                        patches[damage] = data
                        break
        self._put_in(replica, patches)

    def _copy(self, log: Log, damage: Damage) -> bytes:
        """The answer of this replica, from its committed records."""
        try:
            found = log.read(damage.first_offset, FETCH_BYTES, upto=log.high_watermark)
        except KafkaError:
            return b""
        return b"" if found.records is None else bytes(found.records.read())

    def _accepts(self, log: Log, damage: Damage, data: bytes) -> bool:
        try:
            self._mend.accept(damage, data, self._mend.epochs_around(log, damage), compacted=False)
        except self._mend.BadPatch:
            return False
        return True

    def _put_in(self, replica: Replica, found: dict[Damage, bytes]) -> None:
        log = replica.log
        for segment, damages in self._mend.repairable_segments(log).items():
            patches = [
                self._mend.accept(damage, found[damage], self._mend.epochs_around(log, damage), compacted=False)
                for damage in damages
                if damage in found and self._accepts(log, damage, found[damage])
            ]
            if not patches:
                continue
            self._mend.prepare(log, segment, now_ms=NOW_MS)
            log.sync()
            work = self._mend.begin(log, segment, now_ms=NOW_MS)
            try:
                built = self._mend.build(work, patches)
            except BadBatch:
                continue  # there is more damage than was known: the next scrub finds it
            self._mend.install_repair(work, built, patches)
            self.healed += sum(patch.is_whole for patch in patches)

    def read(self) -> None:
        """A consumer reads anywhere; the records must be right."""
        log = self.random.choice(self.replicas).log
        if log.high_watermark:
            try:
                answer = log.read(self.random.randrange(log.high_watermark), FETCH_BYTES, upto=log.high_watermark)
            except CorruptMessage:
                return
            if answer.records is not None:
                data = bytes(answer.records.read())
                for header in headers(data):
                    if data[header.position : header.end] != self.truth[header.base_offset]:
                        raise Violation(f"wrong bytes are served at {header.base_offset}")

    def crash(self) -> None:
        """A follower crashes, after all of it was synced: other worlds test the loss of unsynced data."""
        replica = self.random.choice([each for each in self.replicas if each.id != self.leader])
        high_watermark = replica.log.high_watermark
        replica.log.sync()
        replica.directory.checkpoint()
        replica.directory.close_handles()
        replica.disk = replica.disk.crash(self.random.choice(list(CrashModel)), self.random)
        replica.start()
        replica.log.advance_high_watermark(high_watermark)
        self.crashes += 1

    def elect(self) -> None:
        """A replica with the most records, and without damage at its end."""
        end = max(replica.log.log_end_offset for replica in self.replicas)
        able = [each for each in self.replicas if each.log.log_end_offset == end and each.log.high_watermark == end]
        if able:
            self.leader = self.random.choice(able).id
            self.epoch += 1
            self.replicas[self.leader].log.begin_epoch(self.epoch)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _partition(self) -> Partition:
        return Partition(
            index=0,
            replicas=tuple(range(REPLICAS)),
            directories=(bytes(16),) * REPLICAS,
            isr=tuple(range(REPLICAS)),
            leader=self.leader,
            leader_epoch=self.epoch,
            partition_epoch=0,
        )

    def _has(self, replica: Replica, data: bytes) -> bool:
        return self._path_of(replica, data) is not None

    def _path_of(self, replica: Replica, data: bytes) -> str | None:
        path = replica.log.directory
        for name in replica.disk.list(path):
            if name.endswith(".log") and data in replica.disk.read(f"{path}/{name}"):
                return f"{path}/{name}"
        return None

    def _check_copies(self, what: str) -> None:
        contents = [replica.contents() for replica in self.replicas]
        for offset, data in self.truth.items():
            text = data.decode("latin-1")
            if not any(text in content for content in contents):
                raise Violation(f"after {what!r} no replica has the batch at {offset}")

    def _check_everything_is_healed(self) -> None:
        self._commit()
        for replica in self.replicas:
            if replica.log.quarantine.damages:
                raise Violation(f"replica {replica.id} is not healed: {replica.log.quarantine.damages}")
            for offset, data in self._batches(replica.log):
                if offset in self.truth and data != self.truth[offset]:
                    raise Violation(f"replica {replica.id} has another batch at {offset}")
            missing = self.truth.keys() - dict(self._batches(replica.log)).keys()
            if missing:
                raise Violation(f"replica {replica.id} lacks {sorted(missing)}")

    def _batches(self, log: Log) -> Iterator[tuple[int, bytes]]:
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            answer = log.read(offset, FETCH_BYTES)
            assert answer.records is not None
            data = bytes(answer.records.read())
            for header in headers(data):
                yield header.base_offset, data[header.position : header.end]
            offset = answer.next_offset
