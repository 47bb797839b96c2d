"""aiokafka, the Python client on asyncio. Each call here runs its event loop until the answer is there.

It keeps no promise about single configuration keys: it only knows AlterConfigs, which replaces a topic's whole
configuration.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from .client import (
    EARLIEST,
    LATEST,
    NO_CODE,
    PATIENCE_SECONDS,
    Client,
    Cluster,
    Partition,
    Read,
    Record,
    Refused,
    gave_up,
)

POLL_MS = 200
Answer = TypeVar("Answer")


class AioKafka(Client):
    name = "aiokafka"
    lacks = MappingProxyType(
        {
            "null records": "sends no record without both key and value.",
            "know of invalid records": "has no name for the error 87.",
            "describe without creating": "has a broker make the topic that it asks about.",
        }
    )
    alters_incrementally = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._runner = asyncio.Runner()
        self._admin: Any = self._run(self._start(AIOKafkaAdminClient))

    async def _start(self, kind: Any, **settings: Any) -> Any:
        """Made inside of the loop, because aiokafka needs the running loop."""
        started = kind(bootstrap_servers=self._bootstrap, **settings)
        await started.start()
        return started

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return self._runner.run(asyncio.wait_for(work, PATIENCE_SECONDS))
        except KafkaError as error:
            code = getattr(error, "errno", NO_CODE)
            raise Refused(code if isinstance(code, int) else NO_CODE, repr(error)) from error

    def close(self) -> None:
        self._run(self._admin.close())
        self._runner.close()

    def cluster(self) -> Cluster:
        result = self._run(self._admin.describe_cluster())
        return Cluster(
            brokers={broker["node_id"]: (broker["host"], broker["port"]) for broker in result["brokers"]},
            controller=result["controller_id"],
        )

    def topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))
        _check(self._run(self._admin.create_topics([wanted])).topic_errors)

    def delete_topic(self, topic: str) -> None:
        _check(self._run(self._admin.delete_topics([topic])).topic_error_codes)

    def describe_topic(self, topic: str) -> list[Partition]:
        (result,) = self._run(self._admin.describe_topics([topic]))
        _check([(topic, result["error_code"])])
        return sorted(
            Partition(p["partition"], p["leader"], tuple(p["replicas"]), tuple(p["isr"])) for p in result["partitions"]
        )

    def add_partitions(self, topic: str, total: int) -> None:
        self._run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def topic_config(self, topic: str) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_config(self, broker: int) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResourceType.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, str | None]:
        (result,) = self._run(self._admin.describe_configs([resource]))
        ((code, message, _, _, entries),) = result.resources
        _check([(message, code)])
        return {entry[0]: entry[1] for entry in entries}

    def alter_topic_config(self, topic: str, put: Mapping[str, str], drop: Sequence[str] = ()) -> None:
        assert not drop, "what is not put is dropped"
        (result,) = self._run(self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(put))]))
        _check([(message, code) for code, message, *_ in result.resources])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition)
        self._run(self._admin.delete_records({place: RecordsToDelete(before)}))

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[int]:
        return self._run(self._produce(topic, records, codec, acks, idempotent))

    async def _produce(
        self, topic: str, records: Sequence[Record], codec: str, acks: int, idempotent: bool
    ) -> list[int]:
        producer = await self._start(
            AIOKafkaProducer,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        try:
            sent = [
                await producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            await producer.flush()
            result = await asyncio.gather(*sent)
            return [metadata.offset for metadata in result] if acks else []
        finally:
            await producer.stop()

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Read]:
        return self._run(self._consume(TopicPartition(topic, partition), offset, count))

    async def _consume(self, place: TopicPartition, offset: int, count: int) -> list[Read]:
        consumer = await self._start(AIOKafkaConsumer, group_id=None, auto_offset_reset="none")
        try:
            consumer.assign([place])
            if offset == EARLIEST:
                await consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, offset)
            found: list[Read] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(found) < count:
                if time.monotonic() > deadline:
                    gave_up(count, len(found))
                batches = await consumer.getmany(place, timeout_ms=POLL_MS)
                found += [_read(record) for record in batches.get(place, [])]
            return found[:count]
        finally:
            await consumer.stop()

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        return self._run(self._offset_at(TopicPartition(topic, partition), timestamp))

    async def _offset_at(self, place: TopicPartition, timestamp: int) -> int:
        consumer = await self._start(AIOKafkaConsumer)
        try:
            if timestamp == EARLIEST:
                return int((await consumer.beginning_offsets([place]))[place])
            if timestamp == LATEST:
                return int((await consumer.end_offsets([place]))[place])
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            return -1 if found is None else int(found.offset)
        finally:
            await consumer.stop()


def _check(outcomes: Sequence[Any]) -> None:
    for text, code, *_ in outcomes:
        if code:
            raise Refused(code, str(text))


def _read(record: Any) -> Read:
    return Read(
        record.offset, Record(record.key, record.value, tuple(record.headers), record.timestamp, record.partition)
    )
