"""Memory topics on real brokers: where replicas are placed, and what a machine's restart, which empties the memory
directories, costs."""

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.http_scrapes import scraped
from support.replicated_topics import (
    TOPIC,
    Producer,
    are_the_same,
    contents,
    create,
    leader,
    partition,
    produce,
    read,
    replica,
    wait_leader,
)
from support.serving import ask, on_trio, running_broker
from support.topic_requests import create as create_topic

from trioka.broker.broker import Broker
from trioka.broker.replication import applier
from trioka.cluster.brokers import NOT_REGISTERED
from trioka.cluster.image_delta import PartitionChanged
from trioka.cluster.partition import Partition
from trioka.protocol.batch import headers, records
from trioka.protocol.errors import NONE, InvalidConfig, InvalidRequest
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest

MEMORY: dict[str, Any] = {"trioka.log.dir.class": "memory", "min.insync.replicas": 2}
UNCLEAN = 1
GONE = bytes(range(16))  # the id of a directory that this broker no longer has


def memory_of(tmp_path: Path, node: int) -> Path:
    """A directory on a disk stands for one on tmpfs: tests empty it while the node is stopped."""
    return tmp_path / f"memory-{node}"


def with_memory(tmp_path: Path, *nodes: int) -> dict[int, dict[str, str]]:
    return {
        node: {
            "log.dirs": f"{tmp_path / str(node)},{memory_of(tmp_path, node)}",
            "trioka.log.dirs.memory": str(memory_of(tmp_path, node)),
            "trioka.http.listeners": "127.0.0.1:0",
        }
        for node in nodes
    }


def paths(broker: Broker, name: str) -> set[str]:
    return {directory.path for directory in broker.directories for log in directory.logs if log.topic == name}


def would_be_lost(cluster: Cluster, name: str = TOPIC) -> float:
    """As the leader of the topic reports it."""
    at = leader(cluster, name)
    assert at is not None
    return scraped(cluster[at]).value("trioka_tier_would_be_lost_bytes", topic=name)


async def in_sync(cluster: Cluster, *nodes: int, name: str = TOPIC) -> None:
    await cluster.until(lambda: set(partition(cluster, name).isr) == set(nodes))


async def elect_unclean(cluster: Cluster, node: int, name: str = TOPIC) -> int:
    request = ElectLeadersRequest(
        election_type=UNCLEAN,
        topic_partitions=[ElectLeadersRequest.TopicPartition(topic=name, partitions=[0])],
        timeout_ms=30_000,
    )
    (topic,) = (await ask(cluster[node], request, 2)).replica_election_results
    return int(topic.partition_result[0].error_code)


async def refusal(cluster: Cluster, node: int, name: str = "other", factor: int = 3, **configs: object) -> Any:
    topic = CreateTopicsRequest.Topic(
        name=name,
        num_partitions=1,
        replication_factor=factor,
        assignments=[],
        configs=[
            CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ],
    )
    (result,) = (await ask(cluster[node], CreateTopicsRequest(topics=[topic]), 7)).topics
    return result


@on_cluster
async def test_memory_topics_are_in_memory_directories_and_other_topics_are_not(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, settings_of=with_memory(tmp_path, 1, 2, 3)) as cluster:
        await create(cluster, **MEMORY)
        for number in range(3):
            await create(cluster, f"on-disk-{number}")
        for node, broker in cluster.brokers.items():
            assert paths(broker, TOPIC) == {str(memory_of(tmp_path, node))}
            assert paths(broker, "on-disk-0") | paths(broker, "on-disk-2") == {str(tmp_path / str(node))}
            assert not replica(cluster, node).wants_flush
        moved = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequest.Dir(
                    path=str(tmp_path / "1"),
                    topics=[AlterReplicaLogDirsRequest.Dir.Topic(name=TOPIC, partitions=[0])],
                )
            ]
        )
        (result,) = (await ask(cluster[1], moved, 2)).results
        assert result.partitions[0].error_code == InvalidRequest.code


@on_cluster
async def test_a_node_that_lost_its_memory_copies_the_records_and_is_in_sync_again(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, settings_of=with_memory(tmp_path, 1, 2, 3)) as cluster:
        await create(cluster, **MEMORY)
        await create(cluster, "on-disk")
        producer = Producer(cluster)
        await producer.send(20)
        lost = await wait_leader(cluster)
        await in_sync(cluster, 1, 2, 3)
        before = contents(cluster, lost)
        await cluster.stop(lost)
        shutil.rmtree(memory_of(tmp_path, lost))
        others = {1, 2, 3} - {lost}
        await in_sync(cluster, *others)
        await producer.send(5, among=sorted(others))
        broker = await cluster.start(lost)
        assert broker.identity.previous_broker_epoch != NOT_REGISTERED, "the directory on the disk stopped cleanly"
        await in_sync(cluster, 1, 2, 3)
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        assert contents(cluster, lost).startswith(before)
        in_memory = next(each for each in broker.directories if each.in_memory)
        assert in_memory.meta is not None
        new_id = in_memory.meta.directory_id
        await cluster.until(lambda: partition(cluster).directory(lost) == new_id)


@on_cluster
async def test_a_restart_of_the_process_keeps_what_is_in_memory(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, settings_of=with_memory(tmp_path, 1, 2, 3)) as cluster:
        await create(cluster, **MEMORY)
        await Producer(cluster).send(20)
        await in_sync(cluster, 1, 2, 3)
        identity = cluster[2].identity.directory_ids
        before = contents(cluster, 2)
        await cluster.kill(2)
        broker = await cluster.start(2)
        assert broker.identity.directory_ids == identity
        assert contents(cluster, 2) == before
        await in_sync(cluster, 1, 2, 3)


@on_cluster
async def test_two_of_three_lose_their_memory_at_once_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, settings_of=with_memory(tmp_path, 1, 2, 3)) as cluster:
        await create(cluster, **MEMORY)
        producer = Producer(cluster)
        await producer.send(20)
        await in_sync(cluster, 1, 2, 3)
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        kept = contents(cluster, 3)
        for node in (1, 2):
            await cluster.kill(node)
            shutil.rmtree(memory_of(tmp_path, node))
        await cluster.start_all(1, 2)
        await in_sync(cluster, 1, 2, 3)
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        assert contents(cluster, 1).startswith(kept)
        assert (await read(cluster, await wait_leader(cluster)))[0] == NONE


@on_cluster
async def test_when_all_lose_their_memory_the_loss_equals_the_metric_and_an_operator_elects(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, settings_of=with_memory(tmp_path, 1, 2, 3)) as cluster:
        await create(cluster, **MEMORY)
        await create(cluster, "on-disk", min_insync_replicas=2)
        await Producer(cluster).send(20)
        await produce(cluster, await wait_leader(cluster, "on-disk"), 20, name="on-disk")
        await in_sync(cluster, 1, 2, 3)
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        acknowledged = len(contents(cluster, 1))
        assert would_be_lost(cluster) == acknowledged > 0
        for node in (1, 2, 3):
            await cluster.kill(node)
            shutil.rmtree(memory_of(tmp_path, node))
        await cluster.start_all(1, 2, 3)
        await cluster.until(lambda: all(cluster[node].partitions.find(TOPIC, 0) for node in (1, 2, 3)))
        await wait_leader(cluster, "on-disk")
        state = partition(cluster)
        assert not state.has_leader
        assert not any(state.may_lead_without_fetching(node) for node in (1, 2, 3))
        await cluster.until(lambda: len(cluster[1].alive) == 3)
        ids = {
            node: next(each.meta.directory_id for each in cluster[node].directories if each.in_memory and each.meta)
            for node in (1, 2, 3)
        }
        await cluster.until(lambda: all(partition(cluster).directory(node) == ids[node] for node in (1, 2, 3)))
        assert not partition(cluster).has_leader
        assert await elect_unclean(cluster, 1) == NONE
        await wait_leader(cluster)
        await in_sync(cluster, 1, 2, 3)
        assert contents(cluster, 1) == b""
        await Producer(cluster).send(1)


def appeared(broker: Broker, after: Partition, name: str = "t") -> PartitionChanged:
    topic = broker.metadata.topics.by_name(name)
    assert topic is not None
    return PartitionChanged(topic_id=topic.topic_id, name=name, index=after.index, before=None, after=after)


async def a_replica_in_sync_is_not_recreated(directory: Path) -> None:
    """Whatever the controller is: an empty log must not pass for a complete one."""
    in_memory = f"{directory}/memory"
    async with running_broker(f"{directory}/disk,{in_memory}", trioka_log_dirs_memory=in_memory) as broker:
        await create_topic(broker, "t", trioka_log_dir_class="memory")
        topic = broker.metadata.topics.by_name("t")
        assert topic is not None
        elsewhere = replace(topic.partitions[0], index=7, directories=(GONE,))
        followed = replace(elsewhere, replicas=(1, 2), directories=(GONE, GONE), leader=2)
        for complete in (
            elsewhere,
            replace(followed, isr=(2, 1)),
            replace(followed, isr=(2,), eligible_leader_replicas=(1,)),
            replace(followed, isr=(), leader=-1, last_known_elr=(1,)),
        ):
            await broker.applier.apply([appeared(broker, complete)])
            assert broker.partitions.find("t", 7) is None
        empty = replace(followed, isr=(2,))
        await broker.applier.apply([appeared(broker, empty)])
        assert paths(broker, "t") == {in_memory}
        assert broker.partitions.find("t", 7) is not None
        await create_topic(broker, "on-disk")
        await broker.applier.apply([appeared(broker, empty, "on-disk")])
        assert broker.partitions.find("on-disk", 7) is None


@on_trio
async def test_a_replica_that_counts_as_in_sync_is_not_recreated(tmp_path: Path) -> None:
    await a_replica_in_sync_is_not_recreated(tmp_path)


@on_trio
async def test_a_replica_is_not_recreated_while_a_memory_directory_is_offline(tmp_path: Path) -> None:
    in_memory = f"{tmp_path}/one,{tmp_path}/two"
    async with running_broker(f"{tmp_path}/disk,{in_memory}", trioka_log_dirs_memory=in_memory) as broker:
        await create_topic(broker, "t", trioka_log_dir_class="memory")
        topic = broker.metadata.topics.by_name("t")
        assert topic is not None
        broker.directories[-1].volume.fail(OSError("the directory cannot be read"))
        empty = replace(topic.partitions[0], index=7, replicas=(1, 2), directories=(GONE, GONE), isr=(2,), leader=2)
        await broker.applier.apply([appeared(broker, empty)])
        assert broker.partitions.find("t", 7) is None


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("not change.after.may_lead_without_fetching(self._node_id)", "True"),
        ("in_memory and self._has_all_memory", "self._has_all_memory"),
    ],
)
def test_an_empty_replica_that_passes_for_a_complete_one_is_noticed(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(applier, right, wrong)
    monkeypatch.setattr(applier.MetadataApplier, "_is_offline_replica", mistaken.MetadataApplier._is_offline_replica)

    @on_trio
    async def test() -> None:
        await a_replica_in_sync_is_not_recreated(tmp_path)

    with pytest.raises(AssertionError):
        test()


async def nodes_lose_their_memory_under_load(tmp_path: Path, rounds: int, random: Random) -> None:
    """One node after the other is killed and emptied, as soon as two others are in sync; producing never stops."""
    async with running_cluster(tmp_path, settings_of=with_memory(tmp_path, 1, 2, 3)) as cluster:
        await create(cluster, **MEMORY)
        producer, acknowledged = Producer(cluster), 0
        has_ended = False

        async def produce_on() -> None:
            nonlocal acknowledged
            while not has_ended:
                acknowledged = max(acknowledged, await producer.send(10) + 10)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce_on)
            for _ in range(rounds):
                lost = random.choice([1, 2, 3])
                await cluster.until(lambda: len(set(partition(cluster).isr) - {lost}) == 2)  # noqa: B023
                before = acknowledged
                await cluster.kill(lost)
                shutil.rmtree(memory_of(tmp_path, lost))
                if random.random() < 0.5:
                    await cluster.until(lambda: acknowledged > before)  # noqa: B023
                await cluster.start(lost)
            has_ended = True
        await in_sync(cluster, 1, 2, 3)
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        assert acknowledged >= 10 * rounds
        for node in (1, 2, 3):
            assert replica(cluster, node).log.log_end_offset >= acknowledged
            data = contents(cluster, node)
            found = [record.offset for header in headers(data) for record in records(data, header)]
            assert found == list(range(len(found)))


@on_cluster
async def test_nodes_lose_their_memory_one_after_the_other_under_load(tmp_path: Path) -> None:
    await nodes_lose_their_memory_under_load(tmp_path, 3, Random(7))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_nodes_lose_their_memory_many_times_under_load(seed: int, tmp_path: Path) -> None:
    @on_cluster
    async def test() -> None:
        await nodes_lose_their_memory_under_load(tmp_path, 15, Random(seed))

    test()


@on_cluster
async def test_a_memory_topic_needs_memory_directories_and_two_in_sync_replicas(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, settings_of=with_memory(tmp_path, 1, 2)) as cluster:
        await cluster.until(lambda: all(len(broker.alive) == 3 for broker in cluster.brokers.values()))
        result = await refusal(cluster, 3, factor=3, **MEMORY)
        assert result.error_code, result
        assert "available brokers: 2" in result.error_message
        result = await refusal(cluster, 3, factor=2, trioka_log_dir_class="memory")
        assert result.error_code == InvalidConfig.code
        assert "min.insync.replicas" in result.error_message
        result = await refusal(cluster, 3, name="ok", factor=2, **MEMORY)
        assert result.error_code == NONE, result
        await cluster.until(lambda: set(partition(cluster, "ok").replicas) == {1, 2})
        with pytest.raises(AssertionError, match="broker 3 has no memory log directory"):
            await create(cluster, **MEMORY)
