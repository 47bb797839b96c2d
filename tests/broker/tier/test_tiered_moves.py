"""A partition whose history is in the object store moves: only what is not there goes from broker to broker."""

from pathlib import Path
from time import time

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.replicated_topics import TOPIC, partition, replica, wait_leader
from support.tiered_topics import closed_end, create_tiered, finished, reassign, tiered, tiered_end

from trioka.protocol.batch import build
from trioka.protocol.errors import NONE
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

MIB = 1 << 20
SEGMENT_BYTES = 2 * MIB
BATCH_BYTES = 500_000
PATIENCE_S = 120.0


async def fill_large(cluster: Cluster, batches: int) -> None:
    async with cluster.asking(await wait_leader(cluster)) as connection:
        for number in range(batches):
            record = Record(0, int(time() * 1000), None, number.to_bytes(8) * (BATCH_BYTES // 8))
            data = ProduceRequest.Topic.Partition(index=0, records=bytes(build([record])))
            topic = ProduceRequest.Topic(name=TOPIC, partition_data=[data])
            response = await connection.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
            assert response.responses[0].partition_responses[0].error_code == NONE


@pytest.mark.parametrize("megabytes", [20, pytest.param(500, marks=pytest.mark.nightly)])
@on_cluster
async def test_a_partition_moves_without_its_history(tmp_path: Path, megabytes: int) -> None:
    """Of 10 GB with 9.9 in the object store less than 200 MB may move: here, what is not in the object store, and a
    fiftieth of the whole."""
    async with running_cluster(tmp_path, **tiered(tmp_path / "store")) as cluster:
        await create_tiered(cluster, on=(1, 2), internal_segment_bytes=SEGMENT_BYTES)
        await fill_large(cluster, megabytes * MIB // BATCH_BYTES)
        node = await wait_leader(cluster)
        await cluster.until(lambda: tiered_end(cluster, node) >= closed_end(cluster, node) > 0, PATIENCE_S)
        log = replica(cluster, node).log
        await cluster.until(lambda: log.local_log_start_offset == closed_end(cluster, node), PATIENCE_S)
        whole = sum(segment.size_bytes for segment in finished(cluster, node))
        assert whole > 0.8 * megabytes * MIB
        before = cluster[3].replication.fetched.bytes
        await reassign(cluster, [3])
        await cluster.until(lambda: partition(cluster).isr == (3,), PATIENCE_S)
        moved = cluster[3].replication.fetched.bytes - before
        assert moved < log.segments.active.size + whole / 50 + MIB
        moved_log = replica(cluster, 3).log
        assert (moved_log.log_start_offset, moved_log.log_end_offset) == (0, log.log_end_offset)
