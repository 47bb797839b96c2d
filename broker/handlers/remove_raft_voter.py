"""RemoveRaftVoter (81): a node does not vote in the metadata quorum any more. If it leads, it resigns when that is
committed."""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import NONE, KafkaError
from trioka.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

from ..api import handles
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..quorum.rpc_checks import check_cluster
from ..quorum.voters import remove_voter

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: RemoveRaftVoterRequest, error: KafkaError) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error))


@handles(RemoveRaftVoterRequest, refuse=refuse, forwards=True)
async def remove_raft_voter(broker: "Broker", call: "Call", request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    broker.guard.must(call, Operation.ALTER)
    check_cluster(broker.quorum, request.cluster_id)
    voter = ReplicaKey(request.voter_id, request.voter_directory_id)
    await remove_voter(broker.quorum, voter, timeout_s=broker.config[REQUEST_TIMEOUT_MS] / 1000)
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=NONE, error_message=None)
