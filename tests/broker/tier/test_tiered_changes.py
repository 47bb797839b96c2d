"""What changes around a tiered topic: restarts, transactions, DeleteRecords, configurations, deletion and creation."""

from pathlib import Path

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.cluster_client import Routed
from support.config_requests import SET, alter
from support.replicated_topics import TOPIC, replica, wait_leader
from support.tiered_topics import (
    Unavailable,
    closed_end,
    complete,
    create_tiered,
    delete_topic,
    fill,
    finished,
    objects,
    tier_of,
    tiered,
    tiered_end,
    until_copied,
    until_local_start,
)
from support.transaction_requests import Writer

from trioka.protocol.errors import NONE
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.storage.cleaning import local_retention

TOPIC_RESOURCE = 2


async def delete_records(cluster: Cluster, offset: int) -> int:
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.Topic(name=TOPIC, partitions=[partition])
    async with cluster.asking(await wait_leader(cluster)) as connection:
        response = await connection.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    return int(response.topics[0].partitions[0].error_code)


@on_cluster
async def test_a_cluster_that_restarts_goes_on_where_it_was(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 10)
        await until_copied(cluster)
        await until_local_start(cluster)
        before = objects(store)
        for node in (1, 2, 3):
            await cluster.kill(node)
        await cluster.start_all(1, 2, 3)
        await until_copied(cluster)
        assert objects(store) == before
        await fill(cluster, 8)
        end = await until_copied(cluster)
        await until_local_start(cluster)
        node = await wait_leader(cluster)
        assert before.keys() < objects(store).keys()
        assert replica(cluster, node).log.log_start_offset == 0
        assert sum(s.end_offset - s.start_offset + 1 for s in finished(cluster, node)) == end


@on_cluster
async def test_a_segment_with_an_open_transaction_is_copied_when_that_has_ended(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **tiered(tmp_path / "store")) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 6)
        writer = Writer(Routed(cluster).ask)
        await writer.init()
        offset = await writer.write(b"undecided", topic=TOPIC)
        await fill(cluster, 12)
        node = await wait_leader(cluster)
        await cluster.until(lambda: tiered_end(cluster, node) > 0)
        log = replica(cluster, node).log
        assert log.last_stable_offset == offset < closed_end(cluster, node)
        assert tiered_end(cluster, node) <= offset
        await writer.abort()
        await until_copied(cluster)
        segment = next(s for s in finished(cluster, node) if s.start_offset <= offset <= s.end_offset)
        assert segment.txn_index_empty  # the marker, and with it the entry of the index, is in a later one


@on_cluster
async def test_deleted_records_go_from_the_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 18)
        await until_copied(cluster)
        node = await wait_leader(cluster)
        kept = finished(cluster, node)[2:]
        assert await delete_records(cluster, kept[0].start_offset + 1) == NONE
        await cluster.until(lambda: [s.segment_id for s in finished(cluster, node)] == [s.segment_id for s in kept])
        await cluster.until(lambda: len(objects(store)) == 3 * len(kept))


@on_cluster
async def test_the_records_of_an_idle_topic_are_copied_and_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_retention, "ROLL_PAUSE_MS", 0)
    store = tmp_path / "store"
    settings = tiered(store, remote_log_manager_task_interval_ms=50)
    async with running_cluster(tmp_path, **settings) as cluster:
        await create_tiered(cluster, local_retention_bytes=-2, local_retention_ms=1)
        await fill(cluster, 3)  # they do not fill a segment
        node = await wait_leader(cluster)
        log = replica(cluster, node).log
        await cluster.until(lambda: tiered_end(cluster, node) == log.local_log_start_offset == 3)
        assert log.log_start_offset == 0
        assert await alter(cluster[node], TOPIC_RESOURCE, TOPIC, ("retention.ms", SET, "1")) == NONE
        await cluster.until(lambda: not objects(store))
        assert log.log_start_offset == 3


@on_cluster
async def test_copying_can_be_disabled_and_enabled_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster, local_retention_bytes=-2)
        await fill(cluster, 8)
        await until_copied(cluster)
        node = await wait_leader(cluster)
        assert await alter(cluster[node], TOPIC_RESOURCE, TOPIC, ("remote.log.copy.disable", SET, "true")) == NONE
        await cluster.until(lambda: replica(cluster, node).log.config.remote_copy_disable)
        before = objects(store)
        await fill(cluster, 12)
        assert objects(store) == before
        assert await alter(cluster[node], TOPIC_RESOURCE, TOPIC, ("remote.log.copy.disable", SET, "false")) == NONE
        await until_copied(cluster)
        assert len(complete(store)) == len(objects(store)) / 3 > len(before) / 3


@on_cluster
async def test_disabling_deletes_from_the_store_and_keeps_what_is_local(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 14)
        await until_copied(cluster)
        await until_local_start(cluster)
        node = await wait_leader(cluster)
        start = replica(cluster, node).log.local_log_start_offset
        changes = (("remote.log.delete.on.disable", SET, "true"), ("remote.storage.enable", SET, "false"))
        assert await alter(cluster[node], TOPIC_RESOURCE, TOPIC, *changes) == NONE
        await cluster.until(lambda: not objects(store))
        assert replica(cluster, node).log.log_start_offset == start > 0
        await fill(cluster, 6)
        assert not objects(store)


@on_cluster
async def test_a_topic_that_is_created_again_while_the_old_one_is_deleted_keeps_its_objects(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 10)
        await until_copied(cluster)
        old = set(objects(store))
        stores = {node: tier_of(broker).store for node, broker in cluster.brokers.items()}
        for node, broker in cluster.brokers.items():
            tier_of(broker).store = Unavailable(stores[node])
        await delete_topic(cluster, 1)
        await cluster.until(lambda: all(not broker.partitions.of_topic(TOPIC) for broker in cluster.brokers.values()))
        await create_tiered(cluster)
        for node, broker in cluster.brokers.items():
            tier_of(broker).store = stores[node]
        await fill(cluster, 10)
        await cluster.until(lambda: not old & objects(store).keys())
        await until_copied(cluster)
        assert len(complete(store)) == len(finished(cluster, await wait_leader(cluster)))
