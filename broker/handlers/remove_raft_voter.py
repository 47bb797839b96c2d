"""RemoveRaftVoter (81): removes a voter from the metadata quorum. A leader that removes itself resigns when the change
is committed."""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import NONE, KafkaError
from trioka.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

from ..api import handles
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..quorum.rpc_checks import check_cluster
from ..quorum.voters import remove_voter

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: RemoveRaftVoterRequest, error: KafkaError) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error))


@handles(RemoveRaftVoterRequest, error_response=error_response, forwards=True)
async def remove_raft_voter(broker: "Broker", call: "Call", request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    broker.guard.must(call, AclOperation.ALTER)
    check_cluster(broker.quorum, request.cluster_id)
    voter = ReplicaKey(request.voter_id, request.voter_directory_id)
    await remove_voter(broker.quorum, voter, timeout_s=broker.config[REQUEST_TIMEOUT_MS] / 1000)
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=NONE, error_message=None)
