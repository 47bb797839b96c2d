"""The topic `_schemas`: read to its end by a thread, written in transactions of one writer at a time.

**Reading.** A consumer without a group follows the only partition from its start and replays every record into the
state. `catch_up` asks the cluster for the end and waits until the thread is there. Where a topic was deleted, or
truncated below what was read, the state is rebuilt from the start.

**Writing.** All registries that share a topic use one transactional id. To begin, a registry initialises it, which ends
what another had open and fences that registry, and then catches up: nothing can be added behind its back any more. A
write decides on the state, appends its records in one transaction, and waits until they are read back. If the commit
succeeds, no other writer came between; if the registry was fenced, it begins again. So two registries that write in
turns take over from each other, and a decision is never made on a state that has changed since.

Behind the marker of a transaction comes a NOOP, as Confluent's registry writes them: a registry that waits until it
has read the last offset, such as Karapace, would wait for a marker for ever.

A commit whose response is lost may have happened. The next initialisation settles it, and the records that were read
say which way.

All methods block, and are called from threads.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, and not marked as such
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .errors import RegistryError, no_writer, store_failed, timed_out
from .records import BadRecord, Record, noop_record
from .state import RegistryState

LOG: Final = logging.getLogger("trioka.gateway.registry")
PARTITION: Final = 0
POLL_S: Final = 0.5
FETCH_WAIT_MS: Final = 100  # after this long the reader knows that what follows is the end, or another's marker
MIN_TIMEOUT_S: Final = 0.1  # of a request whose time is over: it fails with a reason
PAUSE_S: Final = 0.1
STOP_S: Final = 2.0  # for a NOOP that is not written
RETRY_S: Final = 1.0  # after the cluster could not be reached
END_ATTEMPTS: Final = 4  # a request to a broker that has died leaves time for others
MAX_ATTEMPTS: Final = 12  # of a write, against other writers
BACKOFF_S: Final = 0.1  # times the attempt, at random: another writer ends what it does
RECENT: Final = 2000  # records that are kept to find own ones after a lost response
BATCH: Final = 500  # records that are replayed under one lock
TRANSACTION_TIMEOUT_MS: Final = 10_000
CLIENT_LOG: Final = logging.getLogger("trioka.gateway.librdkafka")
RECONNECT_MS: Final = 1000  # librdkafka would wait up to 10 s for a broker that is back
CLIENT: Final = {
    "client.id": "trioka-registry",
    "log_level": 3,
    "logger": CLIENT_LOG,
    "reconnect.backoff.max.ms": RECONNECT_MS,
}
COMPACT: Final = "compact"


class Decided(Protocol):
    @property
    def records(self) -> tuple[Record, ...]: ...


T = TypeVar("T")
D = TypeVar("D", bound=Decided)


class Unusable(Exception):
    """The topic is not one that a registry can use. The message is one sentence."""


class SchemaStore:
    """`client` are the settings of a client of librdkafka: addresses, TLS, login."""

    def __init__(self, client: Mapping[str, Any], topic: str, *, replicas: int, timeout_s: float) -> None:
        self._client, self._topic = {**client, **CLIENT}, topic
        self._replicas, self._timeout_s = replicas, timeout_s
        self._admin = AdminClient(self._client)
        self._changed = threading.Condition()  # guards all below
        self._state = RegistryState()
        self._position = 0
        self._own_marker = -1  # the offset behind the own last record, if nobody else has written
        self._is_current = False  # the end was reached once
        self._has_own_writes = False  # the state has all that this registry has written
        self._reason = "The registry has not read its topic yet."
        self._was_there = self._is_lost = False
        self._recent: deque[tuple[int, Record]] = deque(maxlen=RECENT)
        self._writing = threading.Lock()  # guards the producer
        self._producer: Producer | None = None
        self._plain: Producer | None = None  # without transactions
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="registry-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()
        with self._writing:
            self._producer = None
            if self._plain is not None:
                self._plain.flush(STOP_S)
                self._plain = None

    def not_ready(self) -> str | None:
        with self._changed:
            return None if self._is_current else self._reason

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, look: Callable[[RegistryState], T]) -> T:
        """Look at what was read so far, once the end was reached."""
        with self._changed:
            self._wait_until(lambda: self._is_current, time.monotonic() + self._timeout_s)
            return look(self._state)

    def catch_up(self) -> None:
        """Wait until everything is read that was in the topic at the time of this call."""
        deadline = time.monotonic() + self._timeout_s
        with self._changed:
            self._wait_until(lambda: self._is_current, deadline)
        end = self._end_until(deadline)
        with self._changed:
            # The marker of an own transaction is not a record, and the reader passes it only with its next fetch.
            self._wait_for_position(end - 1 if end == self._own_marker + 1 else end, deadline)

    def _end_until(self, deadline: float) -> int:
        while True:
            try:
                left_s = deadline - time.monotonic()
                return self._end(max(MIN_TIMEOUT_S, min(left_s, self._timeout_s / END_ATTEMPTS)))
            except KafkaException as error:
                self._is_lost = self._is_lost or error.args[0].code() in NO_TOPIC
                is_passing = error.args[0].code() in PASSING and time.monotonic() + PAUSE_S < deadline
                if not is_passing or self._is_stopped.wait(PAUSE_S):
                    text = f"The end of the topic {self._topic} could not be found: {_text(error)}."
                    raise timed_out(text) from None
                self._admin = AdminClient(self._client)  # it keeps the leader epoch that was refused

    def _end(self, timeout_s: float) -> int:
        """Where readers of committed records are at the end. The admin client has its own connection: on the consumer's
        the request would wait behind a fetch that waits for records.
        """
        place, admin = TopicPartition(self._topic, PARTITION), self._admin  # which another thread may replace
        found = admin.list_offsets(
            {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
        )
        offset: int = found[place].result().offset
        return offset

    def _wait_for_position(self, offset: int, deadline: float) -> None:
        self._wait_until(lambda: self._position >= offset, deadline)

    def _wait_until(self, is_so: Callable[[], bool], deadline: float) -> None:
        while not is_so():
            left_s = deadline - time.monotonic()
            if self._is_stopped.is_set():
                raise store_failed("The registry stops.")
            if left_s <= 0 or not self._changed.wait(left_s):
                if is_so():
                    return
                raise timed_out(f"The topic {self._topic} was not read to its end in time. {self._reason}".rstrip())

    def _follow(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._prepare_topic()
                self._read_from_start()
            except (KafkaException, Unusable) as error:
                with self._changed:
                    self._reason = _text(error)
                    self._is_current = False
                LOG.warning("the topic %s cannot be read, next attempt in %.0f s: %s", self._topic, RETRY_S, error)
                self._is_stopped.wait(RETRY_S)

    def _prepare_topic(self) -> None:
        """Create the topic, or check that an existing one loses no schema."""
        admin = self._admin
        metadata = admin.list_topics(timeout=self._timeout_s)
        if self._topic not in metadata.topics:
            if self._was_there:
                raise Unusable(
                    f"The topic {self._topic} was deleted, with all schemas; restart the gateway to begin with none."
                )
            replicas = min(self._replicas, len(metadata.brokers))
            new = NewTopic(self._topic, 1, replicas, config={"cleanup.policy": COMPACT})
            try:
                admin.create_topics([new], operation_timeout=self._timeout_s)[self._topic].result(self._timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            return
        partitions = len(metadata.topics[self._topic].partitions)
        if partitions > 1:
            raise Unusable(f"The topic {self._topic} has {partitions} partitions; a registry needs one.")
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        configs = admin.describe_configs([resource])[resource].result(self._timeout_s)
        if configs["cleanup.policy"].value != COMPACT:
            raise Unusable(f"The topic {self._topic} must have cleanup.policy=compact, or it would lose schemas.")

    def _read_from_start(self) -> None:
        """Returns when the registry stops, or the topic is gone, of which a consumer hears nothing. Raises when the
        topic has to be read from its start again."""
        consumer = Consumer(
            {
                **self._client,
                "group.id": "trioka.registry",  # the library demands one; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "isolation.level": "read_committed",
            }
        )
        try:
            low, _ = consumer.get_watermark_offsets(TopicPartition(self._topic, PARTITION), self._timeout_s)
            consumer.assign([TopicPartition(self._topic, PARTITION, low)])
            with self._changed:
                self._state, self._position, self._own_marker = RegistryState(), 0, -1
                self._has_own_writes = False  # a leader that is new may show less at first
                self._recent.clear()
            self._was_there, self._is_lost = True, False
            while not self._is_stopped.is_set() and not self._is_lost:
                self._poll(consumer)
        finally:
            with self._changed:
                self._is_current = False
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(POLL_S)
        if message is None:
            return
        with self._changed:
            for _ in range(BATCH):
                if message is None:
                    break
                self._apply(message)
                message = consumer.poll(0)
            if message is not None:
                self._apply(message)
            self._changed.notify_all()

    def _apply(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self._position = message.offset() + 1
            record = Record(message.key(), message.value())
            self._recent.append((message.offset(), record))
            try:
                self._state.replay(*record)
            except BadRecord as bad:
                LOG.warning("skipped the record %s-0@%d: %s", self._topic, message.offset(), bad)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._position = max(self._position, message.offset())
            self._is_current, self._reason = True, ""
        elif error.code() in LOST_PLACE:
            raise KafkaException(error)
        else:
            LOG.warning("reading the topic %s: %s", self._topic, error.str())

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, decide: Callable[[RegistryState], D]) -> D:
        """Append the records of a decision. Returns it after they were read back, or at once if there are none."""
        try:
            self.catch_up()  # what is there already may have been deleted by another registry
            decision = self.read(decide)
            if not decision.records:
                return decision
        except RegistryError:
            pass  # maybe for want of what another registry has written: the writer decides
        if not self._writing.acquire(timeout=self._timeout_s):
            raise timed_out("Other writes took too long.")
        try:
            return self._write(decide)
        finally:
            self._writing.release()

    def _write(self, decide: Callable[[RegistryState], D]) -> D:
        unsettled: tuple[int, D] | None = None
        failure = ""
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                self._is_stopped.wait(random.uniform(0, BACKOFF_S * attempt))
            try:
                producer = self._begin()
                if unsettled is not None:
                    start, decision = unsettled
                    with self._changed:
                        if self._read_back(start, decision.records) is not None:
                            return decision
                unsettled = None
                decision = self._decide(decide)
                if not decision.records:
                    return decision
                with self._changed:
                    if not self._has_own_writes:  # the topic was read anew meanwhile
                        continue
                    self._has_own_writes = False
                    start = self._position
                unsettled = start, decision
                self._commit(producer, decision.records)
            except KafkaException as error:
                self._producer, failure = None, _text(error)
                LOG.info("a write did not succeed, attempt %d: %s", attempt + 1, failure)
                if error.args[0].code() in FINAL:
                    raise store_failed(f"The schema could not be written: {failure}.") from None
                continue
            self._wait_for_own(start, decision.records)
            return decision
        raise no_writer(f"The topic {self._topic} could not be written in {MAX_ATTEMPTS} attempts: {failure}.")

    def _wait_for_own(self, start: int, records: Sequence[Record]) -> None:
        with self._changed:
            deadline = time.monotonic() + self._timeout_s
            self._wait_until(lambda: self._read_back(start, records) is not None, deadline)
            last = self._read_back(start, records)
            assert last is not None
            self._own_marker = last + 1
            self._has_own_writes = True

    def _begin(self) -> Producer:
        """The producer, after which no other registry can write. The state has everything that was written before: also
        what this registry wrote itself, if it was not read back in time, or its id would be given again.
        """
        if self._producer is not None:
            if not self._has_own_writes:
                self._catch_up_own()
            return self._producer
        producer = Producer(
            {
                **self._client,
                "transactional.id": f"trioka.registry.{self._topic}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
                "allow.auto.create.topics": False,  # a topic that was deleted would come back, and not compacted
                "error_cb": _ignore,
            }
        )
        producer.init_transactions(self._timeout_s)
        self._catch_up_own()
        self._producer = producer
        return producer

    def _catch_up_own(self) -> None:
        with self._changed:
            self._has_own_writes = True  # unless the topic is read anew meanwhile
        try:
            self.catch_up()
        except BaseException:
            self._has_own_writes = False
            raise

    def _decide(self, decide: Callable[[RegistryState], D]) -> D:
        """A refusal counts only if it stands after everything was read: another registry may write by now."""
        try:
            return self.read(decide)
        except RegistryError:
            self.catch_up()
            return self.read(decide)

    def _commit(self, producer: Producer, records: Sequence[Record]) -> None:
        """No callbacks of deliveries: a producer that is fenced fails within them. A record that is not delivered fails
        the commit.
        """
        producer.begin_transaction()
        for record in records:
            producer.produce(self._topic, record.value, record.key, PARTITION)
        producer.commit_transaction(self._timeout_s)
        self._end_with_a_record()

    def _end_with_a_record(self) -> None:
        """Not waited for: if it is lost, the next write brings another one."""
        if self._plain is None:
            self._plain = Producer(
                {**self._client, "linger.ms": 0, "allow.auto.create.topics": False, "error_cb": _ignore}
            )
        noop = noop_record()
        with suppress(BufferError, KafkaException):
            self._plain.produce(self._topic, noop.value, noop.key, PARTITION)
            self._plain.poll(0)

    def _read_back(self, start: int, records: Sequence[Record]) -> int | None:
        """The offset of the last of these records, if all were read at or after `start`."""
        found = {record: offset for offset, record in self._recent if offset >= start}
        return max(found[each] for each in records) if all(each in found for each in records) else None


LOST_PLACE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._UNKNOWN_TOPIC,
                     KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)  # fmt: skip
NO_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
# The leader has moved, or the broker restarts: the next request has newer metadata.
PASSING: Final = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.LEADER_NOT_AVAILABLE,
                  KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE,
                  KafkaError.KAFKA_STORAGE_ERROR, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN,
                  KafkaError._TIMED_OUT)  # fmt: skip
FINAL: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)  # fmt: skip


def _ignore(error: KafkaError) -> None:
    """Of a producer that is fenced: the next call raises it. Without a callback, it is raised into that of a record."""


def _text(error: Exception) -> str:
    found = error.args[0] if error.args else error
    return str(found.str() if isinstance(found, KafkaError) else found)
