"""The active segment is uploaded while it is written: no reader sees it before it is copied; leaders take it along."""

from pathlib import Path
from typing import Any

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.cluster_client import Routed
from support.replicated_topics import leader, replica, wait_leader
from support.tiered_topics import (
    Unavailable,
    complete,
    create_tiered,
    everything,
    fill,
    finished,
    objects,
    tier_of,
    tiered,
    until_copied,
)
from support.transaction_requests import Writer

from trioka.broker.tier import log_facts
from trioka.broker.tier.store import object_store
from trioka.broker.tier.store.object_store import ObjectStoreError
from trioka.broker.tier.store.segment_objects import Upload

PART_BYTES = 1000
SEGMENT_BYTES = 4000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(log_facts, "EARLY_SEGMENT_BYTES", SEGMENT_BYTES)


def uploads(cluster: Cluster, node: int) -> list[Upload]:
    begun = [each.begun for each in tier_of(cluster[node]).early_uploads]
    return [each.upload for each in begun if each is not None]


async def until_sent(cluster: Cluster, node: int, count: int) -> Upload:
    """Waits until so many bytes of an active segment were sent."""
    await cluster.until(lambda: any(each.sent_bytes >= count for each in uploads(cluster, node)))
    return uploads(cluster, node)[0]


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.nightly)])
@on_cluster
async def test_what_was_sent_early_and_the_rest_are_the_segment(tmp_path: Path, nodes: int) -> None:
    store = tmp_path / "store"
    settings = tiered(store, rlmm_config_remote_log_metadata_topic_replication_factor=nodes)
    on = tuple(range(1, nodes + 1))
    async with running_cluster(tmp_path, nodes=nodes, **settings) as cluster:
        await create_tiered(cluster, on=on, internal_segment_bytes=SEGMENT_BYTES, local_retention_bytes=-2)
        await fill(cluster, 5)
        node = await wait_leader(cluster)
        upload = await until_sent(cluster, node, 2 * PART_BYTES)
        assert upload.sent_bytes % PART_BYTES == 0
        assert not objects(store) and not finished(cluster, node)
        await fill(cluster, 20)
        await until_copied(cluster)
        its_log = replica(cluster, node).log
        for segment, local in zip(finished(cluster, node), its_log.segments, strict=False):
            [path] = store.rglob(f"{segment.start_offset:020d}-*.log")
            assert path.read_bytes() == Path(local.log_path).read_bytes()
        assert complete(store) and len(objects(store)) == 3 * len(finished(cluster, node))
        assert not upload.is_open
        assert len(await everything(cluster, node)) > 0


@on_cluster
async def test_the_upload_of_a_leader_that_is_deposed_is_removed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster, internal_segment_bytes=SEGMENT_BYTES)
        await fill(cluster, 5)
        node = await wait_leader(cluster)
        upload = await until_sent(cluster, node, PART_BYTES)
        cluster.isolate(node)
        others = [each for each in (1, 2, 3) if each != node]
        await cluster.until(lambda: cluster[others[0]].metadata.topics.by_name("t").partitions[0].leader in others)  # type: ignore[union-attr]
        cluster.heal()
        await cluster.until(lambda: not upload.is_open and not tier_of(cluster[node]).early_uploads)
        await cluster.until(lambda: leader(cluster) in others)
        await fill(cluster, 15)
        await until_copied(cluster)
        assert len(objects(store)) == 3 * len(complete(store))
        await cluster.until(lambda: len(objects(store)) == 3 * len(finished(cluster, others[0])))


class FailsToWrite:
    """A store whose uploads in parts begin, and fail."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def open_writer(self, key: str, parts_at_once: int) -> Any:
        writer = await self.store.open_writer(key, parts_at_once)

        async def write(data: object) -> None:
            self.failed += 1
            raise ObjectStoreError("503 Slow Down")

        writer.write = write
        return writer


@pytest.mark.parametrize("kind", [FailsToWrite, Unavailable])
@on_cluster
async def test_a_segment_whose_early_upload_failed_is_copied_whole(tmp_path: Path, kind: Any) -> None:
    store = tmp_path / "store"
    settings = tiered(store, rlmm_config_remote_log_metadata_topic_replication_factor=1)
    async with running_cluster(tmp_path, nodes=1, **settings) as cluster:
        await create_tiered(cluster, on=(1,), internal_segment_bytes=SEGMENT_BYTES)
        await fill(cluster, 1)
        tier = tier_of(cluster[1])
        working = tier.store
        tier.store = kind(working)
        await fill(cluster, 6)
        await cluster.until(lambda: not tier.early_uploads)
        tier.store = working
        await fill(cluster, 10)
        await until_copied(cluster)
        assert len(objects(store)) == 3 * len(finished(cluster, 1))
        assert len(await everything(cluster, 1)) > 0


@on_cluster
async def test_a_leader_that_dies_during_an_early_upload_leaves_nothing_that_is_visible(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster, internal_segment_bytes=SEGMENT_BYTES)
        await fill(cluster, 5)
        node = await wait_leader(cluster)
        await until_sent(cluster, node, PART_BYTES)
        await cluster.kill(node)
        await cluster.until(lambda: leader(cluster) not in (None, node))
        await fill(cluster, 15)
        await until_copied(cluster)
        other = await wait_leader(cluster)
        await cluster.until(
            lambda: len(objects(store)) == 3 * len(finished(cluster, other)) == 3 * len(complete(store))
        )
        assert finished(cluster, other)[0].start_offset == 0


@on_cluster
async def test_records_above_the_last_stable_offset_are_not_sent_early(tmp_path: Path) -> None:
    store = tmp_path / "store"
    factors = ("rlmm_config_remote_log_metadata_topic", "transaction_state_log")
    settings = tiered(store, **{f"{name}_replication_factor": 1 for name in factors}, transaction_state_log_min_isr=1)
    async with running_cluster(tmp_path, nodes=1, **settings) as cluster:
        await create_tiered(cluster, on=(1,), internal_segment_bytes=10 * SEGMENT_BYTES)
        await fill(cluster, 4)
        upload = await until_sent(cluster, 1, PART_BYTES)
        writer = Writer(Routed(cluster).ask)
        await writer.init()
        undecided = await writer.write(b"undecided", topic="t")
        await fill(cluster, 12)
        [early] = tier_of(cluster[1]).early_uploads
        assert early.begun is not None and early.begun.scan.next_offset <= undecided
        await writer.abort()
        await fill(cluster, 1)
        await cluster.until(lambda: upload.sent_bytes > 5 * PART_BYTES)
        assert early.begun is not None and early.begun.scan.next_offset > undecided
