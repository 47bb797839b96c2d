"""AddRaftVoter (80): one more node votes in the metadata quorum. It must follow already, and have caught up. Where it
says that it listens it is asked what it understands.

v1 whether to wait until a majority of the new voters has the change
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import NONE, InvalidRequest, KafkaError
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

from ..api import handles
from ..quorum.rpc_checks import check_cluster
from ..quorum.voters import add_voter

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: AddRaftVoterRequest, error: KafkaError) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error))


@handles(AddRaftVoterRequest, refuse=refuse, forwards=True)
async def add_raft_voter(broker: "Broker", call: "Call", request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    broker.guard.must(call, Operation.ALTER)
    check_cluster(broker.quorum, request.cluster_id)
    if request.voter_id < 0:
        raise InvalidRequest(f"a node has no number {request.voter_id}")
    endpoint = VotersRecord.Voter.Endpoint
    await add_voter(
        broker,
        ReplicaKey(request.voter_id, request.voter_directory_id),
        [endpoint(name=each.name, host=each.host, port=each.port) for each in request.listeners],
        timeout_s=request.timeout_ms / 1000,
        waits=request.ack_when_committed,
    )
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=NONE, error_message=None)
