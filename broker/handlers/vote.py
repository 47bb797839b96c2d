"""Vote (52): another node asks for this one's vote in an election of the metadata quorum, or whether it would get it.

A vote that is given is durable before the answer leaves (K1).

v1 directories: the vote of another disk than this node's is not this node's to give · v2 pre-votes
"""

from typing import TYPE_CHECKING

from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.protocol.errors import NONE, FencedLeaderEpoch, KafkaError
from trioka.protocol.messages.vote import VoteRequest, VoteResponse

from ..api import handles
from ..quorum.rpc import number, vote_asked
from ..quorum.rpc_checks import check_addressee, check_quorum_request, known_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = VoteResponse.Topic


def refuse(request: VoteRequest, error: KafkaError) -> VoteResponse:
    return VoteResponse(error_code=error.code, topics=[])


@handles(VoteRequest, refuse=refuse, for_nodes=True)
def vote(broker: "Broker", call: "Call", request: VoteRequest) -> VoteResponse:
    quorum = broker.quorum
    check_quorum_request(quorum, request.cluster_id, request.topics)
    asked, voter = vote_asked(request)
    if call.version >= 1:
        check_addressee(quorum, voter)
    told, actions = quorum.raft.vote_asked(asked, quorum.now_ms())
    quorum.step(actions)
    partition = Told.Partition(
        partition_index=0,
        error_code=FencedLeaderEpoch.code if asked.epoch < told.epoch else NONE,
        leader_id=number(told.leader_id),
        leader_epoch=told.epoch,
        vote_granted=told.is_granted,
    )
    return VoteResponse(
        error_code=NONE,
        topics=[Told(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            VoteResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )
