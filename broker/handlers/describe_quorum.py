"""DescribeQuorum (55): the metadata quorum: who leads it, who votes, and how far each has come.

There is one partition to ask for, `__cluster_metadata-0`, and it is asked of the leader. The leader itself is always up
to date: its times are now. A voter has a directory only where the log says who votes (kraft.version 1); voters of the
configuration are known by their number.

v1 times of the last fetch and of the last catching up · v2 directories, endpoints, messages
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError, UnknownTopicOrPartition
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from trioka.protocol.wire import NULL_UUID

from ..quorum import METADATA_PARTITION
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

Told = DescribeQuorumResponse.Topic
Node = DescribeQuorumResponse.Node


def refuse(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=str(error), topics=[])


@handles(DescribeQuorumRequest, refuse=refuse)
def describe_quorum(broker: "Broker", call: "Call", request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if asked != [METADATA_PARTITION]:
        return _unknown(request)
    return DescribeQuorumResponse(
        error_code=0,
        error_message="",
        topics=[Told(topic_name=METADATA_PARTITION.topic, partitions=[_partition(broker, call.version)])],
        nodes=_nodes(broker) if call.version >= 2 else [],
    )


def _partition(broker: "Broker", version: int) -> Told.Partition:
    quorum, now_ms = broker.quorum, broker.clock.now_ms()
    voters = {broker.node_id: NULL_UUID}
    if quorum.voters is not None:
        voters = {voter.voter_id: voter.voter_directory_id for voter in quorum.voters.voters}
    return Told.Partition(
        partition_index=METADATA_PARTITION.partition,
        error_code=0,
        error_message="",
        leader_id=quorum.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=voter_id,
                replica_directory_id=directory_id if version >= 2 else NULL_UUID,
                log_end_offset=quorum.log.log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            for voter_id, directory_id in voters.items()
        ],
        observers=[],
    )


def _nodes(broker: "Broker") -> list[Node]:
    """Where each voter listens, as far as it is known."""
    if broker.quorum.voters is not None:
        return [
            Node(
                node_id=voter.voter_id,
                listeners=[Node.Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
            )
            for voter in broker.quorum.voters.voters
        ]
    node = broker.node
    if node.voters:
        name = node.controller_names[0]
        return [
            Node(node_id=voter.id, listeners=[Node.Listener(name=name, host=voter.server.host, port=voter.server.port)])
            for voter in node.voters
        ]
    own = [Node.Listener(name=e.name, host=e.host, port=e.port) for e in node.controller_listeners]
    return [Node(node_id=node.id, listeners=own)]


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    error = UnknownTopicOrPartition()
    return DescribeQuorumResponse(
        error_code=0,
        error_message="",
        topics=[
            Told(
                topic_name=topic.topic_name,
                partitions=[
                    Told.Partition(
                        partition_index=partition.partition_index,
                        error_code=error.code,
                        error_message=str(error),
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=[],
                        observers=[],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
