"""Memory topics that are also in the object store: only what is not there depends on memory."""

import shutil
from pathlib import Path
from typing import Any

from support.broker_cluster import on_cluster, running_cluster
from support.http_scrapes import scraped
from support.replicated_topics import TOPIC, partition, replica, wait_leader
from support.serving import ask
from support.tiered_topics import complete, create_tiered, fill, tiered, until_copied, until_local_start

from trioka.protocol.errors import InvalidRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest

MEMORY: dict[str, Any] = {"trioka.log.dir.class": "memory", "min.insync.replicas": 2}
UNCLEAN = 1


@on_cluster
async def test_a_node_begins_behind_the_remote_segments_and_no_election_endangers_them(tmp_path: Path) -> None:
    settings_of = {
        node: {
            "log.dirs": f"{tmp_path}/{node},{tmp_path}/memory-{node}",
            "trioka.log.dirs.memory": f"{tmp_path}/memory-{node}",
            "trioka.http.listeners": "127.0.0.1:0",
        }
        for node in (1, 2, 3)
    }
    async with running_cluster(tmp_path, settings_of=settings_of, **tiered(tmp_path / "store")) as cluster:
        await create_tiered(cluster, **MEMORY)
        await fill(cluster, 12)
        await until_copied(cluster)
        await until_local_start(cluster)
        leader = await wait_leader(cluster)
        log = replica(cluster, leader).log
        assert (
            scraped(cluster[leader]).value("trioka_tier_would_be_lost_bytes", topic=TOPIC) == log.segments.active.size
        )
        lost = next(node for node in (1, 2, 3) if node != leader)
        await cluster.kill(lost)
        shutil.rmtree(tmp_path / f"memory-{lost}")
        await cluster.start(lost)
        await cluster.until(lambda: set(partition(cluster).isr) == {1, 2, 3})
        assert replica(cluster, lost).log.local_log_start_offset > 0
        assert replica(cluster, lost).log.log_end_offset == log.log_end_offset

        segments = complete(tmp_path / "store")
        for node in (1, 2, 3):
            await cluster.kill(node)
            shutil.rmtree(tmp_path / f"memory-{node}")
        await cluster.start_all(1, 2, 3)
        await cluster.until(lambda: all(cluster[node].partitions.find(TOPIC, 0) for node in (1, 2, 3)))
        await cluster.until(lambda: len(cluster[1].alive) == 3)
        request = ElectLeadersRequest(
            election_type=UNCLEAN,
            topic_partitions=[ElectLeadersRequest.TopicPartition(topic=TOPIC, partitions=[0])],
            timeout_ms=30_000,
        )
        (result,) = (await ask(cluster[1], request, 2)).replica_election_results
        assert result.partition_result[0].error_code == InvalidRequest.code
        assert not partition(cluster).has_leader
        assert complete(tmp_path / "store") == segments
