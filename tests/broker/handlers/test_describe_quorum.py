"""DescribeQuorum: who leads the metadata, and how far it has come."""

from pathlib import Path

import pytest
from support.serving import ask, on_trio, running_broker

from trioka.protocol.errors import UnknownTopicOrPartition
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest

Topic = DescribeQuorumRequest.Topic


def request(name: str = "__cluster_metadata", partition: int = 0) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[Topic(topic_name=name, partitions=[Topic.Partition(partition_index=partition)])]
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_one_node_leads_itself(tmp_path: Path, version: int) -> None:
    @on_trio
    async def test() -> None:
        async with running_broker(tmp_path) as broker:
            response = await ask(broker, request(), version)
            end = broker.quorum.log.log_end_offset
        (partition,) = response.topics[0].partitions
        assert (response.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
        assert partition.high_watermark == end
        assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [(1, end)]
        assert partition.observers == []
        assert [node.node_id for node in response.nodes] == ([1] if version >= 2 else [])

    test()


@on_trio
async def test_there_is_one_partition_to_ask_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for requested in (request("orders"), request(partition=1)):
            (partition,) = (await ask(broker, requested, 2)).topics[0].partitions
            assert partition.error_code == UnknownTopicOrPartition.code
