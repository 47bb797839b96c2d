"""Three nodes are killed under load and their directories deleted: the bucket gives back every complete segment."""

import shutil
from pathlib import Path

import trio
from support.broker_cluster import on_cluster, running_cluster
from support.command_line import command
from support.replicated_topics import TOPIC, partition, replica, wait_leader
from support.serving import running_broker
from support.tiered_topics import complete, create_tiered, fetched, fill, tier_of, tiered, until_copied

from trioka.broker.broker import Broker
from trioka.cli.terminal.failure import Exit
from trioka.protocol.batch import headers

ALONE: dict[str, object] = {
    "offsets_topic_replication_factor": 1,
    "remote_fetch_max_wait_ms": 30_000,  # on a machine with other things to do
    "trioka_tier_incarnation": 2,
}


def in_store(store: Path) -> tuple[bytes, int]:
    """The bytes of all complete segments, one behind the other, and the offset behind them."""
    found, end = b"", 0
    for stem in sorted(complete(store)):
        data = (store / f"{stem}.log").read_bytes()
        for header in headers(data):
            assert header.base_offset == end, "the leader has not changed, so segments follow one another"
            end = header.next_offset
        found += data
    return found, end


async def everything(broker: Broker, end: int) -> bytes:
    found, offset = b"", 0
    while offset < end:
        data = await fetched(broker, TOPIC, offset)
        for header in headers(data):
            offset = header.next_offset
        found += data
    return found


async def of_three_nodes(tmp_path: Path, store: Path, end: int, expected: bytes) -> None:
    words = ("tier", "restore", "--from", store.as_uri(), "--yes", "--nodes", "3", "--data", str(tmp_path / "three"))
    ended = await trio.to_thread.run_sync(lambda: command(*words))
    assert ended.code == Exit.OK and "controller.quorum.voters" in ended.stderr, ended.stderr
    settings = tiered(store, trioka_tier_incarnation=2, remote_fetch_max_wait_ms=30_000)
    async with running_cluster(tmp_path / "three", is_formatted=True, **settings) as cluster:
        leader = await wait_leader(cluster)
        await cluster.until(lambda: set(partition(cluster).isr) == {1, 2, 3})
        assert replica(cluster, leader).log.log_end_offset == end
        assert await everything(cluster[leader], end) == expected
        await fill(cluster, 12)  # acks=all, and the metadata of remote segments goes on
        await until_copied(cluster)
        await cluster.until(lambda: len({replica(cluster, node).log.log_end_offset for node in (1, 2, 3)}) == 1)
        for node in (1, 2, 3):  # any of them may lead
            await cluster.stop(node)
            await wait_leader(cluster)
            await fill(cluster, 1)
            await cluster.start(node)
            await cluster.until(lambda: set(partition(cluster).isr) == {1, 2, 3})


@on_cluster
async def test_every_complete_segment_of_a_cluster_that_was_burnt_under_load_comes_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store, trioka_tier_restore_copies_ms=50)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 12)
        await until_copied(cluster)
        await cluster.until(
            lambda: any(
                tier_of(each).copies._metadata_end == each.metadata.offset + 1 for each in cluster.brokers.values()
            )
        )
        topic_id = cluster[1].metadata.topics.by_name(TOPIC)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill, cluster, 10_000)
            before = len(complete(store))
            await cluster.until(lambda: len(complete(store)) > before + 2)
            nursery.cancel_scope.cancel()
        for node in (1, 2, 3):
            await cluster.kill(node)
    for node in (1, 2, 3):
        shutil.rmtree(tmp_path / str(node))
    expected, end = in_store(store)
    assert end > 12 and topic_id is not None

    words = ("tier", "restore", "--from", store.as_uri(), "--yes", "-o", "json", "--data")
    several = shutil.copytree(store, tmp_path / "store-of-three")
    ended = await trio.to_thread.run_sync(lambda: command(*words, str(tmp_path / "new")))
    assert ended.code == Exit.OK, ended.stderr
    (row,) = (row for row in ended.rows if row["topic"] == TOPIC)
    assert (row["start_offset"], row["end_offset"], row["holes"]) == (0, end, [])
    await of_three_nodes(tmp_path, several, end, expected)
    async with running_broker(tmp_path / "new", **tiered(store, **ALONE)) as broker:
        with trio.fail_after(60):
            while (leads := broker.partitions.find(TOPIC, 0)) is None or not leads.leads:
                await trio.sleep(0.01)
            assert leads.topic_id == topic_id.topic_id
            assert await everything(broker, end) == expected
            assert leads.log.log_end_offset == end
