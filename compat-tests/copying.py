"""A topic is copied, exactly once, while copiers and the broker are killed; and the history of all that.

    copying = Copying(broker, Plan(client="java", records=5000, kills=("client", "broker"), seed=1))
    copying.run()
    copying.copies.output            # what a read_committed consumer finds, by partition
    check(copying.copies.history())  # tests/history/checker.py

Two copiers (clients/copier.py) share a group. When one is killed, another takes over its transactional id, and
meanwhile its partitions may go to the other one. Kills come when a part of the records has been copied, at places
that follow from the seed, and a little later, so that they hit any phase. All along somebody watches the output.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from clients.client import Record
from clients.confluent import Confluent
from clients.copier import Copier
from clients.patience import patient
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from copies import GROUP, PARTITIONS, SOURCE, TARGET, Copies, Saw, key, now_ms
from history.operations import Read
from oracle import ApacheKafka
from trioka_process import TriokaProcess

COPIERS = 2
RECORDS_A_TRANSACTION = 100
ABORT_EVERY = 7
SESSION_MS = 3000
TRANSACTION_TIMEOUT_MS = 15_000
KILLED_BETWEEN = (0.05, 0.8)  # of all records, so that there is something to go on with
LATER_S = 0.1
LOOK_SECONDS = 0.05
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 180
POLLED_AT_ONCE = 1000
WRITTEN_AT_ONCE = 10_000
# A copier may be fenced, or find no broker for too long, and end by itself. Many such ends are a mistake.
MAX_ENDS = 10
# Members are declared dead soon, so that the others need not wait for long.
SETTINGS = {
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    client: str
    records: int
    kills: tuple[str, ...]  # "client" or "broker", in any order
    seed: int
    protocol: str = "classic"

    @property
    def each(self) -> int:
        """The records of one partition."""
        return self.records // PARTITIONS


class Watcher:
    """Reads the output while it is written."""

    def __init__(self, bootstrap: str) -> None:
        self.saw: list[Saw] = []
        self.count = 0
        self._consumer = reader(bootstrap, "read_committed")
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_done.is_set():
            began = now_ms()
            messages = self._consumer.consume(POLLED_AT_ONCE, POLL_SECONDS)
            reads = [
                Read(key(TARGET, message.partition() or 0), message.offset() or 0, message.value() or b"")
                for message in messages
                if message.error() is None
            ]
            if reads:
                self.saw.append(Saw(began, now_ms(), reads))
                self.count += len(reads)

    def close(self) -> None:
        self._is_done.set()
        self._thread.join()
        self._consumer.close()


class Copying:
    def __init__(self, broker: TriokaProcess | ApacheKafka, plan: Plan) -> None:
        self._broker = broker
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._running: dict[int, Copier] = {}
        self._copiers: list[Copier] = []
        self._ends: list[str] = []
        self._watcher: Watcher | None = None
        self.copies = Copies(copiers=self._copiers)
        self.log: dict[int, list[Read]] = {}  # with what was aborted
        self.stable_ends: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def run(self) -> None:
        self.copies.began_ms = now_ms()
        self.copies.written = write_source(self._broker.bootstrap, self._plan.each)
        self.copies.written_ms = now_ms()
        try:
            self._watcher = Watcher(self._broker.bootstrap)
            self._copy()
            self._until("the watcher has seen all", lambda: self._watched() >= len(self.copies.written), copiers=0)
        finally:
            for copier in self._running.values():
                copier.kill()
            if self._watcher is not None:
                self._watcher.close()
                self.copies.saw = self._watcher.saw
        self.copies.output, self.stable_ends = read_all(self._broker.bootstrap, "read_committed")
        self.log, self.ends = read_all(self._broker.bootstrap, "read_uncommitted")

    def _copy(self) -> None:
        low, high = KILLED_BETWEEN
        kills = self._random.sample(self._plan.kills, len(self._plan.kills))
        places = sorted(self._random.uniform(low, high) * self._plan.records for _ in kills)
        for victim, place in zip(kills, places, strict=True):
            self._until(f"{place:.0f} records are copied", partial(self._has_copied, place))
            time.sleep(self._random.uniform(0, LATER_S))
            if victim == "broker":
                self._broker.kill()
                self._broker.start()
            else:
                self._running.pop(self._random.randrange(COPIERS)).kill()
        with looking(self._broker.bootstrap) as look:
            self._until("everything is copied", lambda: self._is_copied(look))
        while self._running:
            self._running.popitem()[1].leave()

    def _is_copied(self, look: Consumer) -> bool:
        requested = now_ms()
        with contextlib.suppress(KafkaException):  # for example while the broker does not know yet
            places = look.committed([TopicPartition(SOURCE, p) for p in range(PARTITIONS)], POLL_SECONDS)
            self.copies.committed = {place.partition: place.offset for place in places}
            self.copies.committed_ms = requested
        return self.copies.committed == dict.fromkeys(range(PARTITIONS), self._plan.each)

    def _people(self, copiers: int) -> None:
        """Whoever is missing is replaced."""
        for slot in range(copiers):
            if slot in self._running and not self._running[slot].is_alive:
                self._ends.append(self._running[slot].log_tail())
                self._running.pop(slot).kill()
                assert len(self._ends) <= MAX_ENDS, "\n".join(self._ends)
            if slot not in self._running:
                result = {
                    "source": SOURCE,
                    "target": TARGET,
                    "group": GROUP,
                    "protocol": self._plan.protocol,
                    "transactional_id": f"copier-{slot}",
                    "count": RECORDS_A_TRANSACTION,
                    "abort_every": ABORT_EVERY,
                    "session_ms": SESSION_MS,
                    "timeout_ms": TRANSACTION_TIMEOUT_MS,
                }
                name = f"{self._plan.client}.{len(self._copiers)}"
                self._running[slot] = Copier(self._plan.client, self._broker.bootstrap, name, result)
                self._copiers.append(self._running[slot])

    def _until(self, what: str, is_so: Callable[[], bool], copiers: int = COPIERS) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            self._people(copiers)
            if time.monotonic() > deadline:
                words = [*self._ends, *(f"{c.name}: {c.log_tail()}" for c in self._running.values())]
                state = f"{self._count()} copied, {self._watched()} seen, {self.copies.committed} committed"
                raise AssertionError(f"{self._plan}: not so: {what}; {state}\n" + "\n".join(words))
            time.sleep(LOOK_SECONDS)

    def _has_copied(self, count: float) -> bool:
        return self._count() >= count

    def _count(self) -> int:
        return sum(copier.count for copier in self._copiers)

    def _watched(self) -> int:
        return 0 if self._watcher is None else self._watcher.count


def write_source(bootstrap: str, each: int) -> list[tuple[Record, int]]:
    """Make both topics, and write as many records to each partition; the records with their offsets."""
    client = Confluent(bootstrap)
    for topic in (SOURCE, TARGET):
        patient(client, client).create_topic(topic, partitions=PARTITIONS)
    records = [
        Record(value=f"{partition}-{number}".encode(), timestamp=now_ms(), partition=partition)
        for number in range(each)
        for partition in range(PARTITIONS)
    ]
    written: list[tuple[Record, int]] = []
    for start in range(0, len(records), WRITTEN_AT_ONCE):
        part = records[start : start + WRITTEN_AT_ONCE]
        written += zip(part, client.produce(SOURCE, part, idempotent=True), strict=True)
    client.close()
    return written


def reader(bootstrap: str, isolation: str, topic: str = TARGET, partitions: int = PARTITIONS) -> Consumer:
    """Of a whole topic."""
    settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 2}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "isolation.level": isolation, "enable.partition.eof": True, **settings}
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    return consumer


@contextlib.contextmanager
def looking(bootstrap: str) -> Iterator[Consumer]:
    """Somebody who asks what the group has committed, and is no member of it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 2})
    try:
        yield consumer
    finally:
        consumer.close()


def read_all(bootstrap: str, isolation: str) -> tuple[dict[int, list[Read]], dict[int, int]]:
    """Everything that can be read of the output, and where it ends, by partition."""
    found: dict[int, list[Read]] = {p: [] for p in range(PARTITIONS)}
    ends: dict[int, int] = {}
    for message in messages_of(reader(bootstrap, isolation), PARTITIONS):
        partition, offset = message.partition() or 0, message.offset() or 0
        if message.error() is None:
            found[partition].append(Read(key(TARGET, partition), offset, message.value() or b""))
        else:
            ends[partition] = offset
    return found, ends


def messages_of(consumer: Consumer, partitions: int) -> Iterator[Message]:
    """All that it can read, and of each partition the end; then it is closed."""
    ended: set[int | None] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"only {len(ended)} partitions have an end"
            for message in consumer.consume(POLLED_AT_ONCE, POLL_SECONDS):
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    yield message
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
