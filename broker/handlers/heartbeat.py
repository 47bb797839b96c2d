"""Heartbeat (12): keeps the session of a member of a classic group alive.

While the coordinator is loading, heartbeats succeed: sessions do not expire during that time.

v3 static members · v4 flexible
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import CoordinatorLoadInProgress, KafkaError
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending


def error_response(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0 if isinstance(error, CoordinatorLoadInProgress) else error.code)


@handles(HeartbeatRequest, error_response=error_response)
def heartbeat(broker: "Broker", call: "Call", request: HeartbeatRequest) -> "Response | Pending":
    broker.guard.must(call, AclOperation.READ, GROUP, request.group_id)
    client = client_of(call)
    return broker.groups.submit(
        call,
        request,
        error_response,
        request.group_id,
        lambda groups, request_id, now: groups.heartbeat(request_id, request, client, now),
    )
