"""EndQuorumEpoch (54): the leader of the metadata quorum resigns and names its preferred successors.

v0 successors by node id · v1 with their directory ids
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.quorum.raft_messages import EndEpoch
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import NONE, FencedLeaderEpoch, InvalidRequest, KafkaError
from trioka.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse

from ..api import handles
from ..quorum.rpc import number, only
from ..quorum.rpc_checks import check_quorum_request, known_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = EndQuorumEpochResponse.Topic


def error_response(request: EndQuorumEpochRequest, error: KafkaError) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(error_code=error.code, topics=[])


@handles(EndQuorumEpochRequest, error_response=error_response, cluster_only=True)
def end_quorum_epoch(broker: "Broker", call: "Call", request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    quorum = broker.quorum
    check_quorum_request(quorum, request.cluster_id, request.topics)
    resigned = only(only(request.topics).partitions)
    if resigned.leader_id < 0 or resigned.leader_epoch < 0:
        raise InvalidRequest("the leader id or the leader epoch is negative")
    successors = [ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in resigned.preferred_candidates]
    successors += map(ReplicaKey, resigned.preferred_successors)
    end_epoch = EndEpoch(leader_id=resigned.leader_id, epoch=resigned.leader_epoch, successors=tuple(successors))
    quorum.step(quorum.raft.on_end_epoch(end_epoch, quorum.now_ms()))
    quorum.wake()
    partition = TopicResult.Partition(
        partition_index=0,
        error_code=FencedLeaderEpoch.code if resigned.leader_epoch < quorum.epoch else NONE,
        leader_id=number(quorum.leader_id),
        leader_epoch=quorum.epoch,
    )
    return EndQuorumEpochResponse(
        error_code=NONE,
        topics=[TopicResult(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            EndQuorumEpochResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )
