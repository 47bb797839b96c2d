"""EndQuorumEpoch (54): a leader of the metadata quorum resigns, and says who should follow it.

v0 successors by their numbers · v1 with their directories
"""

from typing import TYPE_CHECKING

from trioka.cluster.raft_messages import EpochEnded
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import NONE, FencedLeaderEpoch, InvalidRequest, KafkaError
from trioka.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse

from ..api import handles
from ..quorum.rpc import number, only
from ..quorum.rpc_checks import check_quorum_request, known_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = EndQuorumEpochResponse.Topic


def refuse(request: EndQuorumEpochRequest, error: KafkaError) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(error_code=error.code, topics=[])


@handles(EndQuorumEpochRequest, refuse=refuse, for_nodes=True)
def end_quorum_epoch(broker: "Broker", call: "Call", request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    quorum = broker.quorum
    check_quorum_request(quorum, request.cluster_id, request.topics)
    said = only(only(request.topics).partitions)
    if said.leader_id < 0 or said.leader_epoch < 0:
        raise InvalidRequest("a leader with a negative number")
    successors = [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in said.preferred_candidates]
    successors += map(ReplicaKey, said.preferred_successors)
    ended = EpochEnded(leader_id=said.leader_id, epoch=said.leader_epoch, successors=tuple(successors))
    quorum.step(quorum.raft.epoch_ended(ended, quorum.now_ms()))
    quorum.poke()
    partition = Told.Partition(
        partition_index=0,
        error_code=FencedLeaderEpoch.code if said.leader_epoch < quorum.epoch else NONE,
        leader_id=number(quorum.leader_id),
        leader_epoch=quorum.epoch,
    )
    return EndQuorumEpochResponse(
        error_code=NONE,
        topics=[Told(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            EndQuorumEpochResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )
