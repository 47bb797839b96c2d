"""Idempotent producers, and a partition whose leader changes: nothing is written twice, or out of order.

The logs and their producer state are production code, on disks that lose their power; so is the rule by which
a follower truncates its log. The cluster around them is minimal: any in-sync replica may lead, a stopped replica is not
in sync, a replica that has caught up is. `replication_world` tests whether that is sound.

A producer has up to five batches in flight on one connection, in order. When the connection breaks, or the leader
changes, it sends all unanswered batches again, in order; earlier sends may still arrive, as long as the same leader
leads. Its sequence numbers begin anywhere, so that some pass 2^31.

T1: a batch that is answered as a duplicate is in the log, and no value is read twice. T2: sequences are consecutive in
the log, and a correct producer is never refused, by any leader and after any kind of load of its log: after a clean
stop, a crash or a truncation each replica knows the last five batches of each producer. A sixth batch was acknowledged,
or no client would have sent the others; if it comes again all the same, it is refused (`_arrive_long_after`).

Now and then records are deleted, up to what every replica has on its disk: a producer may repeat those too. (A replica
that starts again at a later offset knows nothing of them; there a broker takes any sequence, as Kafka does.)
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import NamedTuple

from support.log_fixtures import NOW_MS, batch, read_all

from trioka.cluster.leader_state import truncation_point
from trioka.protocol.batch import headers
from trioka.protocol.errors import KafkaError
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
SEQUENCES = 2**31
IN_FLIGHT = 5  # max.in.flight.requests.per.connection, at most
REPLICAS = 3
FETCH_BYTES = 600
HEALING_ROUNDS = 500


class Violation(AssertionError):
    """A promise was broken."""


class Written(NamedTuple):
    """A record of a producer: its sequence number, and its value."""

    producer_id: int
    sequence: int
    value: int


@dataclass(slots=True)
class Sent:
    """A batch that was not answered yet."""

    records: tuple[Written, ...]
    offset: int = -1  # where it was appended last
    end: int = -1  # and up to where it must be replicated; -1: it was not delivered on this connection

    @property
    def data(self) -> bytearray:
        producer_id, sequence, _ = self.records[0]
        return batch(*(str(each.value) for each in self.records), key=None, producer=(producer_id, 0, sequence))


@dataclass(slots=True)
class Producer:
    id: int
    sequence: int
    in_flight: list[Sent] = field(default_factory=list)
    delivered: int = 0  # so many of them, on this connection
    late: list[Sent] = field(default_factory=list)  # on an earlier connection to the same leader
    acknowledged: list[Sent] = field(default_factory=list)  # the last ones

    @property
    def settled(self) -> Sent | None:
        """A batch that no client repeats, because five later ones were acknowledged too."""
        return self.acknowledged[0] if len(self.acknowledged) > IN_FLIGHT else None

    def reconnect(self, *, is_same_leader: bool) -> None:
        # Bytes that were sent and did not arrive may still do so, but nothing overtakes what was sent before it.
        self.late = self.in_flight[self.delivered :] if is_same_leader else []
        self.delivered = 0
        for sent in self.in_flight:
            sent.end = -1


class Replica:
    def __init__(self, id: int, config: LogConfig) -> None:
        self.id = id
        self._config = config
        self.disk = MemoryDisk()
        self.is_up = False
        self.start()

    @property
    def log(self) -> Log:
        return self.directory.logs[NAME]

    def start(self) -> None:
        self.directory = LogDirectory.open(self.disk, "/logs", lambda name: self._config, now_ms=NOW_MS, threads=1)
        if NAME not in self.directory.logs:
            self.directory.create(NAME, self._config, now_ms=NOW_MS)
        self.is_up = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    """How often something happens, in comparison."""

    steps: int = 400
    segment_bytes: int = 1500
    breaks: int = 5
    late: int = 3
    kill: int = 2
    power: int = 1
    restart: int = 1
    elect: int = 2
    delete: int = 1
    is_wrapping: bool = False
    fetch: int = 40

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"weather {seed}")
        return cls(
            segment_bytes=random.choice([700, 1500, 10_000]),
            breaks=random.choice([2, 10]),
            late=random.choice([0, 5]),
            kill=random.choice([0, 1, 4]),
            power=random.choice([0, 1, 4]),
            restart=random.choice([0, 1, 4]),
            elect=random.choice([1, 6]),
            delete=random.choice([0, 4, 15]),
            is_wrapping=random.random() < 0.5,
            fetch=random.choice([15, 60]),
        )


CALM = {
    **dict.fromkeys(("breaks", "late", "kill", "power", "restart", "elect", "delete"), 0),
    "is_wrapping": False,
    "fetch": 60,
}


class ProducerWorld:
    def __init__(self, seed: int, *, profile: FaultProfile | None = None) -> None:
        self.random = Random(seed)
        self.profile = profile = profile or FaultProfile.of(seed)
        config = LogConfig(segment_bytes=profile.segment_bytes, index_interval_bytes=200)
        self.replicas = [Replica(number, config) for number in range(REPLICAS)]
        self.epoch = 0
        self.in_sync = set(range(REPLICAS))
        self._ids = count(1)
        self._values = count(1)
        self.producers = [self._new_producer() for _ in range(3)]
        self.truth: list[Written] = []  # all that a consumer has seen
        self._seen: set[int] = set()
        self._last: dict[int, int] = {}  # producer id → the sequence number of its last record
        self.acked = self.repeated = self.refused = self.deleted = self.events = 0
        self._lead(self.replicas[0])

    def _new_producer(self) -> Producer:
        sequence = SEQUENCES - self.random.randrange(1, 40) if self.profile.is_wrapping else 0
        return Producer(next(self._ids), sequence)

    def trace(self) -> object:
        return self.events, self.acked, self.repeated, self.refused, self.deleted, self.epoch, self.truth

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        profile = self.profile
        choices: dict[Callable[[], None], int] = {
            self._produce: 30,
            self._send: 40,
            self._fetch: profile.fetch,
            self._break: profile.breaks,
            self._arrive_late: profile.late,
            self._kill: profile.kill,
            self._lose_power: profile.power,
            self._restart: profile.restart,
            self._elect: profile.elect,
            self._delete_records: profile.delete,
            self._roll: profile.delete,
            self._arrive_long_after: 1,
            self._start: profile.kill + profile.power,
            self._flush: 3,
        }
        for step in self.random.choices(list(choices), list(choices.values()), k=steps):
            step()
            self.events += 1
            self._advance()
        self._heal()

    def _heal(self) -> None:
        for replica in self.replicas:
            if not replica.is_up:
                replica.start()
        for _ in range(HEALING_ROUNDS):
            self._fetch()
            for producer in self.producers:
                if producer.delivered < len(producer.in_flight):
                    self._deliver(producer)
            self._advance()
            ends = {replica.log.log_end_offset for replica in self.replicas}
            if not any(producer.in_flight for producer in self.producers) and ends == {self.leader.log.high_watermark}:
                break
        else:
            raise Violation("it never comes to rest")
        start = max(replica.log.log_start_offset for replica in self.replicas)
        logs = [[record.value for record in read_all(replica.log, start)] for replica in self.replicas]
        if any(log != logs[0] for log in logs) or len(logs[0]) != len(self.truth) - start:
            raise Violation("I17: the logs differ")

    # -- producers -----------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        producer = self.random.choice(self.producers)
        if len(producer.in_flight) < IN_FLIGHT:
            records = []
            for _ in range(self.random.choice((1, 1, 3))):
                records.append(Written(producer.id, producer.sequence, next(self._values)))
                producer.sequence = (producer.sequence + 1) % SEQUENCES
            producer.in_flight.append(Sent(tuple(records)))

    def _send(self) -> None:
        producer = self.random.choice(self.producers)
        if producer.delivered < len(producer.in_flight):
            self._deliver(producer)

    def _deliver(self, producer: Producer) -> None:
        sent = producer.in_flight[producer.delivered]
        try:
            self._append(sent)
        except KafkaError as error:
            raise Violation(f"T2: producer {producer.id} did nothing wrong: {error}") from error
        producer.delivered += 1

    def _append(self, sent: Sent) -> None:
        log = self.leader.log
        appended = log.append_as_leader(sent.data, leader_epoch=self.epoch, now_ms=NOW_MS)
        if appended.duplicate:
            self.repeated += 1
            found = self._values_at(appended.first_offset, appended.last_offset + 1)
            if found != [each.value for each in sent.records]:
                raise Violation(f"T1: {sent.records} are acknowledged at {appended.first_offset}, there is {found}")
        sent.offset, sent.end = appended.first_offset, appended.last_offset + 1

    def _values_at(self, first: int, end: int) -> list[int]:
        log = self.leader.log
        if first < log.log_start_offset:  # deleted, but seen
            return [written.value for written in self.truth[first:end]]
        return [int(record.value or b"") for record in read_all(log, first, upto=end)]

    def _break(self) -> None:
        self.random.choice(self.producers).reconnect(is_same_leader=True)

    def _arrive_late(self) -> None:
        """No client waits for the answer."""
        producer = self.random.choice(self.producers)
        if producer.late:
            sent = producer.late.pop(0)
            try:
                self.leader.log.append_as_leader(sent.data, leader_epoch=self.epoch, now_ms=NOW_MS)
            except KafkaError:
                producer.late.clear()

    def _arrive_long_after(self) -> None:
        """A sixth batch back, which was acknowledged: it is neither written again nor answered as a duplicate, because
        no replica keeps its position."""
        producer = self.random.choice(self.producers)
        if producer.settled is None or producer.id not in self.leader.log.producers.producers:
            return
        try:
            self.leader.log.append_as_leader(producer.settled.data, leader_epoch=self.epoch, now_ms=NOW_MS)
        except KafkaError:
            self.refused += 1
        else:
            raise Violation(f"T2: a sixth batch of producer {producer.id} was taken: {producer.settled.records}")

    # -- the partition -------------------------------------------------------------------------------------------------

    def _lead(self, replica: Replica) -> None:
        self.leader = replica
        self.epoch += 1
        self.progress: dict[int, int] = {}  # the log ends of the others, from their fetches in this epoch
        replica.log.begin_epoch(self.epoch)
        for producer in getattr(self, "producers", ()):
            producer.reconnect(is_same_leader=False)

    def _elect(self) -> None:
        self._lead(self.replicas[self.random.choice(sorted(self.in_sync))])

    def _advance(self) -> None:
        """Records on all in-sync replicas may be read, and are acknowledged."""
        log = self.leader.log
        others = [self.progress.get(number, 0) for number in self.in_sync if number != self.leader.id]
        log.advance_high_watermark(min([log.log_end_offset, *others]))
        if log.high_watermark > len(self.truth):
            self._show(log)
        for producer in self.producers:
            while producer.in_flight and 0 <= producer.in_flight[0].end <= log.high_watermark:
                sent = producer.in_flight.pop(0)
                producer.delivered -= 1
                producer.acknowledged = [*producer.acknowledged[-IN_FLIGHT:], sent]
                self.acked += 1
                if tuple(self.truth[sent.offset : sent.end]) != sent.records:
                    raise Violation(f"I1: {sent.records} were acknowledged at {sent.offset}, and are not there")

    def _show(self, log: Log) -> None:
        while len(self.truth) < log.high_watermark:
            answer = log.read(len(self.truth), FETCH_BYTES, upto=log.high_watermark)
            assert answer.records is not None
            data = answer.records.read()
            offset = len(self.truth)
            values = [int(record.value or b"") for record in read_all(log, offset, upto=answer.next_offset)]
            for header in headers(data):
                for n in range(header.record_count):
                    sequence = (header.base_sequence + n) % SEQUENCES
                    self._see(Written(header.producer_id, sequence, values[header.base_offset + n - offset]))

    def _see(self, written: Written) -> None:
        if written.value in self._seen:
            raise Violation(f"T1: {written} is read a second time, at {len(self.truth)}")
        last = self._last.get(written.producer_id)
        if last is not None and written.sequence != (last + 1) % SEQUENCES:
            raise Violation(f"T2: {written} is read after {last}")
        self._seen.add(written.value)
        self._last[written.producer_id] = written.sequence
        self.truth.append(written)

    def _fetch(self) -> None:
        follower = self.random.choice(self.replicas)
        if follower is self.leader or not follower.is_up:
            return
        log, leaders = follower.log, self.leader.log
        last_epoch = log.epochs.latest_epoch
        if last_epoch >= 0:
            epoch, end = leaders.end_offset_for_epoch(last_epoch)
            if epoch < last_epoch or end < log.log_end_offset:
                cut = truncation_point(epoch, end, *log.end_offset_for_epoch(epoch), log.log_end_offset)
                log.truncate_to(cut.offset, now_ms=NOW_MS)
                return
        records = leaders.read(log.log_end_offset, FETCH_BYTES).records
        if records is not None:
            log.append_as_follower(records.read(), now_ms=NOW_MS)
        log.advance_high_watermark(leaders.high_watermark)
        self.progress[follower.id] = log.log_end_offset
        if log.log_end_offset == leaders.log_end_offset:
            self.in_sync.add(follower.id)

    def _delete_records(self) -> None:
        """Up to what is durable everywhere, and the whole segments before it with the next retention."""
        if len(self.in_sync) < REPLICAS:
            return
        logs = [replica.log for replica in self.replicas]
        end = min(self.leader.log.high_watermark, *(log.recovery_point for log in logs))
        for log in logs:
            if log.log_start_offset < end <= log.high_watermark:
                self.deleted += 1
                log.delete_records_before(end)
                if self.random.random() < 0.5:
                    gone = [segment for segment in log.segments[:-1] if log.segments.expected_end(segment, end) <= end]
                    log.delete_segments(gone, now_ms=NOW_MS)

    def _roll(self) -> None:
        replica = self.random.choice(self.replicas)
        if replica.is_up:
            replica.log.roll(now_ms=NOW_MS)

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        replica = self.random.choice(self.replicas)
        if replica.is_up:
            replica.log.sync()
            replica.directory.checkpoint()

    def _replica_to_stop(self) -> Replica | None:
        """A replica other than the last one with all records."""
        replica = self.random.choice(self.replicas)
        if not replica.is_up or self.in_sync == {replica.id}:
            return None
        return replica

    def _stop(self, replica: Replica) -> None:
        replica.is_up = False
        self.in_sync.discard(replica.id)
        if replica is self.leader:
            self._elect()

    def _kill(self) -> None:
        """A process; or it stops in order."""
        replica = self._replica_to_stop()
        if replica is not None:
            if self.random.random() < 0.5:
                replica.directory.close(broker_epoch=1)
            else:
                replica.directory.close_handles()
            self._stop(replica)

    def _restart(self) -> None:
        """The leader stops cleanly, restarts at once and leads again: an upgrade, with batches in flight."""
        leader = self.leader
        leader.directory.close(broker_epoch=1)
        leader.start()
        self._lead(leader)

    def _lose_power(self) -> None:
        replica = self._replica_to_stop()
        if replica is not None:
            replica.disk = replica.disk.crash(self.random.choice(list(CrashModel)), self.random)
            self._stop(replica)

    def _start(self) -> None:
        replica = self.random.choice(self.replicas)
        if not replica.is_up:
            replica.start()
