"""The clients of a chaos run, and what they saw: the history that goes to the checker
(tests/history/operations.py).

    Sender        librdkafka, idempotent, acks=all: a few records to a few partitions, then the next few
    PythonSender  the same with kafka-python
    TransactionalWriter        librdkafka, transactions over several partitions; one in five is given up on purpose
                  (tests/chaos/transactions.py has one that pipelines, tests/chaos/topics.py what changes topics)
    Watcher       reads every partition from its start, assigned
    Member        of a group: reads its partitions, commits, and fetches the committed offsets after each assignment;
                  one group speaks the classic protocol, another the consumer protocol (KIP-848)

Each lives in a thread. Every value is sent once: `name:number`. An operation with an unknown result is INFO, and
may take effect until the run is over. After each rebalance the checker treats a member as another process: between two
rebalances it reads without gaps.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from chaos.security import Access
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from history.operations import Assign, Commit, Committed, History, Key, Outcome, Read, Send, Step, Subscribe
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

PLAIN, MOVED, DEALS = "plain", "moved", "deals"
CLASSIC_GROUP, CONSUMER_GROUP = "classic-readers", "consumer-readers"
GROUPS: Final = (CLASSIC_GROUP, CONSUMER_GROUP)
PARTITIONS: Final[Mapping[str, int]] = {PLAIN: 4, MOVED: 2, DEALS: 2}
KEYS: Final = frozenset(f"{topic}-{number}" for topic, count in PARTITIONS.items() for number in range(count))

Settings = Mapping[str, str | int | float | bool]

DELIVERY_S: Final = 240.0  # longer than any fault and its healing: a record that is not delivered by then is a finding
POLL_S: Final = 0.2
SIZES: Final = (1, 1, 2, 3, 5, 8, 25)  # of an operation, in records
PADDING: Final = (0, 0, 100, 800)
ABORTED: Final = 0.2
FLUSH_BEFORE_ABORT_S: Final = 5.0
MAX_POLLED: Final = 500
MAX_OUTSTANDING: Final = 100

# A client that has lost its broker should reconnect soon, and a client that waits for an answer should retry: retries
# cause duplicates, if a broker has a fault that allows them.
SHORT_TIMEOUTS: Final[Settings] = {
    "socket.timeout.ms": 6000,
    "socket.connection.setup.timeout.ms": 3000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5000,
    "log_level": 2,
}

# When it knows no broker any more, librdkafka starts again with the bootstrap addresses, and its requests to a
# coordinator wait for ever (2.16). With this setting it keeps the brokers that it knows, and stays without any if all
# were fenced at its last request. So clients with a coordinator have this setting, and are restarted when they stall.
NO_REBOOTSTRAP: Final[Settings] = {"metadata.recovery.strategy": "none"}
STALLED_S: Final = 45.0

CLASSIC_PROTOCOL: Final[Settings] = {
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 500,
    "partition_assignment_strategy": "range",
}
CONSUMER_PROTOCOL: Final[Settings] = {"group_protocol": "consumer"}


class Done(NamedTuple):
    ended: float
    process: str
    outcome: Outcome
    began: float
    steps: tuple[Step, ...]


class Journal:
    """The operations of all clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done: list[Done] = []

    def note(self, process: str, outcome: Outcome, began: float, steps: Iterable[Step]) -> None:
        with self._lock:
            self.done.append(Done(time.monotonic(), process, outcome, began, tuple(steps)))

    def history(self) -> History:
        """An operation with an unknown result may have ended as late as the run."""
        history, over = History(), time.monotonic()
        for done in sorted(self.done, key=lambda each: each.ended):
            ended = over if done.outcome is Outcome.INFO else done.ended
            history.add(done.process, done.outcome, done.steps, began=done.began, ended=ended)
        return history


class Worker(ABC, threading.Thread):
    """Repeats one step until it is stopped. `count` grows with every successful step."""

    def __init__(self, name: str, access: Access, journal: Journal, seed: int, rest_s: float = 0.0) -> None:
        super().__init__(name=name, daemon=True)
        self.access = access
        self.journal = journal
        self.random = Random(f"{seed} {name}")
        self.count = 0
        self.failure: BaseException | None = None
        self._rest_s = rest_s
        self.is_over = threading.Event()

    def run(self) -> None:
        try:
            self.open()
            while not self.is_over.is_set():
                self.work()
                self.is_over.wait(self._rest_s * self.random.random() * 2)
            self.close()
        except BaseException as failure:
            self.failure = failure

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def work(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


# -- writers -----------------------------------------------------------------------------------------------------------


class Writer(Worker):
    _number = 0

    def values(self, topic: str, sizes: Sequence[int] = SIZES) -> list[tuple[int, bytes, bytes]]:
        """Of one operation: the partition, the value, and a key that is there to fill space."""
        chosen = []
        for _ in range(self.random.choice(sizes)):
            self._number += 1
            value = f"{self.name}:{self._number}".encode()
            chosen.append((self.random.randrange(PARTITIONS[topic]), value, bytes(self.random.choice(PADDING))))
        return chosen


# If a batch gets OUT_OF_ORDER_SEQUENCE_NUMBER because the batch before it was refused, librdkafka sends it again with a
# new epoch, and all others in flight too, including those that timed out and may have been written: then these are
# duplicates of its own making. So a sender has either several batches in flight, or timeouts.
ONE_IN_FLIGHT: Final[Settings] = {"max.in.flight": 1, "request.timeout.ms": 5000}
FIVE_IN_FLIGHT: Final[Settings] = {
    "max.in.flight": 5,
    "request.timeout.ms": 60_000,
    "socket.timeout.ms": 70_000,
    "batch.num.messages": 3,
}


class Sender(Writer):
    habits: Settings = ONE_IN_FLIGHT

    def open(self) -> None:
        self._producer = Producer(
            {
                **SHORT_TIMEOUTS,
                **self.access.librdkafka,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": self.random.choice((0, 0, 5)),
                "retry.backoff.ms": 50,
                "delivery.timeout.ms": int(DELIVERY_S * 1000),
                **self.habits,
            }
        )

    def work(self) -> None:
        topic = self.random.choice((PLAIN, PLAIN, MOVED))
        values, began = self.values(topic), time.monotonic()
        result: dict[int, int | None] = {}
        try:
            self.send(topic, values, result)
        finally:
            for outcome, steps in runs(topic, values, result):
                self.journal.note(self.name, outcome, began, steps)
                self.count += outcome is Outcome.OK

    def send(self, topic: str, values: Sequence[tuple[int, bytes, bytes]], result: dict[int, int | None]) -> None:
        """Returns the offset of each record; None if it is unknown. An exception ends this client."""
        for index, (partition, value, key) in enumerate(values):
            self._producer.produce(topic, value, key, partition, on_delivery=_noting(result, index))
        while len(result) < len(values):
            self._producer.poll(POLL_S)

    def close(self) -> None:
        self._producer.flush(DELIVERY_S)


def _noting(result: dict[int, int | None], index: int) -> Callable[[KafkaError | None, Message], None]:
    def on_response(error: KafkaError | None, message: Message) -> None:
        result[index] = message.offset() if error is None else None

    return on_response


class PipeliningSender(Sender):
    """Does not wait for one operation before the next: up to five batches are in flight to each partition, and all of
    them are sent again where a broker ends before it has answered."""

    habits = FIVE_IN_FLIGHT
    _outstanding = 0

    def work(self) -> None:
        topic = self.random.choice((PLAIN, PLAIN, MOVED))
        for partition, value, key in self.values(topic):
            self._outstanding += 1
            on_response = self._noting_one(f"{topic}-{partition}", value, time.monotonic())
            self._producer.produce(topic, value, key, partition, on_delivery=on_response)
        self._producer.poll(0)
        while self._outstanding > MAX_OUTSTANDING:
            self._producer.poll(POLL_S)

    def _noting_one(self, key: Key, value: bytes, began: float) -> Callable[[KafkaError | None, Message], None]:
        def on_response(error: KafkaError | None, message: Message) -> None:
            self._outstanding -= 1
            self.count += error is None
            offset = message.offset() if error is None else None
            step = Send(key, value, None if offset is None or offset < 0 else offset)
            self.journal.note(self.name, Outcome.INFO if error is not None else Outcome.OK, began, [step])
            if error is not None and error.fatal():
                raise KafkaException(error)

        return on_response


class PythonSender(Sender):
    def open(self) -> None:
        self._python = KafkaProducer(
            **self.access.kafka_python,
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            retry_backoff_ms=50,
            request_timeout_ms=20_000,
            delivery_timeout_ms=int(DELIVERY_S * 1000),
            max_block_ms=int(DELIVERY_S * 1000),
            reconnect_backoff_max_ms=500,
            metadata_max_age_ms=5000,
        )

    def send(self, topic: str, values: Sequence[tuple[int, bytes, bytes]], result: dict[int, int | None]) -> None:
        sent = [self._python.send(topic, value=value, key=key, partition=at) for at, value, key in values]
        for index, future in enumerate(sent):
            result[index] = self._offset(future)

    @staticmethod
    def _offset(future: Any) -> int | None:
        try:
            return int(future.get(2 * DELIVERY_S).offset)
        except PythonKafkaError:
            return None

    def close(self) -> None:
        self._python.close(DELIVERY_S)


def runs(
    topic: str, values: Sequence[tuple[int, bytes, bytes]], result: Mapping[int, int | None]
) -> Iterator[tuple[Outcome, list[Step]]]:
    """Splits an operation whose sends ended differently, so that the acknowledged ones have a certain outcome."""
    steps: list[Step] = []
    is_known = True
    for index, (partition, value, _) in enumerate(values):
        offset = result.get(index)
        if steps and is_known is not (offset is not None):
            yield (Outcome.OK if is_known else Outcome.INFO), steps
            steps = []
        is_known = offset is not None
        # A duplicate may be acknowledged without its place.
        steps.append(Send(f"{topic}-{partition}", value, None if offset is None or offset < 0 else offset))
    if steps:
        yield (Outcome.OK if is_known else Outcome.INFO), steps


class Stalled(Exception):
    """The client makes no progress and is restarted."""


class TransactionalWriter(Writer):
    """No reader may ever read a record of an aborted transaction."""

    def open(self) -> None:
        until = time.monotonic() + DELIVERY_S
        while True:
            try:
                self._producer = self._new()
                return
            except Stalled:
                if time.monotonic() > until:
                    raise

    def _new(self) -> Producer:
        producer = Producer(
            {
                **SHORT_TIMEOUTS,
                **NO_REBOOTSTRAP,
                **self.access.librdkafka,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "request.timeout.ms": 5000,
            }
        )
        self._retry(lambda: producer.init_transactions(POLL_S * 10))
        return producer

    def _retry(self, ask: Callable[[], object]) -> None:
        """As long as it may be tried again, and somewhat longer than others wait."""
        until = time.monotonic() + STALLED_S
        while True:
            try:
                ask()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            if time.monotonic() > until:
                raise Stalled

    def work(self) -> None:
        values, began = self.values(DEALS, (1, 2, 3, 6)), time.monotonic()
        result: dict[int, int | None] = {}
        outcome = Outcome.INFO
        try:
            outcome = self._deal(values, result, commits=self.random.random() >= ABORTED)
        except (KafkaException, Stalled) as error:
            # A producer that was fenced, or has no result, is restarted, which commits or aborts its transaction.
            if isinstance(error, KafkaException) and not (error.args[0].fatal() or error.args[0].txn_requires_abort()):
                raise
            self.open()
        finally:
            chosen = enumerate(values)
            steps = [Send(f"{DEALS}-{partition}", value, result.get(index)) for index, (partition, value, _) in chosen]
            self.journal.note(self.name, outcome, began, steps)
            self.count += outcome is not Outcome.INFO

    def _deal(
        self, values: Sequence[tuple[int, bytes, bytes]], result: dict[int, int | None], *, commits: bool
    ) -> Outcome:
        producer = self._producer
        producer.begin_transaction()
        try:
            for index, (partition, value, key) in enumerate(values):
                producer.produce(DEALS, value, key, partition, on_delivery=_noting(result, index))
            if commits:
                self._retry(lambda: producer.commit_transaction(POLL_S * 10))
                return Outcome.OK
            producer.flush(FLUSH_BEFORE_ABORT_S)  # so that there is something to be aborted
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        self._retry(lambda: producer.abort_transaction(POLL_S * 10))
        return Outcome.FAIL

    def close(self) -> None:
        self._producer.flush(POLL_S)


# -- readers -----------------------------------------------------------------------------------------------------------


class OffsetLost(Exception):
    """A reader is at an offset that the log does not have."""


class Reader(Worker):
    def consumer(self, **settings: str | int | float | bool) -> Consumer:
        own = {key.replace("_", "."): value for key, value in settings.items()}
        return Consumer(
            {
                **SHORT_TIMEOUTS,
                **self.access.librdkafka,
                "group.id": f"none-{self.name}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                **own,
            }
        )

    def poll(self, consumer: Consumer) -> list[Read]:
        return [_read(message) for message in consumer.consume(MAX_POLLED, POLL_S) if _is_record(message)]


def _read(message: Message) -> Read:
    return Read(f"{message.topic()}-{message.partition()}", message.offset() or 0, message.value() or b"")


def _is_record(message: Message) -> bool:
    """Most errors are transient. Missing records that were read before are not."""
    error = message.error()
    if error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise OffsetLost(f"{message.topic()}-{message.partition()}: {error}")
    return error is None


class Watcher(Reader):
    def open(self) -> None:
        self._consumer = self.consumer(auto_offset_reset="error", enable_partition_eof=isinstance(self, FinalReader))
        self._consumer.assign([TopicPartition(topic, number, 0) for topic, number in places()])
        now = time.monotonic()
        self.journal.note(self.name, Outcome.OK, now, [Assign(KEYS)])

    def work(self) -> None:
        began = time.monotonic()
        reads = self.poll(self._consumer)
        if reads:
            self.journal.note(self.name, Outcome.OK, began, reads)
            self.count += 1

    def close(self) -> None:
        self._consumer.close()


class FinalReader(Watcher):
    """Reads everything that exists at its start, also where a transaction is not decided yet: a commit is acknowledged
    before its markers are written. The end of a partition is the broker's end offset, which is behind the last record
    if that is a marker."""

    def open(self) -> None:
        super().open()
        self.found: dict[Key, list[Read]] = {key: [] for key in sorted(KEYS)}
        until = time.monotonic() + DELIVERY_S
        asker = self.consumer(isolation_level="read_uncommitted")
        self.behind = {_key(each): _end(asker, each, until) for each in self._consumer.assignment()}
        asker.close()

    def poll(self, consumer: Consumer) -> list[Read]:
        reads = []
        for message in consumer.consume(MAX_POLLED, POLL_S):
            if (error := message.error()) is not None and error.code() == KafkaError._PARTITION_EOF:
                key = f"{message.topic()}-{message.partition()}"
                if (message.offset() or 0) >= self.behind.get(key, 0):
                    self.behind.pop(key, None)
            elif _is_record(message):
                reads.append(_read(message))
        for read in reads:
            self.found[read.key].append(read)
        return reads


class Member(Reader):
    _life = 0
    process = ""
    group = CLASSIC_GROUP
    protocol = CLASSIC_PROTOCOL

    def open(self) -> None:
        self._gone_on = time.monotonic()
        self._consumer = self.consumer(
            **NO_REBOOTSTRAP,
            **self.protocol,
            group_id=self.group,
            auto_offset_reset="earliest",
        )
        self._asked: list[TopicPartition] = []
        self._positions: dict[Key, int] = {}
        self._consumer.subscribe(list(PARTITIONS), on_assign=self._given)

    def _given(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._life += 1
        self.process = f"{self.name} life {self._life}"
        self._positions = {}
        self._asked = partitions
        self.journal.note(self.process, Outcome.OK, time.monotonic(), [Subscribe(KEYS)])

    def work(self) -> None:
        began, process = time.monotonic(), self.process
        reads: list[Read] = []
        while len(reads) < MAX_POLLED:
            life = self._life
            message = self._consumer.poll(0 if reads else POLL_S)
            if life != self._life:  # earlier records belong to the former life, which commits no more
                self._note(process, began, reads)
                self._ask_committed()
                began, process, reads = time.monotonic(), self.process, []
            if message is None:
                break
            if _is_record(message):
                reads.append(_read(message))
        self._note(process, began, reads)
        if reads:
            self._positions |= {read.key: read.offset + 1 for read in reads}
            self._commit()
            self.count += 1
            self._gone_on = time.monotonic()
        elif time.monotonic() - self._gone_on > STALLED_S:
            self.close()
            self.open()

    def _note(self, process: str, began: float, reads: Sequence[Read]) -> None:
        if reads:
            self.journal.note(process, Outcome.OK, began, reads)

    def _ask_committed(self) -> None:
        began = time.monotonic()
        try:
            result = self._consumer.committed(self._asked, POLL_S * 10) if self._asked else []
        except KafkaException:
            return
        if not any(each.error for each in result):
            steps = [Committed(self.group, _key(each), each.offset if each.offset >= 0 else None) for each in result]
            self.journal.note(self.process, Outcome.OK, began, steps)

    def _commit(self) -> None:
        began = time.monotonic()
        wanted = [TopicPartition(*_place(key), offset) for key, offset in self._positions.items()]
        steps = [Commit(self.group, key, offset) for key, offset in self._positions.items()]
        try:
            result = self._consumer.commit(offsets=wanted, asynchronous=False) or []
        except KafkaException:
            self.journal.note(self.process, Outcome.INFO, began, steps)
            return
        outcome = Outcome.INFO if any(each.error for each in result) else Outcome.OK
        self.journal.note(self.process, outcome, began, steps)

    def close(self) -> None:
        self._consumer.close()


class ConsumerMember(Member):
    """A member of the consumer protocol (KIP-848), whose sessions and assignors are the broker's."""

    group = CONSUMER_GROUP
    protocol = CONSUMER_PROTOCOL


def places() -> Iterator[tuple[str, int]]:
    return ((topic, number) for topic, count in PARTITIONS.items() for number in range(count))


def _place(key: Key) -> tuple[str, int]:
    topic, _, number = key.rpartition("-")
    return topic, int(number)


def _key(partition: TopicPartition) -> Key:
    return f"{partition.topic}-{partition.partition}"


def _end(consumer: Consumer, place: TopicPartition, until: float) -> int:
    while True:
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=POLL_S * 20, cached=False)
            return int(end)
        except KafkaException:
            if time.monotonic() > until:
                raise
