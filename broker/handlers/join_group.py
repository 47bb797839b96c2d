"""JoinGroup (11): a member joins a classic group, and is answered when all of them have.

v4 a new member is sent back for its id first (MEMBER_ID_REQUIRED) · v5 static members · v6 flexible · v7 the protocol's
type, and no name of a protocol where there is none · v8 a reason · v9 the leader may be told to skip the assignment
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.protocol.errors import GroupAuthorizationFailed, KafkaError
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

FIRST_WITHOUT_A_NAME: Final = 7


def refuse(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, protocol_name="", leader="", member_id="", members=[])


@handles(JoinGroupRequest, refuse=refuse)
def join_group(broker: "Broker", call: "Call", request: JoinGroupRequest) -> "Response | Later":
    client = client_of(call)

    def said(response: Response) -> Response:
        assert isinstance(response, JoinGroupResponse)
        if call.version < FIRST_WITHOUT_A_NAME and response.protocol_name is None:
            response.protocol_name = ""  # type: ignore[misc]
        elif call.version >= FIRST_WITHOUT_A_NAME and response.error_code and not response.protocol_name:
            response.protocol_name = None  # type: ignore[misc]
        return response

    if not broker.guard.may(call, Operation.READ, GROUP, request.group_id):
        return said(refuse(request, GroupAuthorizationFailed()))
    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.join_group(ticket, request, client, now),
        said,
    )
