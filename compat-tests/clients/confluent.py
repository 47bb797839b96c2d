"""confluent-kafka, the Python client on librdkafka."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, and not marked as such
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from .client import EARLIEST, LATEST, PATIENCE_SECONDS, Client, Cluster, Partition, Read, Record, Refused, gave_up

POLL_SECONDS = 0.2


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _refused(error.args[0]) from error


def _refused(error: KafkaError) -> Refused:
    """Librdkafka's own errors have codes below -1. Some stand for an answer of the broker."""
    code = error.code()
    if code in (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        code = KafkaError.UNKNOWN_TOPIC_OR_PART
    elif code == KafkaError._AUTO_OFFSET_RESET and "Broker: Offset out of range" in str(error):
        code = KafkaError.OFFSET_OUT_OF_RANGE
    return Refused(code, str(error))


class Confluent(Client):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._admin = AdminClient(self._settings)
        self._group = 0

    def close(self) -> None:
        del self._admin

    def cluster(self) -> Cluster:
        result = _only(self._admin.describe_cluster())
        return Cluster(
            brokers={broker.id: (broker.host, broker.port) for broker in result.nodes}, controller=result.controller.id
        )

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=PATIENCE_SECONDS).topics)

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        _only(self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))]))

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def describe_topic(self, topic: str) -> list[Partition]:
        result = _only(self._admin.describe_topics(TopicCollection([topic])))
        return sorted(
            Partition(p.id, p.leader.id, tuple(node.id for node in p.replicas), tuple(node.id for node in p.isr))
            for p in result.partitions
        )

    def add_partitions(self, topic: str, total: int) -> None:
        _only(self._admin.create_partitions([NewPartitions(topic, total)]))

    def topic_config(self, topic: str) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResource.Type.TOPIC, topic))

    def broker_config(self, broker: int) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResource.Type.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, str | None]:
        return {key: entry.value for key, entry in _only(self._admin.describe_configs([resource])).items()}

    def alter_topic_config(self, topic: str, put: Mapping[str, str], drop: Sequence[str] = ()) -> None:
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in put.items()
        ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in drop]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
        _only(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        _only(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[int]:
        settings = {"compression.type": codec, "acks": acks, "enable.idempotence": idempotent, "linger.ms": 20}
        producer = Producer(self._settings | settings)
        result: dict[int, Message | KafkaError] = {}
        for index, record in enumerate(records):

            def heard(error: KafkaError | None, message: Message, index: int = index) -> None:
                result[index] = message if error is None else error

            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                timestamp=record.timestamp,
                on_delivery=heard,
            )
        assert producer.flush(PATIENCE_SECONDS) == 0
        for outcome in result.values():
            if isinstance(outcome, KafkaError):
                raise _refused(outcome)
        messages = [result[index] for index in range(len(records))]
        return [message.offset() or 0 for message in messages if isinstance(message, Message)] if acks else []

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Read]:
        consumer = self._consumer()
        try:
            start = OFFSET_BEGINNING if offset == EARLIEST else offset
            consumer.assign([TopicPartition(topic, partition, start)])
            found: list[Read] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(found) < count:
                if time.monotonic() > deadline:
                    gave_up(count, len(found))
                for message in consumer.consume(count - len(found), POLL_SECONDS):
                    if error := message.error():
                        raise _refused(error)
                    found.append(_read(message))
            return found
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        """A group must be named, and is not used: nothing is subscribed to or committed."""
        settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
        return Consumer(self._settings | settings)

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        spec: Any = OffsetSpec  # its methods have no types
        at = {EARLIEST: spec.earliest(), LATEST: spec.latest()}.get(timestamp) or spec.for_timestamp(timestamp)
        return int(_only(self._admin.list_offsets({TopicPartition(topic, partition): at})).offset)


def _only(answers: Mapping[Any, Future[Any]] | Future[Any]) -> Any:
    """The answer to a question about one thing."""
    (future,) = answers.values() if isinstance(answers, Mapping) else (answers,)
    with refusals():
        return future.result(PATIENCE_SECONDS)


def _read(message: Message) -> Read:
    headers: Any = message.headers() or []
    _, timestamp = message.timestamp()
    record = Record(message.key(), message.value(), tuple(headers), timestamp, message.partition() or 0)
    return Read(message.offset() or 0, record)
