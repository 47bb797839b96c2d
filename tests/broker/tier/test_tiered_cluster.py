"""Three nodes with a tiered topic: closed segments go to the object store and from the disks, and survive leaders."""

from os import utime
from pathlib import Path

import pytest
import trio
from support.broker_cluster import CHECK_INTERVAL_S, PATIENCE_S, on_cluster, running_cluster
from support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, faulty_s3, moto_s3
from support.replicated_topics import create, fetch, leader, replica, wait_leader
from support.serving import HOST, running_broker
from support.tiered_topics import (
    SEGMENT_BYTES,
    Unavailable,
    closed_end,
    complete,
    create_tiered,
    delete_metadata,
    delete_topic,
    fill,
    finished,
    objects,
    produce_metadata,
    tier_of,
    tiered,
    until_copied,
    until_local_start,
)

from trioka.broker.membership.log_directories import LogDirectoriesOffline
from trioka.broker.tier import segment_losses
from trioka.broker.tier.log_facts import id_of, move_log_start
from trioka.broker.tier.store.ownership import Superseded, incarnation_key
from trioka.cli.client.connection import ReservedPort
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.protocol.batch import headers
from trioka.protocol.errors import InvalidTopic
from trioka.protocol.primitives import uuid_text

IDS = [uuid_text(bytes([number]) * 16) for number in (1, 2, 3)]


def s3_settings(endpoint: str) -> dict[str, object]:
    return {
        "trioka_tier_endpoint": endpoint,
        "trioka_tier_region": "us-east-1",
        "trioka_tier_access_key": ACCESS_KEY,
        "trioka_tier_secret_key": SECRET_KEY,
    }


@on_cluster
async def test_closed_segments_are_copied_and_deleted_locally_on_all_replicas(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 22)
        end = await until_copied(cluster)
        assert end >= 16
        node = await wait_leader(cluster)
        assert len(complete(store)) == len(finished(cluster, node)) == len(objects(store)) / 3
        await cluster.until(
            lambda: all(
                replica(cluster, each).log.local_log_start_offset == closed_end(cluster, node) for each in (1, 2, 3)
            )
        )
        assert {replica(cluster, each).log.log_start_offset for each in (1, 2, 3)} == {0}


@on_cluster
async def test_a_new_leader_goes_on_where_the_killed_one_stopped(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 12)
        before = await until_copied(cluster)
        killed = await wait_leader(cluster)
        await cluster.kill(killed)
        await cluster.until(lambda: leader(cluster) not in (None, killed))
        await fill(cluster, 12)
        after = await until_copied(cluster)
        assert after > before
        node = await wait_leader(cluster)
        covered = 0
        for segment in finished(cluster, node):
            assert segment.start_offset <= covered
            covered = max(covered, segment.next_offset)
        assert covered == after
        assert replica(cluster, node).log.log_start_offset == 0


@on_cluster
async def test_a_deleted_topic_leaves_no_object_even_if_the_leader_dies_with_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 12)
        await until_copied(cluster)
        assert objects(store)
        killed = await wait_leader(cluster)
        await delete_topic(cluster, killed)
        await cluster.kill(killed)
        await cluster.until(lambda: not objects(store))
        await cluster.until(lambda: all(not len(tier_of(each).topic.image) for each in cluster.brokers.values()))


@on_cluster
async def test_a_topic_that_is_deleted_while_the_store_hangs_is_deleted_later(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 12)
        await until_copied(cluster)
        stores = {node: tier_of(broker).store for node, broker in cluster.brokers.items()}
        for node, broker in cluster.brokers.items():
            tier_of(broker).store = Unavailable(stores[node])
        await delete_topic(cluster, 1)
        tiers = [tier_of(broker) for broker in cluster.brokers.values()]
        await cluster.until(lambda: any(tier.counts.total().delete_errors for tier in tiers))
        assert len(complete(store)) == len(objects(store)) / 3 > 0
        for node, broker in cluster.brokers.items():
            tier_of(broker).store = stores[node]
        await cluster.until(lambda: not objects(store))


@on_cluster
async def test_remote_retention_moves_the_log_start_before_it_deletes_objects(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster, retention_bytes=3 * SEGMENT_BYTES)
        await fill(cluster, 40)
        end = await until_copied(cluster)
        node = await wait_leader(cluster)
        its_log = replica(cluster, node).log
        await cluster.until(lambda: len(objects(store)) <= 9)
        await cluster.until(lambda: len(objects(store)) == 3 * len(finished(cluster, node)))
        kept = finished(cluster, node)
        assert its_log.log_start_offset == kept[0].start_offset > 0
        assert kept[-1].next_offset == end
        await cluster.until(
            lambda: {replica(cluster, each).log.log_start_offset for each in (1, 2, 3)} == {kept[0].start_offset}
        )


@on_cluster
async def test_nothing_is_deleted_locally_while_the_store_is_unavailable_and_all_is_copied_afterwards(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        node = await wait_leader(cluster)
        tier = tier_of(cluster[node])
        store_of_leader = tier.store
        tier.store = Unavailable(store_of_leader)
        await fill(cluster, 20)
        await cluster.until(lambda: tier.counts.errors >= 3)
        its_log = replica(cluster, node).log
        assert its_log.local_log_start_offset == 0 and its_log.segments[0].base_offset == 0
        assert not finished(cluster, node)
        tier.store = store_of_leader
        end = await until_copied(cluster)
        await cluster.until(lambda: its_log.local_log_start_offset == end)
        assert len(complete(store)) == len(finished(cluster, node))
        partition = tier.topic.partition(id_of(replica(cluster, node)))
        await cluster.until(lambda: len(partition.segments) == len(partition.finished))


@on_cluster
async def test_a_topic_is_copied_to_s3(tmp_path: Path) -> None:
    with moto_s3() as endpoint:
        settings = s3_settings(endpoint)
        async with running_cluster(tmp_path, **tiered(f"s3://{BUCKET}/cluster", **settings)) as cluster:
            await create_tiered(cluster)
            await fill(cluster, 12)
            end = await until_copied(cluster)
            node = await wait_leader(cluster)
            store = tier_of(cluster[node]).store
            listed = [each for each in await store.list("") if each.key.startswith("t-")]
            assert len(listed) == 3 * len(finished(cluster, node)) > 0
            await cluster.until(lambda: replica(cluster, node).log.local_log_start_offset == end)
            await delete_topic(cluster, node)
            with trio.fail_after(PATIENCE_S):
                while any(each.key.startswith("t-") for each in await store.list("")):
                    await trio.sleep(CHECK_INTERVAL_S)


@on_cluster
async def test_brokers_without_a_replica_of_the_metadata_topic_write_and_replay_it_by_requests(tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = tiered(store, rlmm_config_remote_log_metadata_topic_replication_factor=1)
    async with running_cluster(tmp_path, **settings) as cluster:
        for name in ("a", "b", "c"):  # with replicas of the metadata partition on one node, mostly another one
            await create_tiered(cluster, name)
            await fill(cluster, 8, name)
        for name in ("a", "b", "c"):
            await until_copied(cluster, name)
            await until_local_start(cluster, name)


@on_cluster
async def test_a_broker_without_a_replica_of_the_metadata_topic_replays_what_its_retention_has_left(
    tmp_path: Path,
) -> None:
    settings = tiered(
        tmp_path / "store",
        rlmm_config_remote_log_metadata_topic_replication_factor=1,
        rlmm_config_remote_log_metadata_topic_num_partitions=1,
    )
    async with running_cluster(tmp_path, **settings) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 8)
        await until_copied(cluster)
        node = await wait_leader(cluster, REMOTE_LOG_METADATA_TOPIC)
        move_log_start(cluster[node], replica(cluster, node, REMOTE_LOG_METADATA_TOPIC), 2)
        other = next(each for each in (1, 2, 3) if each != node)
        await cluster.stop(other)
        await cluster.start(other)
        await create_tiered(cluster, "b")
        await fill(cluster, 8, "b")
        await until_copied(cluster, "b")


@on_cluster
async def test_a_client_cannot_write_or_delete_remote_log_metadata(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **tiered(tmp_path / "store")) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 8)
        await until_copied(cluster)
        written = await produce_metadata(cluster)
        assert written == InvalidTopic.code
        deleted = await delete_metadata(cluster)
        assert deleted == InvalidTopic.code


@on_cluster
async def test_a_sweep_deletes_old_orphans_and_keeps_segments_and_what_is_young(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 8)
        await until_copied(cluster)
        known = set(objects(store))
        folder = (store / next(iter(known))).parent
        old = [folder / f"{0:020d}-{segment}.{suffix}" for segment in IDS[:2] for suffix in ("log", "indexes")]
        young = folder / f"{0:020d}-{IDS[2]}.log"
        foreign = folder / "notes.txt"
        for path in (*old, young, foreign):
            path.write_bytes(b"left over")
        for path in (*(store / key for key in known), *old, foreign):
            utime(path, (1, 1))
        swept = 0
        for broker in cluster.brokers.values():
            swept += await tier_of(broker).sweep.sweep()
        assert swept == len(old)
        assert set(objects(store)) == known | {str(path.relative_to(store)) for path in (young, foreign)}
        assert len(complete(store)) == len(finished(cluster, 1))


@on_cluster
async def test_a_sweep_keeps_complete_segments_without_records(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 8)
        await until_copied(cluster)
        for broker in cluster.brokers.values():
            broker_image = tier_of(broker).topic.image
            for partition in broker_image:
                broker_image.forget(partition.id.topic_id, partition.id.partition)
                break
        before = objects(store)
        for key in before:
            utime(store / key, (1, 1))
        for broker in cluster.brokers.values():
            assert await tier_of(broker).sweep.sweep() == 0
        assert objects(store) == before


@on_cluster
async def test_a_sweep_leaves_the_segments_of_another_cluster_alone_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store"
    settings = tiered(store, rlmm_config_remote_log_metadata_topic_replication_factor=1)
    ids = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        async with running_cluster(tmp_path / name, nodes=1, **settings) as cluster:
            ids.append(cluster.cluster_id)
            await create_tiered(cluster, on=(1,))
            await fill(cluster, 12)
            await until_copied(cluster)
            before = objects(store)
            for key in before:
                utime(store / key, (1, 1))
            assert await tier_of(cluster[1]).sweep.sweep() == 0
            assert objects(store) == before
    assert caplog.text.count(f"are of cluster {ids[0]} and are left alone") == 1
    assert "its records are lost" not in caplog.text


@on_cluster
async def test_a_superseded_cluster_neither_copies_nor_deletes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster, retention_bytes=2 * SEGMENT_BYTES)
        await fill(cluster, 8)
        await until_copied(cluster)
        (store / incarnation_key(cluster.cluster_id, 2)).write_text("{}")
        for broker in cluster.brokers.values():
            await tier_of(broker).ownership.check()
        node = await wait_leader(cluster)
        before, segments = objects(store), finished(cluster, node)
        await fill(cluster, 20)
        assert closed_end(cluster, node) > max(segment.next_offset for segment in segments)
        for broker in cluster.brokers.values():
            with pytest.raises(Superseded):
                await tier_of(broker).sweep.sweep()
        assert objects(store) == before
        assert finished(cluster, node) == segments
        assert replica(cluster, node).log.log_start_offset == 0


@on_cluster
async def test_segments_of_a_lost_bucket_that_are_still_local_are_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_losses, "CONFIRM_S", 0.01)
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster, local_retention_bytes=-2)
        await fill(cluster, 12)
        end = await until_copied(cluster)
        node = await wait_leader(cluster)
        before = {segment.segment_id for segment in finished(cluster, node)}
        for key in objects(store):
            (store / key).unlink()
        await tier_of(cluster[node]).sweep.sweep()
        await cluster.until(lambda: len(complete(store)) == len(before))
        await until_copied(cluster)
        after = finished(cluster, node)
        assert not before & {segment.segment_id for segment in after}
        assert after[0].start_offset == 0 and after[-1].next_offset == end
        assert tier_of(cluster[node]).counts.missing_segments == len(before)
        assert replica(cluster, node).log.log_start_offset == 0


@on_cluster
async def test_a_broker_starts_without_its_object_store_and_copies_when_it_answers(tmp_path: Path) -> None:
    port = ReservedPort(HOST)
    more = {
        **s3_settings(f"http://{HOST}:{port.port}"),
        "trioka_tier_request_retries": 0,
        "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
    }
    async with running_cluster(tmp_path, nodes=1, **tiered(f"s3://{BUCKET}/cluster", **more)) as cluster:
        await create_tiered(cluster, on=(1,))
        await fill(cluster, 6)
        await cluster.until(lambda: tier_of(cluster[1]).counts.errors)
        assert not finished(cluster, 1)
        port.close()
        with moto_s3(port.port):
            await until_copied(cluster)


@pytest.mark.parametrize("fault", ["hangs", "denied"])
@on_cluster
async def test_a_store_that_hangs_or_refuses_keeps_nothing_from_clients(tmp_path: Path, fault: str) -> None:
    with faulty_s3(fault) as endpoint:
        more = {
            **s3_settings(endpoint),
            "trioka_tier_request_retries": 0,
            "trioka_tier_request_timeout_ms": 200,
            "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
        }
        async with running_cluster(tmp_path, nodes=1, **tiered("s3://tier/cluster", **more)) as cluster:
            await create_tiered(cluster, on=(1,))
            await create(cluster, "hot", on=(1,))
            await fill(cluster, 12)
            await cluster.until(lambda: tier_of(cluster[1]).counts.errors)
            await fill(cluster, 12, "hot")
            assert len(list(headers(bytes((await fetch(cluster, 1, 0, name="hot")).records)))) == 12
            its_log = replica(cluster, 1).log
            assert (its_log.log_start_offset, its_log.local_log_start_offset, its_log.high_watermark) == (0, 0, 12)
            assert not finished(cluster, 1)


@on_cluster
async def test_a_broker_does_not_use_a_store_without_conditional_writes(tmp_path: Path) -> None:
    with faulty_s3("unconditional") as endpoint:
        settings = tiered("s3://tier/cluster", **s3_settings(endpoint))
        with pytest.raises(ExceptionGroup) as failed:
            async with running_broker(tmp_path, **settings) as broker:  # a store that is slow is tried again
                await broker.stopped.wait()
        assert failed.group_contains(LogDirectoriesOffline, match="does not honour conditional writes")


@on_cluster
async def test_a_sweep_of_a_cluster_without_tiered_topics_leaves_everything(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, nodes=1, **tiered(store)) as cluster:
        await cluster.until(lambda: tier_of(cluster[1]).is_running)
        key = f"t-{uuid_text(bytes(range(16)))}/0/{0:020d}-{IDS[0]}.log"
        (store / key).parent.mkdir(parents=True)
        (store / key).write_bytes(b"of another cluster")
        utime(store / key, (1, 1))
        assert await tier_of(cluster[1]).sweep.sweep() == 0
        assert key in objects(store)
