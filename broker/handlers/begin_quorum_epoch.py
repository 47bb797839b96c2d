"""BeginQuorumEpoch (53): a new leader of the metadata quorum makes itself known.

v1 directories, and where the leader listens
"""

from typing import TYPE_CHECKING

from trioka.cluster.raft_messages import EpochBegun
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import NONE, FencedLeaderEpoch, InvalidRequest, KafkaError
from trioka.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse

from ..api import handles
from ..quorum.rpc import number, only
from ..quorum.rpc_checks import check_addressee, check_quorum_request, known_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = BeginQuorumEpochResponse.Topic


def refuse(request: BeginQuorumEpochRequest, error: KafkaError) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(error_code=error.code, topics=[])


@handles(BeginQuorumEpochRequest, refuse=refuse, for_nodes=True)
def begin_quorum_epoch(broker: "Broker", call: "Call", request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    quorum = broker.quorum
    check_quorum_request(quorum, request.cluster_id, request.topics)
    said = only(only(request.topics).partitions)
    if said.leader_id < 0 or said.leader_epoch < 0:
        raise InvalidRequest("a leader with a negative number")
    if call.version >= 1:
        check_addressee(quorum, ReplicaKey(request.voter_id, said.voter_directory_id))
    begun = EpochBegun(leader=ReplicaKey(said.leader_id), epoch=said.leader_epoch)
    if said.leader_epoch >= quorum.epoch and said.leader_id != quorum.node_id:
        for endpoint in request.leader_endpoints:
            if endpoint.name == quorum.node.controller_names[0]:
                quorum.learn(said.leader_id, endpoint.host, endpoint.port)
    quorum.step(quorum.raft.epoch_begun(begun, quorum.now_ms()))
    partition = Told.Partition(
        partition_index=0,
        error_code=FencedLeaderEpoch.code if said.leader_epoch < quorum.epoch else NONE,
        leader_id=number(quorum.leader_id),
        leader_epoch=quorum.epoch,
    )
    return BeginQuorumEpochResponse(
        error_code=NONE,
        topics=[Told(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            BeginQuorumEpochResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )
