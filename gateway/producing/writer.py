"""Records of unnamed producers: one librdkafka producer for each level of acknowledgement, with a thread that polls.

With ACKS_ALL it is idempotent: what it retries is written once. Delivery reports arrive in the thread; a request that
is complete wakes the event loop, once for many of them.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import grpc
from confluent_kafka import KafkaError as RdError
from confluent_kafka import KafkaException, Message, Producer

from trioka.protocol.errors import KafkaError, RequestTimedOut

from ..cluster_access import OAUTHBEARER, ClusterAccess
from ..failures import Refused
from ..v1 import log_pb2, types_pb2
from .librdkafka_errors import as_kafka_error
from .outcome import Outcome

LOG: Final = logging.getLogger("trioka.gateway.librdkafka")
POLL_S: Final = 0.5
RECONNECT_MS: Final = 500
MAX_QUEUED_KIB: Final = 64 * 1024
MAX_QUEUED_RECORDS: Final = 100_000
FULL_PAUSE_S: Final = 0.01
MAX_RECORD_BYTES: Final = 64 * 1024 * 1024  # the topic's max.message.bytes decides; this is librdkafka's own limit
TOKEN_S: Final = 3600.0  # librdkafka wants to know when a token ends; the broker decides
CLOSE_S: Final = 5.0
ANY_PARTITION: Final = -1  # by key, or any
ACKS: Final[Mapping[int, str]] = {log_pb2.ACKS_ALL: "all", log_pb2.ACKS_LEADER: "1", log_pb2.ACKS_NONE: "0"}


def producer_settings(access: ClusterAccess, timeout_s: float) -> dict[str, Any]:
    """What all producers of librdkafka share."""
    settings = access.librdkafka() | {
        "client.id": "trioka-gateway",
        "partitioner": "murmur2_random",
        "linger.ms": 0,
        "message.max.bytes": MAX_RECORD_BYTES,
        "queue.buffering.max.kbytes": MAX_QUEUED_KIB,
        "queue.buffering.max.messages": MAX_QUEUED_RECORDS,
        "delivery.timeout.ms": int(timeout_s * 1000),
        "request.timeout.ms": int(timeout_s * 1000),
        "allow.auto.create.topics": False,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": RECONNECT_MS,
        "log_level": 3,
        "logger": LOG,
    }
    if access.login is not None and access.login.mechanism == OAUTHBEARER:
        token = access.login.password
        settings["oauth_cb"] = lambda _config: (token, time.time() + TOKEN_S)
    return settings


def position_of(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    return -1 if partition is None else partition, -1 if offset is None else offset


def headers_of(record: types_pb2.Record) -> list[tuple[str, str | bytes | None]] | None:
    if not record.headers:
        return None
    return [(each.key, each.value if each.HasField("value") else None) for each in record.headers]


class Pending:
    """The records of one request, until all are delivered."""

    __slots__ = ("error", "future", "left", "positions")

    def __init__(self, count: int, future: "asyncio.Future[Outcome]") -> None:
        self.left = count
        self.future = future
        self.positions: list[tuple[int, int]] = [(-1, -1)] * count
        self.error: KafkaError | None = None


class Writer:
    """Made in the event loop's thread."""

    def __init__(self, access: ClusterAccess, acks: int, timeout_s: float) -> None:
        settings = producer_settings(access, timeout_s) | {"acks": ACKS[acks], "error_cb": self._failed}
        if acks == log_pb2.ACKS_ALL:
            settings["enable.idempotence"] = True
        if acks == log_pb2.ACKS_NONE:
            settings["retries"] = 0
        self._has_offsets = acks != log_pb2.ACKS_NONE
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._finished: deque[Pending] = deque()
        self._is_woken = False
        self._is_closed = False
        self.is_broken = False  # by an error after which librdkafka wants a new producer
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._poll, name="producer-poll", daemon=True)
        self._thread.start()

    def write(
        self, topic: str, partition: int | None, records: Sequence[types_pb2.Record]
    ) -> "asyncio.Future[Outcome]":
        """Queue the records, in the order of calls. The future has their positions, or a KafkaError: then some of them
        may have been written. Raises Refused, with nothing written, if the queue has no place."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        pending = Pending(len(records), future)
        where = ANY_PARTITION if partition is None else partition
        for index, record in enumerate(records):
            try:
                self._producer.produce(
                    topic,
                    record.value if record.HasField("value") else None,
                    record.key if record.HasField("key") else None,
                    where,
                    on_delivery=partial(self._delivered, pending, index),
                    timestamp=record.timestamp_ms,
                    headers=headers_of(record),
                )
            except BufferError:
                if index == 0:
                    raise Refused(
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        f"{MAX_QUEUED_RECORDS} records or {MAX_QUEUED_KIB} KiB wait to be written; try again later",
                        retriable=True,
                    ) from None
                self._refuse_rest(pending, index, RequestTimedOut(f"topic {topic!r}: the queue of records is full"))
                break
            except KafkaException as error:
                self._refuse_rest(pending, index, as_kafka_error(error, f"topic {topic!r}"))
                break
        return future

    def _refuse_rest(self, pending: Pending, index: int, error: KafkaError) -> None:
        """The records from `index` on are not queued; the request is complete when those before it are delivered."""
        pending.error = error
        rest = len(pending.positions) - index
        self._loop.call_soon(self._count, pending, rest)

    def _count(self, pending: Pending, rest: int) -> None:
        with _COUNTS:
            pending.left -= rest
            is_complete = pending.left == 0
        if is_complete:
            self._finish(pending)

    def _delivered(self, pending: Pending, index: int, error: "RdError | None", message: Message) -> None:
        """Called in the polling thread."""
        if error is not None:
            pending.error = pending.error or as_kafka_error(error, f"topic {message.topic()!r}")
        else:
            pending.positions[index] = position_of(message)
        with _COUNTS:
            pending.left -= 1
            is_complete = pending.left == 0
        if is_complete:
            self._finished.append(pending)
            if not self._is_woken:
                self._is_woken = True
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_woken = False
        while self._finished:
            self._finish(self._finished.popleft())

    def _finish(self, pending: Pending) -> None:
        if pending.future.done():
            return
        if pending.error is not None:
            pending.future.set_exception(pending.error)
        elif self._has_offsets:
            pending.future.set_result(Outcome(pending.positions, False))
        else:
            pending.future.set_result(Outcome((), False))

    def _failed(self, error: "RdError") -> None:
        """Called in the polling thread, for errors that are no record's."""
        if error.fatal() or error.code() == RdError._AUTHENTICATION:
            self.is_broken = True

    def _poll(self) -> None:
        while not self._is_closed:
            try:
                self._producer.poll(POLL_S)
            except (KafkaException, SystemError) as error:  # SystemError: a callback ran while the former was raised
                self.is_broken = True
                LOG.warning("a producer of the gateway has ended and is replaced: %s", error.__cause__ or error)
        with suppress(KafkaException, SystemError):
            self._producer.flush(CLOSE_S)
            self._producer.purge()
            self._producer.poll(0)

    def close(self) -> None:
        """Records that are queued have a few seconds. Returns at once."""
        self._is_closed = True

    async def join(self) -> None:
        await asyncio.to_thread(self._thread.join, 2 * CLOSE_S)


_COUNTS: Final = threading.Lock()  # guards Pending.left, which two threads count down
