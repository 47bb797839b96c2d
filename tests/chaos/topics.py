"""Topics that change during a chaos run: deleted and created again under one name, and moved between nodes.

TopicRecreator   creates a compacted topic, writes it, reads it, deletes it, and begins again with the same name
Reassigner       gives partitions of one topic other replicas, and other leaders, while others write to it
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from chaos.load import DELIVERY_S, MOVED, PARTITIONS, POLL_S, SHORT_TIMEOUTS, Worker
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from trioka.cli.client.connection import ConnectionClosed
from trioka.cli.terminal.failure import Failure
from trioka.protocol.errors import (
    NONE,
    InvalidReplicationFactor,
    NotController,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicId,
)
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.schema import Request

RECREATED: Final = "recreated"
KEYS_WRITTEN: Final = 20
ROUNDS: Final = (1, 2, 5)
DELETED_KEYS: Final = 0.3
ADMIN_S: Final = 10.0
RETRY_S: Final = 0.2
NODES: Final = (1, 2, 3)

ADMIN_RETRIABLE: Final = tuple(
    error.code
    for error in (NotController, RequestTimedOut, InvalidReplicationFactor)  # the last: a broker is fenced
)

CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "4096",
    "min.insync.replicas": "2",
}


class WrongContents(Exception):
    """A topic lacks acknowledged records, or contains records of its predecessor."""


def insist(ask: Callable[[], bool]) -> None:
    """Until it is true; a cluster in trouble may not answer."""
    until = time.monotonic() + DELIVERY_S
    while True:
        try:
            if ask():
                return
        except (KafkaException, Failure, ConnectionClosed, OSError):
            pass
        if time.monotonic() > until:
            raise TimeoutError(f"not within {DELIVERY_S:.0f} s: {ask.__qualname__}")
        time.sleep(RETRY_S)


class Administrator(Worker):
    def ask(self, request: Request) -> Any:
        """Any node."""
        connection = self.access.connection(self.random.choice(self.access.servers.split(",")), timeout_s=ADMIN_S)
        try:
            return connection.ask(request)
        finally:
            connection.close()


class TopicRecreator(Administrator):
    """Values name the topic's generation, so that a record of an earlier one cannot be taken for one of this."""

    _generation = 0

    def open(self) -> None:
        self._ids: list[bytes] = []  # of all generations

    def work(self) -> None:
        self._generation += 1
        insist(self._create_topic)
        expected: dict[bytes, bytes | None] = {}
        for round_number in range(self.random.choice(ROUNDS)):
            expected |= self._write(round_number)
            self.is_over.wait(self.random.random())  # the cleaner may run
        self._check(expected)
        insist(self._delete_topic)
        self.count += 1

    def close(self) -> None: ...

    # -- life of the topic ---------------------------------------------------------------------------------------------

    def _create_topic(self) -> bool:
        """True once the topic exists. A repeated request may find what an earlier one made without an answer; then its
        id is one that no earlier generation had."""
        wanted = CreateTopicsRequest.Topic
        topic = wanted(
            name=RECREATED,
            num_partitions=1,
            replication_factor=len(NODES),
            assignments=[],
            configs=[wanted.Config(name=name, value=value) for name, value in CONFIG.items()],
        )
        (result,) = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=int(ADMIN_S * 1000))).topics
        found = self._id_in_metadata() if result.error_code == TopicAlreadyExists.code else result.topic_id
        if result.error_code not in (NONE, TopicAlreadyExists.code, *ADMIN_RETRIABLE):
            raise WrongContents(f"{RECREATED} cannot be created: {result.error_message}")
        if result.error_code not in (NONE, TopicAlreadyExists.code) or found in (NULL_UUID, *self._ids):
            return False
        self._ids.append(found)
        return True

    def _delete_topic(self) -> bool:
        """By its id: a request that arrives late must not delete the topic's successor."""
        topic = DeleteTopicsRequest.Topic(topic_id=self._ids[-1])
        (result,) = self.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=int(ADMIN_S * 1000))).responses
        return result.error_code in (NONE, UnknownTopicId.code)

    def _id_in_metadata(self) -> bytes:
        topics = [MetadataRequest.Topic(name=RECREATED)]
        (result,) = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False)).topics
        return bytes(result.topic_id)

    def _write(self, round_number: int) -> dict[bytes, bytes | None]:
        producer = Producer(
            {
                **SHORT_TIMEOUTS,
                **self.access.librdkafka,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(DELIVERY_S * 1000),
                "topic.metadata.propagation.max.ms": int(DELIVERY_S * 1000),
            }
        )
        written: dict[bytes, bytes | None] = {}
        refused: list[KafkaError] = []

        def on_response(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for number in range(KEYS_WRITTEN):
            key = f"key-{number}".encode()
            is_deleted = round_number > 0 and self.random.random() < DELETED_KEYS
            value = None if is_deleted else f"{self._generation}:{round_number}:{'.' * 100}".encode()
            written[key] = value
            producer.produce(RECREATED, value, key, 0, on_delivery=on_response)
        producer.flush(DELIVERY_S)
        if refused:
            raise WrongContents(f"generation {self._generation} of {RECREATED} refuses records: {refused[0]}")
        return written

    def _check(self, expected: dict[bytes, bytes | None]) -> None:
        """A leader that was deposed and does not know it yet shows an earlier end, as in Kafka; not for long."""
        until = time.monotonic() + DELIVERY_S
        while wrong := self._difference(expected):
            if time.monotonic() > until:
                raise WrongContents(f"generation {self._generation} of {RECREATED}: {wrong}")
            time.sleep(RETRY_S)

    def _difference(self, expected: dict[bytes, bytes | None]) -> str:
        """The difference from the expected content, if any."""
        found: dict[bytes, bytes | None] = {}
        for message in self._read_all():
            key, value = message.key() or b"", message.value()
            if value is not None and not value.startswith(b"%d:" % self._generation):
                raise WrongContents(f"{value[:20]!r} stands in generation {self._generation} of {RECREATED}")
            found[key] = value
        wrong = [key for key, value in expected.items() if found.get(key) != value]
        return f"{wrong[0]!r} is {found.get(wrong[0])!r}, not {expected[wrong[0]]!r}" if wrong else ""

    def _read_all(self) -> list[Message]:
        """From the start to the end that is there now."""
        consumer = Consumer(
            {
                **SHORT_TIMEOUTS,
                **self.access.librdkafka,
                "group.id": f"none-{self.name}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        try:
            return self._read_with(consumer)
        finally:
            consumer.close()

    def _read_with(self, consumer: Consumer) -> list[Message]:
        place, until = TopicPartition(RECREATED, 0, 0), time.monotonic() + DELIVERY_S
        end = -1
        while end < 0:
            try:
                _, end = consumer.get_watermark_offsets(place, timeout=POLL_S * 20, cached=False)
            except KafkaException:
                if time.monotonic() > until:
                    raise
        consumer.assign([place])
        found: list[Message] = []
        while time.monotonic() < until:
            for message in consumer.consume(1000, POLL_S):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= end:
                    return found
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    raise WrongContents(f"generation {self._generation} of {RECREATED}: {error}")
        raise TimeoutError(f"the end of {RECREATED}, {end}, was not reached")


class Reassigner(Administrator):
    """Two replicas at least: with `min.insync.replicas=2` every acknowledged record has two copies at any time."""

    def open(self) -> None: ...

    def work(self) -> None:
        partition = self.random.randrange(PARTITIONS[MOVED])
        self._move(partition, self.random.sample(NODES, self.random.choice((2, 3, 3))))
        self.count += 1
        self.is_over.wait(self.random.random())

    def close(self) -> None:
        """In the end every node has everything, so that the replicas can be compared."""
        for partition in range(PARTITIONS[MOVED]):
            self._move(partition, list(NODES))

    def _move(self, partition: int, replicas: Sequence[int]) -> None:
        insist(lambda: self._is_asked(partition, replicas))
        insist(lambda: self._is_moved(partition, replicas))

    def _is_asked(self, partition: int, replicas: Sequence[int]) -> bool:
        wanted = AlterPartitionReassignmentsRequest.Topic
        topic = wanted(name=MOVED, partitions=[wanted.Partition(partition_index=partition, replicas=list(replicas))])
        response = self.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=int(ADMIN_S * 1000)))
        return bool(response.error_code == NONE and response.responses[0].partitions[0].error_code == NONE)

    def _is_moved(self, partition: int, replicas: Sequence[int]) -> bool:
        topics = [MetadataRequest.Topic(name=MOVED)]
        (result,) = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False)).topics
        found = {each.partition_index: each.replica_nodes for each in result.partitions}
        return list(found.get(partition, ())) == list(replicas)
