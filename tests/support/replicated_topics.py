"""Topics on a cluster of real brokers inside a test: made, written to as a client does it, and looked at on a node."""

from collections.abc import Sequence
from typing import Any

import trio
from support.broker_cluster import Cluster
from support.serving import ClientConnection
from support.topic_requests import producing

from trioka.broker.replication.partitions import Replica
from trioka.cluster.image.partition import Partition
from trioka.protocol.batch import build, headers, records
from trioka.protocol.errors import NONE, TopicAlreadyExists, error_class
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

TOPIC = "t"


async def create(cluster: Cluster, name: str = TOPIC, *, on: tuple[int, ...] = (1, 2, 3), **configs: object) -> None:
    """A topic of one partition with replicas on these brokers, which all of them have applied."""
    topic = CreateTopicsRequest.Topic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreateTopicsRequest.Topic.Assignment(partition_index=0, broker_ids=list(on))],
        configs=[
            CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    await cluster.until(lambda: all(len(broker.alive) == len(cluster.brokers) for broker in cluster.brokers.values()))
    async with ClientConnection(next(iter(cluster.brokers.values()))) as connection:
        (result,) = (await connection.ask(request, 7)).topics
        # A node that forwards the request repeats it if the controller has moved: the topic may exist by then.
        assert result.error_code in (NONE, TopicAlreadyExists.code), result
    await cluster.until(lambda: all(cluster[node].partitions.find(name, 0) for node in on))


def partition(cluster: Cluster, name: str = TOPIC) -> Partition:
    """As the active controller has it; without one, as any node has it."""
    broker = cluster.active or next(iter(cluster.brokers.values()))
    topic = broker.metadata.topics.by_name(name)
    assert topic is not None
    return topic.partitions[0]


def replica(cluster: Cluster, node: int, name: str = TOPIC) -> Replica:
    return cluster[node].partitions.get(name, 0)


def leader(cluster: Cluster, name: str = TOPIC) -> int | None:
    """The leader, once it knows that it leads."""
    found = [
        node
        for node, broker in cluster.brokers.items()
        if (its := broker.partitions.find(name, 0)) is not None and its.leads
    ]
    return found[0] if len(found) == 1 and partition(cluster, name).leader == found[0] else None


async def wait_leader(cluster: Cluster, name: str = TOPIC) -> int:
    await cluster.until(lambda: leader(cluster, name) is not None)
    found = leader(cluster, name)
    assert found is not None
    return found


async def produce(
    cluster: Cluster, node: int, count: int = 1, *, acks: int = -1, name: str = TOPIC, timeout_ms: int = 60_000
) -> Any:
    """The answer for the partition."""
    async with cluster.asking(node) as connection:
        request = producing(name, *range(count), acks=acks)
        request.timeout_ms = timeout_ms  # type: ignore[misc]
        response = await connection.ask(request, 9)
        return response.responses[0].partition_responses[0]


class Producer:
    """Sends to the current leader, and retries until the records are acknowledged; nothing is written twice."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sequence = 0

    async def send(self, count: int = 1, *, among: Sequence[int] = (1, 2, 3)) -> int:
        """Records with the timestamps 0, 1, …; their first offset."""
        batch = build(
            [Record(number, number, b"k", b"v") for number in range(count)],
            producer_id=4000,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += count
        with trio.fail_after(60):
            while True:
                result = await self._try(bytes(batch), among)
                if result is not None and result.error_code == NONE:
                    return int(result.base_offset)
                assert result is None or error_class(result.error_code).retriable, result
                await trio.sleep(0.02)

    async def _try(self, batch: bytes, among: Sequence[int]) -> Any:
        brokers = self._cluster.brokers
        leaders = [n for n in among if n in brokers and (r := brokers[n].partitions.find(TOPIC, 0)) and r.leads]
        if not leaders:
            return None
        data = ProduceRequest.Topic.Partition(index=0, records=batch)
        topic = ProduceRequest.Topic(name=TOPIC, partition_data=[data])
        try:
            async with self._cluster.asking(leaders[0]) as connection:
                response = await connection.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
        except (OSError, trio.BrokenResourceError):
            return None  # the leader was killed
        return None if response is None else response.responses[0].partition_responses[0]


async def fetch(cluster: Cluster, node: int, offset: int, *, rack: str = "", name: str = TOPIC) -> Any:
    topic = cluster[node].metadata.topics.by_name(name)
    assert topic is not None
    requested = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchRequest.Topic(topic_id=topic.topic_id, partitions=[requested])],
        rack_id=rack,
    )
    async with cluster.asking(node) as connection:
        (result,) = (await connection.ask(request, 13)).responses[0].partitions
        return result


async def read(cluster: Cluster, node: int, offset: int = 0, name: str = TOPIC) -> tuple[int, list[int]]:
    """The error, and the timestamps of the records from an offset on, as a consumer sees them."""
    result = await fetch(cluster, node, offset, name=name)
    data = bytes(result.records or b"")
    return result.error_code, [record.timestamp for header in headers(data) for record in records(data, header)]


def contents(cluster: Cluster, node: int) -> bytes:
    """All bytes of a replica's log, from the same offset on everywhere."""
    log = replica(cluster, node).log
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20)
        assert piece.records is not None
        found, offset = found + bytes(piece.records.read()), piece.next_offset
    return found


def are_the_same(cluster: Cluster, *nodes: int) -> bool:
    """All replicas are in sync, and have the same bytes."""
    return len(partition(cluster).isr) == len(nodes) and len({contents(cluster, node) for node in nodes}) == 1
