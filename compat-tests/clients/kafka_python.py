"""kafka-python, the Python client in Python."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from .client import EARLIEST, NO_CODE, PATIENCE_SECONDS, Client, Cluster, Partition, Read, Record, Refused, gave_up

POLL_MS = 200


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        code = getattr(error, "errno", NO_CODE)
        raise Refused(code if isinstance(code, int) else NO_CODE, repr(error)) from error


class KafkaPython(Client):
    name = "kafka-python"
    lacks = MappingProxyType(
        {
            "null records": "sends no record without both key and value.",
            "null headers": "sends no header without a value.",
        }
    )

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def cluster(self) -> Cluster:
        result = self._admin.describe_cluster()
        return Cluster(
            brokers={broker["broker_id"]: (broker["host"], broker["port"]) for broker in result["brokers"]},
            controller=result["controller_id"],
        )

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}
        with refusals():
            self._admin.create_topics({topic: wanted})

    def delete_topic(self, topic: str) -> None:
        with refusals():
            self._admin.delete_topics([topic])

    def describe_topic(self, topic: str) -> list[Partition]:
        (result,) = self._admin.describe_topics([topic])
        if result["error_code"]:
            raise Refused(result["error_code"], repr(result))
        return sorted(
            Partition(p["partition_index"], p["leader_id"], tuple(p["replica_nodes"]), tuple(p["isr_nodes"]))
            for p in result["partitions"]
        )

    def add_partitions(self, topic: str, total: int) -> None:
        with refusals():
            self._admin.create_partitions({topic: total})

    def topic_config(self, topic: str) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_config(self, broker: int) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResourceType.BROKER, str(broker)))

    def _config(self, resource: Any) -> dict[str, str | None]:
        with refusals():
            result = self._admin.describe_configs([resource], config_filter="all")
        (by_name,) = result.values()
        (keys,) = by_name.values()
        return {key: entry["value"] for key, entry in keys.items()}

    def alter_topic_config(self, topic: str, put: Mapping[str, str], drop: Sequence[str] = ()) -> None:
        changes = dict(put) | dict.fromkeys(drop, (AlterConfigOp.DELETE, None))
        with refusals():
            result = self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changes)])
        # It raises nothing here, and reports an error as a text that contains the code.
        if found := re.match(r"\[Error (-?\d+)\]", result["topic"][topic]):
            raise Refused(int(found[1]), result["topic"][topic])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        with refusals():
            self._admin.delete_records({TopicPartition(topic, partition): before})

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks,
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        try:
            with refusals():
                sent = [
                    producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                producer.flush(PATIENCE_SECONDS)
                result = [future.get(PATIENCE_SECONDS) for future in sent]
                return [metadata.offset for metadata in result] if acks else []
        finally:
            producer.close(PATIENCE_SECONDS)

    def consume(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Read]:
        place = TopicPartition(topic, partition)
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None, auto_offset_reset="none")
        try:
            consumer.assign([place])
            if offset == EARLIEST:
                consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, offset)
            found: list[Read] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            with refusals():
                while len(found) < count:
                    if time.monotonic() > deadline:
                        gave_up(count, len(found))
                    found += [_read(record) for record in consumer.poll(POLL_MS).get(place, [])]
            return found[:count]
        finally:
            consumer.close()

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        with refusals():
            return int(self._admin.list_partition_offsets({place: timestamp})[place].offset)


def _read(record: Any) -> Read:
    return Read(
        record.offset, Record(record.key, record.value, tuple(record.headers), record.timestamp, record.partition)
    )
