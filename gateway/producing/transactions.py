"""The transactional producer of one name: records and the sequence in one transaction. Every method blocks.

The sequence is the committed offset of group `trioka.producer.<name>` for partition 0 of each topic that is written.
What is committed is one more than the sequence, as for a consumer that has read a record.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as RdError

from trioka.protocol import errors
from trioka.protocol.errors import KafkaError

from ..cluster_access import ClusterAccess
from ..v1 import types_pb2
from .librdkafka_errors import as_kafka_error
from .writer import ANY_PARTITION, headers_of, position_of, producer_settings

PREFIX: Final = "trioka.producer."
SEQUENCE_PARTITION: Final = 0
# Errors of a record whose reason is the producer's, which its next call raises.
CONSEQUENCES: Final = frozenset({RdError._PURGE_QUEUE, RdError._PURGE_INFLIGHT, RdError._FATAL})
ABORT_S: Final = 2.0
LEAST_S: Final = 0.1  # of one call
ATTEMPTS: Final = 5  # of a call that librdkafka says to repeat


class Unusable(Exception):
    """The producer has ended, and another one has to take its place. `error` goes to the caller."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


class Writing:
    """The records of one request, in one transaction."""

    __slots__ = ("error", "is_lost", "partition", "positions", "records", "topic")

    def __init__(self, topic: str, partition: int | None, records: Sequence[types_pb2.Record]) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.positions: list[tuple[int, int]] = [(-1, -1)] * len(records)
        self.error: KafkaError | None = None
        self.is_lost = False  # not written, for the reason that the producer has


class TransactionalProducer:
    def __init__(self, access: ClusterAccess, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        settings = producer_settings(access, timeout_s)
        self._producer = Producer(
            settings | {"transactional.id": PREFIX + name, "transaction.timeout.ms": int(timeout_s * 1000)}
        )
        self._group = _group_metadata(settings, PREFIX + name)

    def begin(self) -> None:
        """Fence others of this name, and end what they left behind."""
        try:
            self._call(self._producer.init_transactions, time.monotonic() + self._timeout_s)
        except KafkaException as error:
            raise Unusable(self._error(error)) from None

    def write(self, requests: Sequence[Writing], next_sequence: int) -> None:
        """One transaction with the records of all requests. Raises Unusable with the reason if it is not committed: a
        producer of librdkafka that has aborted a transaction fails the next one, because sequence numbers are missing.
        """
        deadline = time.monotonic() + self._timeout_s
        for request in requests:
            request.error, request.is_lost = None, False  # of an earlier transaction with others
        try:
            self._producer.begin_transaction()
            for request in requests:
                self._queue(request)
            self._call(self._producer.flush, deadline, is_flush=True)
            failed = next((each.error for each in requests if each.error is not None), None)
            if failed is not None:
                raise failed
            topics = sorted({each.topic for each in requests})
            offsets = [TopicPartition(topic, SEQUENCE_PARTITION, next_sequence) for topic in topics]
            self._call(partial(self._producer.send_offsets_to_transaction, offsets, self._group), deadline)
            if any(each.is_lost for each in requests):
                raise errors.NetworkException(f"producer {self._name!r}: records were not written")
            self._call(self._producer.commit_transaction, deadline)
        except KafkaException as error:
            self._abort()
            raise Unusable(self._error(error)) from None
        except KafkaError as error:
            self._abort()
            raise Unusable(error) from None

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)

    def _queue(self, request: Writing) -> None:
        where = ANY_PARTITION if request.partition is None else request.partition
        for index, record in enumerate(request.records):
            try:
                self._producer.produce(
                    request.topic,
                    record.value if record.HasField("value") else None,
                    record.key if record.HasField("key") else None,
                    where,
                    on_delivery=partial(_delivered, request, index),
                    timestamp=record.timestamp_ms,
                    headers=headers_of(record),
                )
            except BufferError:
                raise errors.ThrottlingQuotaExceeded(f"producer {self._name!r}: its queue is full") from None
            except KafkaException as error:
                request.error = as_kafka_error(error, f"topic {request.topic!r}")
                raise request.error from None

    def _abort(self) -> None:
        """So that readers of committed records need not wait for the transaction's timeout. If it fails, the producer
        that takes this one's place ends the transaction; whether a commit that was begun has taken place, the committed
        sequence shows it."""
        with suppress(KafkaException):
            self._call(self._producer.abort_transaction, time.monotonic() + ABORT_S)

    def _call(self, call: Any, deadline: float, *, is_flush: bool = False) -> None:
        """A call that librdkafka says to repeat is repeated within the time limit of the whole transaction: a producer
        that waits for a coordinator that has died is better replaced."""
        for attempt in range(ATTEMPTS):
            left_s = max(deadline - time.monotonic(), LEAST_S)
            try:
                left = _without_system_error(call, left_s)
                if is_flush and left:
                    raise errors.RequestTimedOut(f"producer {self._name!r}: {left} records were not written in time")
                return
            except KafkaException as error:
                is_last = attempt == ATTEMPTS - 1 or time.monotonic() >= deadline
                if is_last or not error.args[0].retriable():
                    raise

    def _error(self, error: KafkaException) -> KafkaError:
        mapped = as_kafka_error(error, f"producer {self._name!r}")
        if isinstance(mapped, errors.OutOfOrderSequenceNumber):
            return errors.NetworkException(str(mapped))  # of librdkafka's own sequence numbers, not of the caller's
        return mapped


def _without_system_error(call: Any, timeout_s: float) -> Any:
    """A fatal error is raised by poll or flush while a callback runs, which then cannot do anything: Python reports a
    SystemError, whose cause is the error."""
    try:
        return call(timeout_s)
    except SystemError as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, KafkaException):
            raise cause from None
        raise


def _delivered(request: Writing, index: int, error: "RdError | None", message: Message) -> None:
    if error is None:
        request.positions[index] = position_of(message)
    elif error.code() in CONSEQUENCES:
        request.is_lost = True
    else:
        request.error = request.error or as_kafka_error(error, f"topic {request.topic!r}")


def _group_metadata(settings: dict[str, Any], group: str) -> object:
    """Only a consumer can make it. It never subscribes, so that it joins no group."""
    shared = {key: settings[key] for key in settings if key.startswith(("bootstrap.", "security.", "sasl.", "ssl."))}
    if "oauth_cb" in settings:
        shared["oauth_cb"] = settings["oauth_cb"]
    consumer = Consumer({**shared, "group.id": group, "logger": settings["logger"], "log_level": 3})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
