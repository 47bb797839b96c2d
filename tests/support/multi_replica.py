"""Partitions of a lone broker whose hand-made image has more replicas; the test plays the other brokers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.serving import ClientConnection, running_broker
from support.topic_requests import create, producing

from trioka.broker.broker import Broker
from trioka.broker.replication.partitions import Replica
from trioka.cluster.image.partition import Partition
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest


def partition_of(broker: Broker, topic: str, index: int = 0) -> Partition:
    known = broker.metadata.topics.by_name(topic)
    assert known is not None
    return known.partitions[index]


def led_by_another(broker: Broker, topic: str, index: int = 0) -> Replica:
    """By a broker that does not exist, in the next epoch."""
    replica = broker.partitions.get(topic, index)
    partition = partition_of(broker, topic, index)
    result = replace(partition, leader=2, isr=(2,), leader_epoch=replica.leader_epoch + 1)
    broker.applier.apply_partition(topic, result)
    return replica


def with_others(
    broker: Broker, topic: str, index: int = 0, *, others: tuple[int, ...] = (2,), in_sync: int = 1
) -> Replica:
    """It stays the leader, in the next epoch, with followers; this many replicas are in sync, including itself."""
    replica = broker.partitions.get(topic, index)
    partition = partition_of(broker, topic, index)
    replicas = (broker.node_id, *others)
    result = replace(
        partition,
        replicas=replicas,
        directories=(partition.directories[0],) * len(replicas),
        isr=replicas[:in_sync],
        leader_epoch=replica.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + replica.leader_epoch + 1,
    )
    broker.applier.apply_partition(topic, result)
    return replica


def alone_again(broker: Broker, topic: str, index: int = 0) -> Replica:
    replica = broker.partitions.get(topic, index)
    partition = partition_of(broker, topic, index)
    broker.applier.apply_partition(topic, replace(partition, leader_epoch=replica.leader_epoch + 1))
    return replica


@asynccontextmanager
async def leading(directory: Path, *, in_sync: int = 2, **settings: object) -> AsyncIterator[tuple[Broker, Replica]]:
    """A broker that leads a partition of brokers 1, 2 and 3 in its image; the test plays the others."""
    async with running_broker(directory, None, **settings) as broker:
        await create(broker, "t")
        yield broker, with_others(broker, "t", others=(2, 3), in_sync=in_sync)


async def follow(
    broker: Broker,
    offset: int,
    *,
    by: int = 2,
    epoch: int | None = None,
    last_epoch: int = -1,
    version: int = 17,
    log_start: int = 0,
    wait_ms: int = 0,
) -> Any:
    """A follower fetches from an offset; returns the answer."""
    replica = broker.partitions.get("t", 0)
    topic = broker.metadata.topics.by_name("t")
    assert topic is not None
    requested = FetchRequest.Topic.Partition(
        partition=0,
        current_leader_epoch=replica.leader_epoch if epoch is None else epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=log_start,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=by, replica_epoch=-1),
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchRequest.Topic(topic_id=topic.topic_id, partitions=[requested])],
    )
    async with ClientConnection(broker) as connection:
        (result,) = (await connection.ask(request, version)).responses[0].partitions
        return result


async def produced(connection: ClientConnection, request: ProduceRequest) -> tuple[int, int]:
    response = await connection.hear(request, 9)
    (result,) = response.responses[0].partition_responses
    return result.error_code, result.base_offset


async def filled(broker: Broker) -> None:
    async with ClientConnection(broker) as producer:
        request = producing("t", *range(10), acks=1)
        await producer.say(request, 9)
        await produced(producer, request)
