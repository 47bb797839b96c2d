"""A consumer of librdkafka in a thread of its own, which feeds one Subscribe call.

    orders: credit, acknowledgements, close ─→ thread ─→ events: deliveries, assignments, failures

The thread is the only one that uses the consumer. While there is no credit it waits for orders, and after a second it
pauses its partitions, so that it can go on polling: a consumer that does not poll is put out of its group.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as RdError

from trioka.protocol import errors

from ..cluster_access import OAUTHBEARER, ClusterAccess
from ..producing.librdkafka_errors import as_kafka_error
from ..producing.writer import LOG, RECONNECT_MS, TOKEN_S
from ..reading.messages import RECORD_OVERHEAD
from ..v1 import log_pb2, types_pb2
from .window import DeliveryWindow, Place

POLL_S: Final = 0.1
PAUSE_AFTER_S: Final = 1.0
MAX_BATCH: Final = 500  # records in one pass
MAX_DELIVERY_BYTES: Final = 1024 * 1024
COMMIT_INTERVAL_MS: Final = 500
PREFETCHED_KIB: Final = 4 * 1024
CLOSE_S: Final = 10.0
IGNORED: Final = frozenset({RdError._PARTITION_EOF, RdError._ALL_BROKERS_DOWN, RdError._TRANSPORT})

Event: TypeAlias = "log_pb2.SubscribeResponse | Exception"


class Member:
    """Made in the event loop's thread; `events` is read there."""

    def __init__(
        self, access: ClusterAccess, join: log_pb2.Join, window: DeliveryWindow, *, max_message_bytes: int
    ) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()  # bounded by credit and the window
        self._loop = asyncio.get_running_loop()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._window = window
        self._topics = list(join.topics)
        self._max_delivery = min(MAX_DELIVERY_BYTES, max_message_bytes // 2)
        self._max_record = max_message_bytes - RECORD_OVERHEAD
        self._is_closing = False
        self._is_paused = False
        self._idle_since: float | None = None
        self._held: list[Message] = []  # polled although there was no credit
        self._consumer = Consumer(self._settings(access, join))
        self.thread = threading.Thread(target=self._run, name="subscription", daemon=True)
        self.thread.start()

    def _settings(self, access: ClusterAccess, join: log_pb2.Join) -> dict[str, Any]:
        settings = access.librdkafka() | {
            "client.id": "trioka-gateway",
            "group.id": join.group,
            "auto.offset.reset": "latest" if join.reset == log_pb2.RESET_LATEST else "earliest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
            "enable.auto.offset.store": False,
            "queued.max.messages.kbytes": PREFETCHED_KIB,
            "queued.min.messages": 1000,
            "reconnect.backoff.max.ms": RECONNECT_MS,
            "logger": LOG,
            "log_level": 3,
            "error_cb": self._failed,
        }
        if access.login is not None and access.login.mechanism == OAUTHBEARER:
            token = access.login.password
            settings["oauth_cb"] = lambda _config: (token, time.time() + TOKEN_S)
        return settings

    # -- orders, from the event loop

    def add_credit(self, count: int) -> None:
        self._orders.put(lambda: self._window.add_credit(count))

    def acknowledge(self, place: Place, offset: int, verdict: int) -> None:
        self._orders.put(lambda: self._acknowledge(place, offset, verdict))

    def close(self) -> None:
        """Leave the group, in the thread."""

        def close() -> None:
            self._is_closing = True

        self._orders.put(close)

    # -- the thread

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
            while not self._is_closing:
                self._obey()
                if not self._is_closing:
                    self._deliver(self._polled())
        except KafkaException as error:
            self._emit(as_kafka_error(error, f"topics {', '.join(self._topics)}"))
        except Exception as error:
            self._emit(error)
        finally:
            self._consumer.close()

    def _obey(self) -> None:
        """Carry out all orders; wait for one if there is nothing else to do."""
        must_wait = not self._window.allowed
        while True:
            try:
                order = self._orders.get(timeout=POLL_S) if must_wait else self._orders.get_nowait()
            except queue.Empty:
                return
            order()
            must_wait = False

    def _polled(self) -> Sequence[Message]:
        allowed = self._window.allowed
        if allowed:
            self._idle_since = None
            if self._is_paused:
                self._consumer.resume(self._consumer.assignment())
                self._is_paused = False
            held, self._held = self._held[:allowed], self._held[allowed:]
            return held or self._consumer.consume(min(allowed, MAX_BATCH), timeout=POLL_S)
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > PAUSE_AFTER_S:
            if not self._is_paused:
                self._consumer.pause(self._consumer.assignment())
                self._is_paused = True
            message = self._consumer.poll(0)
            if message is not None:
                self._held.append(message)
        return ()

    def _deliver(self, messages: Sequence[Message]) -> None:
        delivery, size = log_pb2.Delivery(), 0
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() in IGNORED:
                    continue
                raise as_kafka_error(error, f"topic {message.topic()!r}")
            topic, partition, record = message.topic(), message.partition(), record_of(message)
            assert topic is not None and partition is not None
            wanted = record.ByteSize() + RECORD_OVERHEAD
            if wanted > self._max_record:
                raise errors.MessageTooLarge(
                    f"the record at offset {record.offset} of {topic}-{partition} has {wanted} bytes, more than a "
                    f"message may have ({self._max_record}; grpc.max.message.bytes)"
                )
            if size and (
                size + wanted > self._max_delivery or (topic, partition) != (delivery.topic, delivery.partition)
            ):
                self._emit(log_pb2.SubscribeResponse(delivery=delivery))
                delivery, size = log_pb2.Delivery(), 0
            delivery.topic, delivery.partition = topic, partition
            delivery.records.append(record)
            size += wanted
            self._window.sent(Place(topic, partition), record.offset, wanted)
        if size:
            self._emit(log_pb2.SubscribeResponse(delivery=delivery))

    def _acknowledge(self, place: Place, offset: int, verdict: int) -> None:
        if verdict == log_pb2.VERDICT_RELEASE:
            first = self._window.release(place, offset)
            if first is not None:
                self._held = [each for each in self._held if (each.topic(), each.partition()) != place]
                self._consumer.seek(TopicPartition(place.topic, place.partition, first))
        elif self._window.accept(place, offset):
            self._consumer.store_offsets(offsets=[TopicPartition(place.topic, place.partition, offset + 1)])

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._is_paused = False
        self._announce(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {Place(each.topic, each.partition) for each in partitions}
        self._window.revoke(places)
        self._held = [each for each in self._held if (each.topic(), each.partition()) not in places]
        self._announce([])

    def _announce(self, partitions: Sequence[TopicPartition]) -> None:
        found = [types_pb2.TopicPartition(topic=each.topic, partition=each.partition) for each in partitions]
        self._emit(log_pb2.SubscribeResponse(assignment=log_pb2.Assignment(partitions=found)))

    def _failed(self, error: RdError) -> None:
        """Errors that are no message's: called while polling."""
        if error.fatal() or error.code() == RdError._AUTHENTICATION:
            self._emit(as_kafka_error(error, "the consumer"))

    def _emit(self, event: Event) -> None:
        try:
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:
            self._is_closing = True  # the loop has ended, and so has the call


def record_of(message: Message) -> types_pb2.Record:
    key, value, offset = message.key(), message.value(), message.offset()
    _, timestamp_ms = message.timestamp()
    record = types_pb2.Record(key=_bytes(key), value=_bytes(value), timestamp_ms=timestamp_ms, offset=offset)
    headers: Any = message.headers() or ()
    for name, content in headers:
        record.headers.append(types_pb2.Header(key=name, value=_bytes(content)))
    return record


def _bytes(content: Any) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
