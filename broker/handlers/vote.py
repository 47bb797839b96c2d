"""Vote (52): a candidate requests this node's vote, or a pre-vote, in an election of the metadata quorum.

A granted vote is durable before the response is sent (K1).

v1 directory ids: a request for the vote of another directory is rejected · v2 pre-votes
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.protocol.errors import NONE, FencedLeaderEpoch, KafkaError
from trioka.protocol.messages.vote import VoteRequest, VoteResponse

from ..api import handles
from ..quorum.rpc import number, to_vote_request
from ..quorum.rpc_checks import check_destination, check_quorum_request, known_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = VoteResponse.Topic


def error_response(request: VoteRequest, error: KafkaError) -> VoteResponse:
    return VoteResponse(error_code=error.code, topics=[])


@handles(VoteRequest, error_response=error_response, cluster_only=True)
def vote(broker: "Broker", call: "Call", request: VoteRequest) -> VoteResponse:
    quorum = broker.quorum
    check_quorum_request(quorum, request.cluster_id, request.topics)
    candidacy, voter = to_vote_request(request)
    if call.version >= 1:
        check_destination(quorum, voter)
    result, actions = quorum.raft.on_vote_request(candidacy, quorum.now_ms())
    quorum.step(actions)
    partition = TopicResult.Partition(
        partition_index=0,
        error_code=FencedLeaderEpoch.code if candidacy.epoch < result.epoch else NONE,
        leader_id=number(result.leader_id),
        leader_epoch=result.epoch,
        vote_granted=result.is_granted,
    )
    return VoteResponse(
        error_code=NONE,
        topics=[TopicResult(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            VoteResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )
