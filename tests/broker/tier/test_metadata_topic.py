"""`__remote_log_metadata` on a broker: a start from a snapshot, and a topic that is deleted and created again."""

import logging
from pathlib import Path

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.config_requests import SET, TOPIC, alter
from support.replicated_topics import replica, wait_leader
from support.tiered_topics import (
    complete,
    create_tiered,
    delete_topic,
    everything,
    fill,
    finished,
    objects,
    remote,
    tier_of,
    tiered,
    tiered_end,
    until_copied,
    until_local_start,
)

from trioka.broker.tier import metadata_snapshots
from trioka.broker.tier.metadata_topic import RemoteLogMetadataTopic
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.protocol.batch import headers

ALONE: dict[str, object] = {"rlmm_config_remote_log_metadata_topic_replication_factor": 1}


def snapshot_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("trioka-remote-log-metadata-*.snapshot"))


async def until_snapshot(cluster: Cluster, directory: Path) -> None:
    """Waits until a snapshot has all that this test needs: it is written at every chance."""
    await cluster.until(lambda: snapshot_files(directory))


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.nightly)])
@on_cluster
async def test_a_broker_starts_with_the_snapshot_and_replays_only_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    monkeypatch.setattr(metadata_snapshots, "FEWEST_RECORDS", 1)
    settings = tiered(tmp_path / "store", rlmm_config_remote_log_metadata_topic_replication_factor=1)
    async with running_cluster(tmp_path, nodes=nodes, **settings) as cluster:
        await create_tiered(cluster, on=tuple(range(1, nodes + 1)))
        await fill(cluster, 30)
        await until_copied(cluster)
        await until_snapshot(cluster, tmp_path)
        node = await wait_leader(cluster)
        before = finished(cluster, node)
        monkeypatch.setattr(metadata_snapshots, "FEWEST_RECORDS", 10**9)
        replayed: list[int] = []
        replay = RemoteLogMetadataTopic._replay

        def count(self: RemoteLogMetadataTopic, partition: object, data: bytes, next_offset: int) -> None:
            replayed.append(next_offset - partition.next_offset)  # type: ignore[attr-defined]
            replay(self, partition, data, next_offset)  # type: ignore[arg-type]

        monkeypatch.setattr(RemoteLogMetadataTopic, "_replay", count)
        for each in range(1, nodes + 1):
            await cluster.kill(each)
        await cluster.start_all(*range(1, nodes + 1))
        await until_copied(cluster)
        node = await wait_leader(cluster)
        assert [s.segment_id for s in finished(cluster, node)] == [s.segment_id for s in before]
        assert sum(replayed) < 2 * len(before) * nodes  # a copy has two records
        await fill(cluster, 8)
        await until_copied(cluster)
        assert len(await everything(cluster, node)) > 0


@on_cluster
async def test_a_damaged_snapshot_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_snapshots, "FEWEST_RECORDS", 1)
    async with running_cluster(tmp_path, nodes=1, **tiered(tmp_path / "store", **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,))
        await fill(cluster, 12)
        await until_copied(cluster)
        await until_snapshot(cluster, tmp_path)
        before = [segment.segment_id for segment in finished(cluster, 1)]
        await cluster.kill(1)
        for path in snapshot_files(tmp_path):
            path.write_bytes(path.read_bytes()[:-5])
        await cluster.start(1)
        await until_copied(cluster)
        assert [segment.segment_id for segment in finished(cluster, 1)] == before


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.nightly)])
@on_cluster
async def test_segments_are_copied_again_after_the_metadata_topic_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata_snapshots, "FEWEST_RECORDS", 1)
    store = tmp_path / "store"
    settings = tiered(store, rlmm_config_remote_log_metadata_topic_replication_factor=nodes)
    caplog.set_level(logging.ERROR, "trioka.tier")
    async with running_cluster(tmp_path, nodes=nodes, **settings) as cluster:
        await create_tiered(cluster, on=tuple(range(1, nodes + 1)), local_retention_bytes=-2)
        await fill(cluster, 12)
        await until_copied(cluster)
        node = await wait_leader(cluster)
        old = {segment.segment_id for segment in finished(cluster, node)}
        first = cluster[node].metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        assert first is not None
        await delete_topic(cluster, node, REMOTE_LOG_METADATA_TOPIC)

        def is_created_again() -> bool:
            topic = cluster[node].metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
            return topic is not None and topic.topic_id != first.topic_id

        await cluster.until(is_created_again)
        await fill(cluster, 12)
        await until_copied(cluster)
        node = await wait_leader(cluster)
        assert not old & {segment.segment_id for segment in finished(cluster, node)}
        assert finished(cluster, node)[0].start_offset == replica(cluster, node).log.log_start_offset == 0
        assert tiered_end(cluster, node) == replica(cluster, node).log.segments.active.base_offset
        assert len(complete(store)) == len(old) + len(finished(cluster, node))
        assert "cannot be read any more" in caplog.text
        for each in range(1, nodes + 1):  # a snapshot of the former topic counts for nothing
            await cluster.kill(each)
        await cluster.start_all(*range(1, nodes + 1))
        await until_copied(cluster)
        assert not old & {segment.segment_id for segment in finished(cluster, await wait_leader(cluster))}


@on_cluster
async def test_a_segment_that_cannot_be_read_leaves_nothing_in_the_store_or_the_topic(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, nodes=1, **tiered(store, **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,), remote_log_copy_disable="true", local_retention_bytes=-2)
        await fill(cluster, 12)
        path = Path(replica(cluster, 1).log.segments[0].log_path)
        data = path.read_bytes()
        path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
        assert not await alter(cluster[1], TOPIC, "t", ("remote.log.copy.disable", SET, "false"))
        counts = tier_of(cluster[1]).counts.of("t")
        await cluster.until(lambda: counts.copy_errors >= 3)
        partition = remote(cluster, 1)
        assert partition is None or not partition.had_segments
        assert not objects(store)
        path.write_bytes(data)
        await until_copied(cluster)
        assert len(complete(store)) == len(objects(store)) / 3


@on_cluster
async def test_producers_that_a_crash_took_from_the_disk_come_from_the_object_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, nodes=1, **tiered(store, **ALONE)) as cluster:
        await create_tiered(cluster, on=(1,))
        await fill(cluster, 12)
        end = await until_copied(cluster)
        await until_local_start(cluster)
        off = ("remote.log.copy.disable", SET, "true"), ("local.retention.bytes", SET, "-2")
        assert not await alter(cluster[1], TOPIC, "t", *off)
        await fill(cluster, 12)
        directory = Path(replica(cluster, 1).log.segments[0].log_path).parent
        await cluster.kill(1)
        for path in directory.glob("*.snapshot"):
            path.unlink()
        await cluster.start(1)
        log = replica(cluster, 1).log
        assert log.local_log_start_offset == end and len(log.segments) > 2
        on = ("remote.log.copy.disable", SET, "false"), ("local.retention.bytes", SET, "1")
        assert not await alter(cluster[1], TOPIC, "t", *on)
        await until_copied(cluster)
        await until_local_start(cluster)
        assert len(complete(store)) == len(objects(store)) / 3
        assert len(list(headers(await everything(cluster, 1)))) == 24
