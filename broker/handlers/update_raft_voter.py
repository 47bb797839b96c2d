"""UpdateRaftVoter (82): a voter updates its endpoints and its supported versions of kraft.version."""

from typing import TYPE_CHECKING

from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import NONE, FencedLeaderEpoch, KafkaError, UnknownLeaderEpoch
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse

from ..api import handles
from ..quorum.rpc import number
from ..quorum.rpc_checks import check_cluster, known_endpoints
from ..quorum.voters import update_voter

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call
    from ..quorum.driver import Quorum

LeaderResult = UpdateRaftVoterResponse.CurrentLeader
Voter = VotersRecord.Voter


def error_response(request: UpdateRaftVoterRequest, error: KafkaError) -> UpdateRaftVoterResponse:
    return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=error.code)


@handles(UpdateRaftVoterRequest, error_response=error_response, cluster_only=True)
async def update_raft_voter(broker: "Broker", call: "Call", request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    quorum, error_code = broker.quorum, NONE
    try:
        check_cluster(quorum, request.cluster_id)
        if request.current_leader_epoch < quorum.epoch:
            raise FencedLeaderEpoch()
        if request.current_leader_epoch > quorum.epoch:
            raise UnknownLeaderEpoch()
        feature = request.kraft_version_feature
        await update_voter(
            quorum,
            ReplicaKey(request.voter_id, request.voter_directory_id),
            [Voter.Endpoint(name=e.name, host=e.host, port=e.port) for e in request.listeners],
            Voter.KRaftVersionFeature(
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            ),
        )
    except KafkaError as error:
        error_code = error.code
    return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=error_code, current_leader=_leader(quorum))


def _leader(quorum: "Quorum") -> LeaderResult:
    for node_id, server in known_endpoints(quorum).items():
        return LeaderResult(leader_id=node_id, leader_epoch=quorum.epoch, host=server.host, port=server.port)
    return LeaderResult(leader_id=number(quorum.leader_id), leader_epoch=quorum.epoch, host="", port=-1)
