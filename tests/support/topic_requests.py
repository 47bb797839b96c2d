"""Topics and records in few words, for the tests of handlers."""

from typing import Any

from support.serving import ask

from trioka.broker.broker import Broker
from trioka.protocol.batch import build
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

EARLIEST, LATEST = -2, -1


def topic(name: str, partitions: int = 1, **configs: object) -> CreateTopicsRequest.Topic:
    """`retention_ms=5` is `retention.ms=5`."""
    return CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ],
    )


async def create(broker: Broker, name: str, partitions: int = 1, **configs: object) -> Any:
    (created,) = (await ask(broker, CreateTopicsRequest(topics=[topic(name, partitions, **configs)]), 7)).topics
    assert created.error_code == 0, created
    return created


def producing(name: str, *timestamps: int, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """One batch, a record for each timestamp."""
    records = build([Record(offset, timestamp, b"k", b"v") for offset, timestamp in enumerate(timestamps)])
    data = ProduceRequest.Topic.Partition(index=partition, records=bytes(records))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name=name, partition_data=[data])]
    )


async def produce(broker: Broker, name: str, *timestamps: int, partition: int = 0) -> int:
    """The offset of the first."""
    response = await ask(broker, producing(name, *timestamps, partition=partition), 9)
    (result,) = response.responses[0].partition_responses
    assert result.error_code == 0, result
    return int(result.base_offset)


async def told_of(broker: Broker, *names: str, version: int = 12) -> list[Any]:
    """The Metadata response for these topics, or for all."""
    topics = [MetadataRequest.Topic(name=name) for name in names] if names else None
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return list((await ask(broker, request, version)).topics)


async def offset_at(broker: Broker, name: str, timestamp: int, *, partition: int = 0, version: int = 11) -> int:
    requested = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=name, partitions=[requested])])
    (result,) = (await ask(broker, request, version)).topics[0].partitions
    assert result.error_code == 0, result
    return int(result.offset)
