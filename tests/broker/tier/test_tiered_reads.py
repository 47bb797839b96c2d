"""Consumers and followers of a tiered topic: records come from the object store, the same as they were written."""

from pathlib import Path

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.config_requests import SET, alter
from support.config_requests import TOPIC as RESOURCE
from support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, moto_s3
from support.replicated_topics import TOPIC, fetch, leader, partition, replica, wait_leader
from support.tiered_topics import (
    closed_end,
    create_tiered,
    everything,
    fill,
    finished,
    reassign,
    tier_of,
    tiered,
    tiered_end,
    until_copied,
)

from trioka.broker.metrics.tier import tier_readings
from trioka.broker.tier.tiered_storage import TieredStorage
from trioka.protocol.batch import headers
from trioka.protocol.errors import NONE, KafkaStorageError, OffsetOutOfRange
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

COUNT = 22
ALONE: dict[str, object] = {
    "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
    "remote_fetch_max_wait_ms": 30_000,  # on a machine with other things to do
}


async def until_local_is_deleted(cluster: Cluster, nodes: tuple[int, ...] = (1,)) -> int:
    node = await wait_leader(cluster)
    await cluster.until(lambda: tiered_end(cluster, node) >= closed_end(cluster, node) > 0)
    end = closed_end(cluster, node)
    await cluster.until(lambda: all(replica(cluster, each).log.local_log_start_offset == end for each in nodes))
    return end


async def list_offset(cluster: Cluster, node: int, timestamp: int, version: int = 11) -> tuple[int, int, int, int]:
    """Error, offset, timestamp, epoch."""
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topic = ListOffsetsRequest.Topic(name=TOPIC, partitions=[partition])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic], timeout_ms=30_000)
    async with cluster.asking(node) as connection:
        [result] = (await connection.ask(request, version)).topics[0].partitions
    return result.error_code, result.offset, result.timestamp, result.leader_epoch


@on_cluster
async def test_a_consumer_reads_the_same_bytes_after_the_local_segments_are_gone(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1, **tiered(tmp_path / "store", **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,), local_retention_bytes=1_000_000)
        await fill(cluster, COUNT)
        await until_copied(cluster)
        before = await everything(cluster, 1)
        its_log = replica(cluster, 1).log
        config = its_log.config
        assert await alter(cluster[1], RESOURCE, TOPIC, ("local.retention.bytes", SET, "1")) == NONE
        await until_local_is_deleted(cluster)
        assert its_log.config != config and its_log.local_log_start_offset > 0 == its_log.log_start_offset
        assert await everything(cluster, 1) == before
        assert len(list(headers(before))) == COUNT
        counts = tier_of(cluster[1]).counts.of(TOPIC)
        assert counts.fetched_bytes > 0 and counts.fetch_requests > 0 and not counts.fetch_errors
        metrics = {series.name: samples for series, samples in filter(None, tier_readings(tier_of(cluster[1])))}
        by_topic = metrics["kafka_server_brokertopicmetrics_remotefetchbytes_total"]
        assert [(sample.labels, sample.value) for sample in by_topic] == [
            ({}, counts.fetched_bytes),
            ({"topic": TOPIC}, counts.fetched_bytes),
        ]


@on_cluster
async def test_offsets_are_listed_by_place_and_by_time(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1, **tiered(tmp_path / "store", **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,))
        assert (await list_offset(cluster, 1, -5))[1] == -1
        assert (await list_offset(cluster, 1, -6))[1] == 0
        await fill(cluster, COUNT)
        end = await until_local_is_deleted(cluster)
        assert (await list_offset(cluster, 1, -2))[:2] == (NONE, 0)
        assert (await list_offset(cluster, 1, -4))[:2] == (NONE, end)
        assert (await list_offset(cluster, 1, -5))[:2] == (NONE, end - 1)
        assert (await list_offset(cluster, 1, -6))[:2] == (NONE, end)
        assert (await list_offset(cluster, 1, -1))[:2] == (NONE, COUNT)
        times = [header.base_timestamp for header in headers(await everything(cluster, 1))]
        for offset in (0, 5, end - 1, COUNT - 1):
            first = times.index(next(each for each in times if each >= times[offset]))
            assert (await list_offset(cluster, 1, times[offset]))[1:3] == (first, times[first])
        assert (await list_offset(cluster, 1, times[-1] + 1))[1] == -1


@on_cluster
async def test_a_new_replica_copies_only_what_is_not_in_the_object_store(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **tiered(tmp_path / "store")) as cluster:
        await create_tiered(cluster, on=(1, 2))
        await fill(cluster, COUNT)
        end = await until_local_is_deleted(cluster, (1, 2))
        whole = await everything(cluster, await wait_leader(cluster))
        await reassign(cluster, [1, 2, 3])
        await cluster.until(lambda: cluster[3].partitions.find(TOPIC, 0) is not None)
        await cluster.until(lambda: replica(cluster, 3).log.log_end_offset == COUNT)
        its_log, leaders = replica(cluster, 3).log, replica(cluster, await wait_leader(cluster)).log
        assert (its_log.log_start_offset, its_log.local_log_start_offset) == (0, end)
        assert its_log.epochs.entries == leaders.epochs.entries
        assert cluster[3].replication.fetched.bytes < len(whole) / 2  # of all its partitions
        await reassign(cluster, [3])
        await cluster.until(lambda: replica(cluster, 3).leads)
        assert await everything(cluster, 3) == whole


@on_cluster
async def test_objects_that_are_missing_or_damaged_give_errors_and_no_wrong_bytes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(
        tmp_path, nodes=1, **tiered(store, **ALONE, trioka_tier_missing_policy="fail")
    ) as cluster:
        await create_tiered(cluster, on=(1,))
        await fill(cluster, COUNT)
        await until_local_is_deleted(cluster)
        logs = sorted(store.rglob("*.log"))
        first, second = logs[0].read_bytes(), finished(cluster, 1)[1]
        logs[0].write_bytes(first[:300] + bytes([first[300] ^ 1]) + first[301:])
        result = await fetch(cluster, 1, 0)
        assert result.error_code != NONE and not result.records
        logs[1].unlink()
        result = await fetch(cluster, 1, second.start_offset)
        assert result.error_code == KafkaStorageError.code and not result.records
        logs[0].write_bytes(first)
        assert len(await everything(cluster, 1, finished(cluster, 1)[2].start_offset)) > 0
        result = await fetch(cluster, 1, 0)
        assert result.error_code == NONE and bytes(result.records)


@on_cluster
async def test_an_empty_replica_may_begin_behind_the_last_tiered_offset(tmp_path: Path) -> None:
    settings = tiered(tmp_path / "store", follower_fetch_last_tiered_offset_enable="true")
    async with running_cluster(tmp_path, **settings) as cluster:
        await create_tiered(cluster, on=(1, 2), local_retention_bytes=1_000_000)
        await fill(cluster, COUNT)
        node = await wait_leader(cluster)
        await cluster.until(lambda: tiered_end(cluster, node) >= closed_end(cluster, node) > 0)
        assert replica(cluster, node).log.local_log_start_offset == 0
        await reassign(cluster, [1, 2, 3])
        await cluster.until(lambda: cluster[3].partitions.find(TOPIC, 0) is not None)
        await cluster.until(lambda: replica(cluster, 3).log.log_end_offset == COUNT)
        its_log = replica(cluster, 3).log
        assert (its_log.log_start_offset, its_log.local_log_start_offset) == (0, closed_end(cluster, node))
        await cluster.until(lambda: 3 in partition(cluster).isr)


@on_cluster
async def test_a_replica_that_begins_before_the_metadata_is_loaded_tries_again(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1, **tiered(tmp_path / "store", **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,))

        async def creates_nothing() -> None: ...

        starting = TieredStorage(cluster[1], tier_of(cluster[1]).store, creates_nothing)
        with pytest.raises(KafkaStorageError, match="not loaded yet"):
            await starting.history_at(replica(cluster, 1), 0, 0)


@on_cluster
async def test_records_are_deleted_up_to_an_offset_in_the_object_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, nodes=1, **tiered(store, **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,))
        await fill(cluster, COUNT)
        end = await until_local_is_deleted(cluster)
        whole = await everything(cluster, 1)
        offset = finished(cluster, 1)[1].start_offset + 1
        assert offset < end
        wanted = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
        topic = DeleteRecordsRequest.Topic(name=TOPIC, partitions=[wanted])
        async with cluster.asking(1) as connection:
            response = await connection.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
        assert response.topics[0].partitions[0].low_watermark == offset
        assert (await list_offset(cluster, 1, -2))[:2] == (NONE, offset)
        assert (await fetch(cluster, 1, offset - 1)).error_code == OffsetOutOfRange.code
        assert whole.endswith(await everything(cluster, 1, offset))
        await cluster.until(lambda: finished(cluster, 1)[0].next_offset > offset)
        assert whole.endswith(await everything(cluster, 1, offset))


@on_cluster
async def test_one_fetch_reads_several_partitions_from_the_object_store_and_from_the_disk(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1, **tiered(tmp_path / "store", **ALONE)) as cluster:
        names = ("a", "b", "c")
        for name in names:
            await create_tiered(cluster, name, on=(1,))
            await fill(cluster, COUNT, name)
            await cluster.until(lambda name=name: replica(cluster, 1, name).log.local_log_start_offset > 8)  # type: ignore[misc]
        local = replica(cluster, 1, "c").log.local_log_start_offset
        declared = FetchRequest.Topic
        topics = [
            declared(
                topic_id=replica(cluster, 1, name).topic_id,
                partitions=[
                    declared.Partition(partition=0, fetch_offset=local if name == "c" else 3, partition_max_bytes=1000)
                ],
            )
            for name in names
        ]
        async with cluster.asking(1) as connection:
            response = await connection.ask(FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 13)
        first = [next(headers(bytes(topic.partitions[0].records))).base_offset for topic in response.responses]
        assert first == [3, 3, local]


@on_cluster
async def test_a_consumer_goes_on_reading_when_the_leader_is_killed(tmp_path: Path) -> None:
    settings = tiered(tmp_path / "store", remote_fetch_max_wait_ms=30_000)
    async with running_cluster(tmp_path, **settings) as cluster:
        await create_tiered(cluster)
        await fill(cluster, COUNT)
        await until_local_is_deleted(cluster, (1, 2, 3))
        first = await wait_leader(cluster)
        whole = await everything(cluster, first)
        half = list(headers(whole))[COUNT // 2]
        await cluster.kill(first)
        await cluster.until(lambda: leader(cluster) not in (None, first))
        second = await wait_leader(cluster)
        assert whole[: half.position] + await everything(cluster, second, half.base_offset) == whole
        await cluster.start(first)
        await fill(cluster, COUNT)
        nodes = (1, 2, 3)
        await cluster.until(lambda: {replica(cluster, node).log.log_end_offset for node in nodes} == {2 * COUNT})
        await cluster.until(lambda: len(partition(cluster).isr) == 3)
        again = await everything(cluster, await wait_leader(cluster))
        assert again.startswith(whole) and len(list(headers(again))) == 2 * COUNT
        assert {replica(cluster, node).log.log_start_offset for node in nodes} == {0}
        chains = {tuple(replica(cluster, node).log.epochs.entries) for node in nodes}
        assert len(chains) == 1 and next(iter(chains))[0].start_offset == 0


@on_cluster
async def test_the_end_of_an_epoch_that_is_only_in_the_object_store_is_known(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1, **tiered(tmp_path / "store", **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,))
        await fill(cluster, COUNT)
        await cluster.stop(1)
        await cluster.start(1)
        await wait_leader(cluster)
        border = replica(cluster, 1).log.log_end_offset
        await fill(cluster, COUNT)
        end = await until_local_is_deleted(cluster)
        assert border < end
        entries = replica(cluster, 1).log.epochs.entries
        assert [entry.start_offset for entry in entries] == [0, border]
        wanted = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=entries[0].epoch)
        topic = OffsetForLeaderEpochRequest.Topic(topic=TOPIC, partitions=[wanted])
        async with cluster.asking(1) as connection:
            response = await connection.ask(OffsetForLeaderEpochRequest(topics=[topic]), 4)
        result = response.topics[0].partitions[0]
        assert (result.leader_epoch, result.end_offset) == (entries[0].epoch, border)


@on_cluster
async def test_a_topic_is_read_from_s3(tmp_path: Path) -> None:
    with moto_s3() as endpoint:
        settings = {
            "trioka_tier_endpoint": endpoint,
            "trioka_tier_region": "us-east-1",
            "trioka_tier_access_key": ACCESS_KEY,
            "trioka_tier_secret_key": SECRET_KEY,
        }
        async with running_cluster(
            tmp_path, nodes=1, **tiered(f"s3://{BUCKET}/cluster", **ALONE, **settings)
        ) as cluster:
            await create_tiered(cluster, on=(1,))
            await fill(cluster, COUNT)
            await until_local_is_deleted(cluster)
            assert len(list(headers(await everything(cluster, 1)))) == COUNT
