"""LeaveGroup (13): members leave a classic group.

v3 several members, static members, and an error for each · v4 flexible · v5 a reason
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending


def error_response(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


@handles(LeaveGroupRequest, error_response=error_response)
def leave_group(broker: "Broker", call: "Call", request: LeaveGroupRequest) -> "Response | Pending":
    broker.guard.must(call, AclOperation.READ, GROUP, request.group_id)
    client = client_of(call)
    return broker.groups.submit(
        call,
        request,
        error_response,
        request.group_id,
        lambda groups, request_id, now: groups.leave_group(request_id, request, client, now),
    )
