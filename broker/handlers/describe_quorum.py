"""DescribeQuorum (55): returns the leader, the voters and the observers of the metadata quorum, with their progress.

The only partition is `__cluster_metadata-0`. The leader answers; other nodes forward the request. The leader's own
timestamps are the current time. It knows the progress of other nodes from their fetches; nodes that fetch without being
voters are observers. Voters have directory ids only if the voters are in the log (kraft.version 1); voters from the
configuration have ids only.

v1 timestamps of the last fetch and of the last time a node was caught up · v2 directory ids, endpoints, messages
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.quorum.raft import NEVER, Leader, Progress
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import KafkaError, NotController, UnknownTopicOrPartition
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from trioka.protocol.primitives import NULL_UUID

from ..api import handles
from ..quorum.store import METADATA_PARTITION

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = DescribeQuorumResponse.Topic
Node = DescribeQuorumResponse.Node

UNKNOWN: Final = -1
FIRST_VERSION_WITH_DIRECTORIES: Final = 2


def error_response(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=str(error), topics=[])


@handles(DescribeQuorumRequest, error_response=error_response, forwards=True)
def describe_quorum(broker: "Broker", call: "Call", request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    broker.guard.must(call, AclOperation.DESCRIBE)
    requested = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if requested != [METADATA_PARTITION]:
        return _unknown(request)
    return DescribeQuorumResponse(
        error_code=0,
        error_message="",
        topics=[TopicResult(topic_name=METADATA_PARTITION.topic, partitions=[_partition(broker, call.version)])],
        nodes=_nodes(broker) if call.version >= FIRST_VERSION_WITH_DIRECTORIES else [],
    )


def _partition(broker: "Broker", version: int) -> TopicResult.Partition:
    quorum = broker.quorum
    role, voters = quorum.raft.role, quorum.raft.voters.latest
    if not isinstance(role, Leader):
        raise NotController
    return TopicResult.Partition(
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
    clock_offset_ms = broker.quorum.now_ms() - now_ms  # the quorum uses a monotonic clock
    end, fetched_ms, caught_up_ms = UNKNOWN, UNKNOWN, UNKNOWN
    if replica.matches(broker.quorum.raft.me):
        end, fetched_ms, caught_up_ms = broker.quorum.log.log_end_offset, now_ms, now_ms
    elif progress is not None:
        end, fetched_ms = progress.offset, progress.fetched_ms - clock_offset_ms
        caught_up_ms = UNKNOWN if progress.caught_up_ms == NEVER else progress.caught_up_ms - clock_offset_ms
    return ReplicaState(
        replica_id=replica.id,
        replica_directory_id=replica.directory if version >= FIRST_VERSION_WITH_DIRECTORIES else NULL_UUID,
        log_end_offset=end,
        last_fetch_timestamp=fetched_ms,
        last_caught_up_timestamp=caught_up_ms,
    )


def _nodes(broker: "Broker") -> list[Node]:
    """The known endpoints of the voters."""
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
            TopicResult(
                topic_name=topic.topic_name,
                partitions=[
                    TopicResult.Partition(
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
