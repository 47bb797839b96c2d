"""Heartbeat (12): a member of a classic group says that it is alive.

While its coordinator is being loaded it is told that all is well: nobody's session ends meanwhile.

v3 static members · v4 flexible
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import CoordinatorLoadInProgress, KafkaError
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later


def refuse(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0 if isinstance(error, CoordinatorLoadInProgress) else error.code)


@handles(HeartbeatRequest, refuse=refuse)
def heartbeat(broker: "Broker", call: "Call", request: HeartbeatRequest) -> "Response | Later":
    broker.guard.must(call, Operation.READ, GROUP, request.group_id)
    client = client_of(call)
    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.heartbeat(ticket, request, client, now),
    )
