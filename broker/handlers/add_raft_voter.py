"""AddRaftVoter (80): adds a voter to the metadata quorum. The node must be a caught-up observer. Its supported versions
are queried at the given endpoints.

v1 ack_when_committed: whether to wait until a majority of the new voters has the change
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import NONE, InvalidRequest, KafkaError
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

from ..api import handles
from ..quorum.rpc_checks import check_cluster
from ..quorum.voters import add_voter

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: AddRaftVoterRequest, error: KafkaError) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error))


@handles(AddRaftVoterRequest, error_response=error_response, forwards=True)
async def add_raft_voter(broker: "Broker", call: "Call", request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    broker.guard.must(call, AclOperation.ALTER)
    check_cluster(broker.quorum, request.cluster_id)
    if request.voter_id < 0:
        raise InvalidRequest(f"voter id {request.voter_id} is negative")
    endpoint = VotersRecord.Voter.Endpoint
    await add_voter(
        broker,
        ReplicaKey(request.voter_id, request.voter_directory_id),
        [endpoint(name=listener.name, host=listener.host, port=listener.port) for listener in request.listeners],
        timeout_s=request.timeout_ms / 1000,
        waits=request.ack_when_committed,
    )
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=NONE, error_message=None)
