"""BeginQuorumEpoch (53): a new leader of the metadata quorum announces itself.

v1 directory ids, and the leader's endpoints
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.quorum.raft_messages import BeginEpoch
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import NONE, FencedLeaderEpoch, InvalidRequest, KafkaError
from trioka.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse

from ..api import handles
from ..quorum.rpc import number, only
from ..quorum.rpc_checks import check_destination, check_quorum_request, known_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = BeginQuorumEpochResponse.Topic


def error_response(request: BeginQuorumEpochRequest, error: KafkaError) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(error_code=error.code, topics=[])


@handles(BeginQuorumEpochRequest, error_response=error_response, cluster_only=True)
def begin_quorum_epoch(broker: "Broker", call: "Call", request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    quorum = broker.quorum
    check_quorum_request(quorum, request.cluster_id, request.topics)
    announced = only(only(request.topics).partitions)
    if announced.leader_id < 0 or announced.leader_epoch < 0:
        raise InvalidRequest("the leader id or the leader epoch is negative")
    if call.version >= 1:
        check_destination(quorum, ReplicaKey(request.voter_id, announced.voter_directory_id))
    begin_epoch = BeginEpoch(leader=ReplicaKey(announced.leader_id), epoch=announced.leader_epoch)
    if announced.leader_epoch >= quorum.epoch and announced.leader_id != quorum.node_id:
        for endpoint in request.leader_endpoints:
            if endpoint.name == quorum.node.controller_names[0]:
                quorum.learn(announced.leader_id, endpoint.host, endpoint.port)
    quorum.step(quorum.raft.on_begin_epoch(begin_epoch, quorum.now_ms()))
    partition = TopicResult.Partition(
        partition_index=0,
        error_code=FencedLeaderEpoch.code if announced.leader_epoch < quorum.epoch else NONE,
        leader_id=number(quorum.leader_id),
        leader_epoch=quorum.epoch,
    )
    return BeginQuorumEpochResponse(
        error_code=NONE,
        topics=[TopicResult(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            BeginQuorumEpochResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )
