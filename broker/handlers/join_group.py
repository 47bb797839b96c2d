"""JoinGroup (11): a member joins a classic group. The response is sent when all members have joined.

v4 a new member must rejoin with the id it gets (MEMBER_ID_REQUIRED) · v5 static members · v6 flexible · v7 protocol
type, and a nullable protocol name · v8 a reason · v9 the leader may skip the assignment
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import GroupAuthorizationFailed, KafkaError
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

FIRST_VERSION_WITH_PROTOCOL_TYPE: Final = 7


def error_response(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, protocol_name="", leader="", member_id="", members=[])


@handles(JoinGroupRequest, error_response=error_response)
def join_group(broker: "Broker", call: "Call", request: JoinGroupRequest) -> "Response | Pending":
    client = client_of(call)

    def adapt_to_version(response: Response) -> Response:
        assert isinstance(response, JoinGroupResponse)
        if call.version < FIRST_VERSION_WITH_PROTOCOL_TYPE and response.protocol_name is None:
            response.protocol_name = ""  # type: ignore[misc]
        elif call.version >= FIRST_VERSION_WITH_PROTOCOL_TYPE and response.error_code and not response.protocol_name:
            response.protocol_name = None  # type: ignore[misc]
        return response

    if not broker.guard.may(call, AclOperation.READ, GROUP, request.group_id):
        return adapt_to_version(error_response(request, GroupAuthorizationFailed()))
    return broker.groups.submit(
        call,
        request,
        error_response,
        request.group_id,
        lambda groups, request_id, now: groups.join_group(request_id, request, client, now),
        adapt_to_version,
    )
