"""Three nodes with a tiered topic: closed segments go to the object store and from the disks, and survive leaders."""

from pathlib import Path

from support.broker_cluster import on_cluster, running_cluster
from support.replicated_topics import leader, replica, wait_leader
from support.tiered_topics import closed_end, complete, create_tiered, fill, finished, objects, tiered, until_copied


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
