"""DescribeQuorum (55): the metadata quorum: who leads it, who votes, and how far each has come.

There is one partition to ask for, `__cluster_metadata-0`, and it is asked of the leader: others pass the question on.
The leader itself is always up to date: its times are now. Of the others it knows what their fetches say; whoever
fetches and does not vote is an observer. A voter has a directory only where the log says who votes (kraft.version 1);
voters of the configuration are known by their number.

v1 times of the last fetch and of the last catching up · v2 directories, endpoints, messages
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.cluster.raft import NEVER, Leader, Progress
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import KafkaError, NotController, UnknownTopicOrPartition
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from trioka.protocol.primitives import NULL_UUID

from ..api import handles
from ..quorum.driver import METADATA_PARTITION

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = DescribeQuorumResponse.Topic
Node = DescribeQuorumResponse.Node

UNKNOWN: Final = -1
FIRST_VERSION_WITH_DIRECTORIES: Final = 2


def refuse(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=str(error), topics=[])


@handles(DescribeQuorumRequest, refuse=refuse, forwards=True)
def describe_quorum(broker: "Broker", call: "Call", request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    broker.guard.must(call, Operation.DESCRIBE)
    asked = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if asked != [METADATA_PARTITION]:
        return _unknown(request)
    return DescribeQuorumResponse(
        error_code=0,
        error_message="",
        topics=[Told(topic_name=METADATA_PARTITION.topic, partitions=[_partition(broker, call.version)])],
        nodes=_nodes(broker) if call.version >= FIRST_VERSION_WITH_DIRECTORIES else [],
    )


def _partition(broker: "Broker", version: int) -> Told.Partition:
    quorum = broker.quorum
    role, voters = quorum.raft.role, quorum.raft.voters.latest
    if not isinstance(role, Leader):
        raise NotController
    return Told.Partition(
        partition_index=METADATA_PARTITION.partition,
        error_code=0,
        error_message="",
        leader_id=quorum.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_state(broker, voter, role.progress.get(voter), version) for voter in voters],
        observers=[
            _state(broker, key, progress, version)
            for key, progress in sorted(role.progress.items())
            if key not in voters
        ],
    )


def _state(broker: "Broker", replica: ReplicaKey, progress: Progress | None, version: int) -> ReplicaState:
    now_ms = broker.clock.now_ms()
    ago_ms = broker.quorum.now_ms() - now_ms  # the quorum reckons with a clock that never goes back
    end, fetched_ms, caught_up_ms = UNKNOWN, UNKNOWN, UNKNOWN
    if replica.matches(broker.quorum.raft.me):
        end, fetched_ms, caught_up_ms = broker.quorum.log.log_end_offset, now_ms, now_ms
    elif progress is not None:
        end, fetched_ms = progress.offset, progress.fetched_ms - ago_ms
        caught_up_ms = UNKNOWN if progress.caught_up_ms == NEVER else progress.caught_up_ms - ago_ms
    return ReplicaState(
        replica_id=replica.id,
        replica_directory_id=replica.directory if version >= FIRST_VERSION_WITH_DIRECTORIES else NULL_UUID,
        log_end_offset=end,
        last_fetch_timestamp=fetched_ms,
        last_caught_up_timestamp=caught_up_ms,
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
    name = broker.node.controller_names[0]
    return [
        Node(node_id=voter.id, listeners=[Node.Listener(name=name, host=voter.server.host, port=voter.server.port)])
        for voter in broker.node.voters
    ]


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
