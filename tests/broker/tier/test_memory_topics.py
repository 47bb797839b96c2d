"""Memory topics that are also in the object store: only what is not there depends on memory."""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.http_scrapes import scraped
from support.replicated_topics import TOPIC, partition, replica, wait_leader
from support.serving import ask
from support.tiered_topics import (
    complete,
    create_tiered,
    fill,
    finished,
    tier_of,
    tiered,
    tiered_end,
    until_copied,
    until_local_start,
)

from trioka.broker.replication import applier
from trioka.broker.tier import memory_restore
from trioka.broker.tier.store.object_store import ObjectStoreError
from trioka.cluster.image.partition import NO_LEADER
from trioka.cluster.remote_log.jobs import RecordNotWritten
from trioka.protocol.batch import headers
from trioka.protocol.errors import NONE
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.fetch import FetchRequest

MEMORY: dict[str, Any] = {"trioka.log.dir.class": "memory", "min.insync.replicas": 2}
UNCLEAN = 1
ALL = (1, 2, 3)


@asynccontextmanager
async def cluster_with_memory(tmp_path: Path, **settings: object) -> AsyncIterator[Cluster]:
    settings_of = {
        node: {
            "log.dirs": f"{tmp_path}/{node},{tmp_path}/memory-{node}",
            "trioka.log.dirs.memory": f"{tmp_path}/memory-{node}",
            "trioka.http.listeners": "127.0.0.1:0",
        }
        for node in ALL
    }
    async with running_cluster(tmp_path, settings_of=settings_of, **tiered(tmp_path / "store", **settings)) as cluster:
        yield cluster


async def lose_everything(cluster: Cluster, tmp_path: Path) -> None:
    for node in ALL:
        await cluster.kill(node)
        shutil.rmtree(tmp_path / f"memory-{node}")
    await cluster.start_all(*ALL)
    await cluster.until(lambda: all(cluster[node].partitions.find(TOPIC, 0) for node in ALL))
    await cluster.until(lambda: len(cluster[1].alive) == len(ALL))


async def elect_unclean(cluster: Cluster) -> int:
    request = ElectLeadersRequest(
        election_type=UNCLEAN,
        topic_partitions=[ElectLeadersRequest.TopicPartition(topic=TOPIC, partitions=[0])],
        timeout_ms=30_000,
    )
    (result,) = (await ask(cluster[1], request, 2)).replica_election_results
    return int(result.partition_result[0].error_code)


async def everything(cluster: Cluster, end: int) -> bytes:
    """The records up to an offset, from the leader; most of them are only in the object store."""
    found, offset = b"", 0
    while offset < end:
        place = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchRequest.Topic(topic=TOPIC, partitions=[place])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        result: Any = (await ask(cluster[await wait_leader(cluster)], request, 12)).responses[0].partitions[0]
        assert result.error_code == NONE, result
        data = bytes(result.records or b"")
        for header in headers(data):
            offset = header.next_offset
        found += data
    return found


def lost_by_metric(cluster: Cluster, leader: int) -> Mapping[str, float]:
    scrape = scraped(cluster[leader])
    return {
        unit: scrape.value(f"trioka_tier_would_be_lost_{unit}", topic=TOPIC) for unit in ("bytes", "records", "seconds")
    }


@on_cluster
async def test_a_node_begins_behind_the_remote_segments(tmp_path: Path) -> None:
    async with cluster_with_memory(tmp_path) as cluster:
        await create_tiered(cluster, **MEMORY)
        await fill(cluster, 12)
        await until_copied(cluster)
        await until_local_start(cluster)
        leader = await wait_leader(cluster)
        log = replica(cluster, leader).log
        lost = lost_by_metric(cluster, leader)
        assert lost["bytes"] == log.segments.active.size
        assert lost["records"] == log.log_end_offset - log.segments.active.base_offset
        assert lost["seconds"] > 0
        emptied = next(node for node in ALL if node != leader)
        await cluster.kill(emptied)
        shutil.rmtree(tmp_path / f"memory-{emptied}")
        await cluster.start(emptied)
        await cluster.until(lambda: set(partition(cluster).isr) == set(ALL))
        assert replica(cluster, emptied).log.local_log_start_offset > 0
        assert replica(cluster, emptied).log.log_end_offset == log.log_end_offset


async def the_loss_is_what_was_not_uploaded(tmp_path: Path, restore: str) -> None:
    async with cluster_with_memory(tmp_path, remote_fetch_max_wait_ms=30_000) as cluster:
        await create_tiered(cluster, **{**MEMORY, "trioka.memory.restore": restore})
        await fill(cluster, 12)
        end = await until_copied(cluster)
        before = await everything(cluster, end)
        leader = await wait_leader(cluster)
        lost = lost_by_metric(cluster, leader)
        log_end, epoch = replica(cluster, leader).log.log_end_offset, partition(cluster).leader_epoch
        segments = complete(tmp_path / "store")
        assert log_end > end > 0

        await lose_everything(cluster, tmp_path)
        if restore == "manual":
            await cluster.until(lambda: not any(map(partition(cluster).may_lead_without_fetching, ALL)))
            assert not partition(cluster).has_leader
            assert await elect_unclean(cluster) == NONE
        await cluster.until(lambda: partition(cluster).has_leader)
        await wait_leader(cluster)
        await cluster.until(lambda: set(partition(cluster).isr) == set(ALL))
        log = replica(cluster, await wait_leader(cluster)).log
        assert log.log_end_offset == end == log_end - lost["records"]
        assert log.epochs.latest_epoch == partition(cluster).leader_epoch > epoch
        assert complete(tmp_path / "store") == segments, "nothing was deleted"
        assert await everything(cluster, end) == before
        restores = [tier_of(cluster[node]).counts.memory_restores for node in ALL]
        assert sum(restores) == 1

        await fill(cluster, 12)
        assert await until_copied(cluster) > end
        await cluster.until(lambda: len({replica(cluster, node).log.log_end_offset for node in ALL}) == 1)
        assert (await everything(cluster, end))[: len(before)] == before
        assert segments <= complete(tmp_path / "store")
        assert len(finished(cluster, 1)) > len(segments)


@pytest.mark.nightly
@on_cluster
async def test_a_topic_that_lost_all_memory_continues_behind_the_object_store_when_an_operator_says_so(
    tmp_path: Path,
) -> None:
    await the_loss_is_what_was_not_uploaded(tmp_path, "manual")


@on_cluster
async def test_a_topic_that_lost_all_memory_continues_behind_the_object_store_by_itself(tmp_path: Path) -> None:
    await the_loss_is_what_was_not_uploaded(tmp_path, "auto")


@on_cluster
async def test_a_partition_has_no_leader_until_the_object_store_says_where_it_ends(tmp_path: Path) -> None:
    async with cluster_with_memory(tmp_path) as cluster:
        await create_tiered(cluster, **MEMORY)
        await fill(cluster, 12)
        end = await until_copied(cluster)
        for node in ALL:
            await cluster.kill(node)
            shutil.rmtree(tmp_path / f"memory-{node}")
        await cluster.start_all(*ALL)
        await cluster.until(lambda: len(cluster[1].alive) == len(ALL))
        await cluster.until(lambda: all(cluster[node].partitions.find(TOPIC, 0) for node in ALL))
        stores = {node: tier_of(cluster[node]).store for node in ALL}
        silent = {node: Silent(store) for node, store in stores.items()}
        for node in ALL:
            tier_of(cluster[node]).store = silent[node]
        assert await elect_unclean(cluster) == NONE
        await cluster.until(lambda: sum(each.asked for each in silent.values()) > 1)  # more than one attempt
        elected = partition(cluster).leader
        assert elected != NO_LEADER
        assert replica(cluster, elected).deferred is not None
        assert not any(replica(cluster, node).leads for node in ALL)
        assert replica(cluster, elected).log.log_end_offset == 0
        for node in ALL:
            tier_of(cluster[node]).store = stores[node]
        await wait_leader(cluster)
        assert replica(cluster, elected).log.log_end_offset == end


class Silent:
    """An object store that answers no read."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def _fail(self, *_: object) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        raise ObjectStoreError("503 Slow Down")

    get = size = _fail


@on_cluster
async def test_a_copy_that_was_complete_but_not_recorded_counts(tmp_path: Path) -> None:
    """The manifest is the commit point: its record was lost with the leader that would have written it."""
    async with cluster_with_memory(tmp_path) as cluster:
        await create_tiered(cluster, **MEMORY)
        await fill(cluster, 6)
        await until_copied(cluster)
        before = tiered_end(cluster, 1)
        for node in ALL:
            tier = tier_of(cluster[node])
            tier.topic.write = failing_after_manifest(tier.topic.write)  # type: ignore[method-assign]
        known = complete(tmp_path / "store")
        await fill(cluster, 6)
        await cluster.until(lambda: len(complete(tmp_path / "store")) > len(known))
        assert tiered_end(cluster, 1) == before
        ends = [end_of(tmp_path / "store", stem) for stem in complete(tmp_path / "store")]
        await lose_everything(cluster, tmp_path)
        assert await elect_unclean(cluster) == NONE
        leader = await wait_leader(cluster)
        assert replica(cluster, leader).log.log_end_offset == max(ends) > before


def failing_after_manifest(write: Any) -> Any:
    """Records that a copy is finished are not written."""

    async def not_finished(about: Any, record: Any, epoch: int) -> bool:
        if getattr(record, "remote_log_segment_state", None) == 1 and hasattr(record, "event_timestamp_ms"):
            raise RecordNotWritten("the broker dies here")
        return bool(await write(about, record, epoch))

    return not_finished


def end_of(store: Path, stem: str) -> int:
    data = (store / f"{stem}.log").read_bytes()
    return max(header.next_offset for header in headers(data))


# -- planted mistakes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "right", "wrong", "names"),
    [
        (applier, "partition.leader_recovery_state is RecoveryState.RECOVERING", "False", ["_is_restored_first"]),
        pytest.param(
            memory_restore, "is_ahead(its_log, archived.lineage)", "True", ["_begin"], marks=pytest.mark.nightly
        ),
    ],
)
def test_an_empty_leader_of_a_tiered_topic_is_noticed(
    module: ModuleType, right: str, wrong: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(module, right, wrong)
    owner = "MetadataApplier" if module is applier else "MemoryRestore"
    for name in names:
        monkeypatch.setattr(getattr(module, owner), name, getattr(getattr(mistaken, owner), name))

    @on_cluster
    async def test() -> None:
        await the_loss_is_what_was_not_uploaded(tmp_path, "auto")

    with pytest.raises((AssertionError, trio.TooSlowError)):
        test()
