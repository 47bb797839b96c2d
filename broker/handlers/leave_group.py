"""LeaveGroup (13): members leave a classic group.

v3 many at once, static members, and an error for each · v4 flexible · v5 a reason
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later


def refuse(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


@handles(LeaveGroupRequest, refuse=refuse)
def leave_group(broker: "Broker", call: "Call", request: LeaveGroupRequest) -> "Response | Later":
    broker.guard.must(call, Operation.READ, GROUP, request.group_id)
    client = client_of(call)
    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.leave_group(ticket, request, client, now),
    )
