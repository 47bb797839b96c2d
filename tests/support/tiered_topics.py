"""Tiered topics of a cluster in a test: small segments, an object store in a directory, and what lies in it."""

from pathlib import Path
from time import time
from typing import Any

import trio
from support.broker_cluster import CHECK_INTERVAL_S, Cluster
from support.replicated_topics import TOPIC, create, fetch, leader, replica, wait_leader
from support.serving import ask

from trioka.broker.broker import Broker
from trioka.broker.tier.store.object_store import ObjectStoreError
from trioka.broker.tier.tiered_storage import TieredStorage
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.cluster.remote_log.metadata import RemotePartition, RemoteSegment
from trioka.protocol.batch import build, headers
from trioka.protocol.errors import NONE, KafkaStorageError, error_class
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.remote_segment.object_key import ObjectSuffix

SEGMENT_BYTES = 2000
RECORD_BYTES = 400

# Of brokers. The store is named by `tiered`.
SETTINGS: dict[str, object] = {
    "remote_log_storage_system_enable": "true",
    "remote_log_manager_task_retry_backoff_ms": 20,
    "remote_log_manager_task_retry_backoff_max_ms": 200,
    "rlmm_config_remote_log_metadata_topic_num_partitions": 3,
    "log_initial_task_delay_ms": 100_000_000,
}


def tiered(store: Path | str, **more: object) -> dict[str, Any]:
    """Settings of a cluster whose object store is this directory, or this URL."""
    url = f"file://{store}" if isinstance(store, Path) else store
    return {**SETTINGS, "trioka_tier_url": url, **more}


async def create_tiered(
    cluster: Cluster, name: str = TOPIC, *, on: tuple[int, ...] = (1, 2, 3), **configs: object
) -> None:
    wanted: dict[str, object] = {
        "remote_storage_enable": "true",
        "internal_segment_bytes": SEGMENT_BYTES,
        "local_retention_bytes": 1,
        "file_delete_delay_ms": 0,
        "index_interval_bytes": 100,
    }
    await create(cluster, name, on=on, **(wanted | configs))


async def fill(cluster: Cluster, count: int, name: str = TOPIC) -> None:
    """Appends so many records, each in a batch of its own."""
    for number in range(count):
        record = Record(0, int(time() * 1000), None, b"%08d" % number + bytes(RECORD_BYTES - 8))
        data = ProduceRequest.Topic.Partition(index=0, records=bytes(build([record])))
        topic = ProduceRequest.Topic(name=name, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        while True:
            async with cluster.asking(await wait_leader(cluster, name)) as connection:
                response = await connection.ask(request, 9)
            code = response.responses[0].partition_responses[0].error_code
            if code == NONE:
                break
            assert error_class(code).retriable, code
            await trio.sleep(CHECK_INTERVAL_S)


async def everything(cluster: Cluster, node: int, start: int = 0) -> bytes:
    """All batches from an offset on, as fetches return them."""
    end, found, offset = replica(cluster, node).log.high_watermark, b"", start
    while offset < end:
        result = await fetch(cluster, node, offset)
        assert result.error_code == NONE, result
        data = bytes(result.records or b"")
        for header in headers(data):
            assert header.base_offset <= offset <= header.last_offset, "no gap, and nothing twice"
            offset = header.next_offset
        found += data
    return found


async def fetched(broker: Broker, name: str, offset: int) -> bytes:
    """What a Fetch from the offset returns; as clients do, it is repeated while the remote log metadata is read."""
    place = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.Topic(topic=name, partitions=[place])
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    with trio.fail_after(60):
        while True:
            result: Any = (await ask(broker, request, 12)).responses[0].partitions[0]
            if result.error_code != KafkaStorageError.code:
                break
            await trio.sleep(0.01)
    assert result.error_code == NONE, result
    return bytes(result.records or b"")


async def reassign(cluster: Cluster, nodes: list[int]) -> None:
    """Of the first partition."""
    wanted = AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=0, replicas=nodes)
    topic = AlterPartitionReassignmentsRequest.Topic(name=TOPIC, partitions=[wanted])
    request = AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[topic])
    async with cluster.asking(nodes[0]) as connection:
        response = await connection.ask(request, 0)
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (NONE, NONE), response


async def delete_topic(cluster: Cluster, node: int, name: str = TOPIC) -> None:
    request = DeleteTopicsRequest(topics=[], topic_names=[name], timeout_ms=30_000)
    async with cluster.asking(node) as connection:
        response = await connection.ask(request, 5)
    assert response.responses[0].error_code == NONE, response


class Unavailable:
    """An object store that fails every request that changes it."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def _fail(self, *_: object) -> Any:
        await trio.lowlevel.checkpoint()
        raise ObjectStoreError("503 Slow Down")

    create = put = delete = open_writer = _fail


def tier_of(broker: Broker) -> TieredStorage:
    assert broker.tier is not None
    return broker.tier


def remote(cluster: Cluster, node: int, name: str = TOPIC) -> RemotePartition | None:
    """What a node knows of the partition 0 of a topic."""
    broker = cluster[node]
    found = broker.metadata.topics.by_name(name)
    if broker.tier is None or found is None or "topic" not in vars(broker.tier):
        return None
    return broker.tier.topic.image.partition(found.topic_id, 0)


def finished(cluster: Cluster, node: int, name: str = TOPIC) -> list[RemoteSegment]:
    partition = remote(cluster, node, name)
    return [] if partition is None else list(partition.finished)


def tiered_end(cluster: Cluster, node: int, name: str = TOPIC) -> int:
    """The offset behind the last one in the object store, as a node knows it."""
    return max((segment.next_offset for segment in finished(cluster, node, name)), default=0)


def closed_end(cluster: Cluster, node: int, name: str = TOPIC) -> int:
    return replica(cluster, node, name).log.segments.active.base_offset


async def until_copied(cluster: Cluster, name: str = TOPIC) -> int:
    """Waits until all closed segments of the leader are in the object store, and every running node knows it."""
    await cluster.until(lambda: leader(cluster, name) in cluster.brokers)
    node = leader(cluster, name)
    assert node is not None
    await cluster.until(
        lambda: all(tiered_end(cluster, each, name) >= closed_end(cluster, node, name) > 0 for each in cluster.brokers)
    )
    return closed_end(cluster, node, name)


async def until_local_start(cluster: Cluster, name: str = TOPIC) -> None:
    """Waits until no replica has a closed segment on its disk."""
    end = closed_end(cluster, await wait_leader(cluster, name), name)
    logs = [replica(cluster, node, name).log for node in cluster.brokers]
    await cluster.until(lambda: all(log.local_log_start_offset == end for log in logs))


def objects(store: Path, name: str = TOPIC) -> dict[str, int]:
    """The objects of a topic in a directory, by key: their size."""
    found = [path for path in store.rglob("*") if path.is_file() and "#" not in path.name]
    keys = {str(path.relative_to(store)): path.stat().st_size for path in found}
    return {key: size for key, size in keys.items() if key.startswith(f"{name}-")}


def complete(store: Path, name: str = TOPIC) -> set[str]:
    """The segments that have all three objects."""
    stems: dict[str, set[str]] = {}
    for key in objects(store, name):
        stem, _, suffix = key.rpartition(".")
        stems.setdefault(stem, set()).add(suffix)
    return {stem for stem, suffixes in stems.items() if suffixes == {each.value for each in ObjectSuffix}}


async def produce_metadata(cluster: Cluster) -> int:
    """The error for a client that writes to the metadata topic."""
    record = Record(0, 0, None, b"x")
    data = ProduceRequest.Topic.Partition(index=0, records=bytes(build([record])))
    topic = ProduceRequest.Topic(name=REMOTE_LOG_METADATA_TOPIC, partition_data=[data])
    async with cluster.asking(_metadata_leader(cluster)) as connection:
        response = await connection.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
    return int(response.responses[0].partition_responses[0].error_code)


async def delete_metadata(cluster: Cluster) -> int:
    """The error for a client that deletes records of the metadata topic."""
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=-1)
    topic = DeleteRecordsRequest.Topic(name=REMOTE_LOG_METADATA_TOPIC, partitions=[partition])
    async with cluster.asking(_metadata_leader(cluster)) as connection:
        response = await connection.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    return int(response.topics[0].partitions[0].error_code)


def _metadata_leader(cluster: Cluster) -> int:
    topic = cluster[1].metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
    assert topic is not None
    return topic.partitions[0].leader
