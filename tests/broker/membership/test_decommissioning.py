"""A node leaves its cluster for good: its replicas go to others, it votes no more, it stops, and it is forgotten."""

from pathlib import Path

import trio
from support.broker_cluster import CHECK_INTERVAL_S, PATIENCE_S, Cluster, on_cluster, running_cluster
from support.serving import ask
from support.topic_requests import producing

from trioka.cluster.image.partition import Partition
from trioka.protocol.errors import (
    NONE,
    BrokerIdNotRegistered,
    NotController,
    NotLeaderOrFollower,
    RequestTimedOut,
    VoterNotFound,
)
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest
from trioka.protocol.schema import Request

LEAVING, COMING = 1, 4
AGAIN = {NotController.code, NotLeaderOrFollower.code, RequestTimedOut.code}


async def query(cluster: Cluster, node: int, request: Request, version: int) -> None:
    """As a person would, on a slow machine: again; what the first try has done is done for the second."""
    with trio.fail_after(PATIENCE_S):
        while (result := await ask(cluster[node], request, version)).error_code in AGAIN:
            await trio.sleep(CHECK_INTERVAL_S)
    assert result.error_code in (NONE, VoterNotFound.code, BrokerIdNotRegistered.code), result


def partition(cluster: Cluster) -> Partition:
    broker = cluster.active or cluster.up[0]
    topic = broker.metadata.topics.by_name("t")
    assert topic is not None
    return topic.partitions[0]


async def produce(cluster: Cluster) -> None:
    """To the current leader, until all in-sync replicas have it."""
    with trio.fail_after(PATIENCE_S):
        while True:
            leaders = [
                node
                for node, broker in cluster.brokers.items()
                if (replica := broker.partitions.find("t", 0)) is not None and replica.leads
            ]
            if leaders:
                response = await ask(cluster[leaders[0]], producing("t", 1, 2, 3, acks=-1), 9)
                if response.responses[0].partition_responses[0].error_code == NONE:
                    return
            await trio.sleep(CHECK_INTERVAL_S)


def ends(cluster: Cluster) -> set[int]:
    found = [broker.partitions.find("t", 0) for broker in cluster.brokers.values()]
    return {replica.log.high_watermark for replica in found if replica is not None}


@on_cluster
async def test_a_node_is_taken_out_while_the_others_go_on(tmp_path: Path) -> None:
    roles = {1: "broker,controller", 2: "broker,controller", 3: "broker,controller", COMING: "broker"}
    async with running_cluster(tmp_path, roles=roles, dynamic=True) as cluster:
        await cluster.until(lambda: all(broker.alive == {1, 2, 3, COMING} for broker in cluster.up))
        wanted = CreateTopicsRequest.Topic
        topic = wanted(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[wanted.Assignment(partition_index=0, broker_ids=[LEAVING, 2, 3])],
            configs=[wanted.Config(name="min.insync.replicas", value="2")],
        )
        made = await ask(cluster[2], CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 7)
        assert made.topics[0].error_code == NONE
        await produce(cluster)
        # Its replicas go to others, and with them its leaderships.
        moved = AlterPartitionReassignmentsRequest.Topic
        there = moved(name="t", partitions=[moved.Partition(partition_index=0, replicas=[COMING, 2, 3])])
        await query(cluster, 2, AlterPartitionReassignmentsRequest(topics=[there]), 1)
        await cluster.until(lambda: sorted(partition(cluster).isr) == [2, 3, COMING])
        await cluster.until(lambda: cluster[LEAVING].partitions.find("t", 0) is None)
        # It votes no more; if it led the metadata, another does.
        directory = cluster[LEAVING].quorum.raft.me.directory
        leave = RemoveRaftVoterRequest(cluster_id=None, voter_id=LEAVING, voter_directory_id=directory)
        await query(cluster, 2, leave, 0)
        await cluster.until(lambda: cluster.active is not None and cluster.active.node_id != LEAVING)
        # It stops, and is forgotten.
        await cluster.stop(LEAVING)
        await query(cluster, 2, UnregisterBrokerRequest(broker_id=LEAVING), 0)
        await cluster.until(
            lambda: all([known.broker_id for known in b.metadata.brokers] == [2, 3, COMING] for b in cluster.up)
        )
        assert all([voter.id for voter in broker.quorum.raft.voters.latest] == [2, 3] for broker in cluster.up)
        await produce(cluster)
        await cluster.until(lambda: len(ends(cluster)) == 1 and min(ends(cluster)) >= 6)
