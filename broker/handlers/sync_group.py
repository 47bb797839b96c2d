"""SyncGroup (14): the leader of a classic group hands out the assignment, and everyone receives theirs.

v3 static members · v4 flexible · v5 protocol type and name, which must both be there
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.protocol.errors import InconsistentGroupProtocol, KafkaError
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

FIRST_WITH_PROTOCOL: Final = 5


def refuse(request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")


@handles(SyncGroupRequest, refuse=refuse)
def sync_group(broker: "Broker", call: "Call", request: SyncGroupRequest) -> "Response | Later":
    broker.guard.must(call, Operation.READ, GROUP, request.group_id)
    if call.version >= FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol()
    client = client_of(call)
    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.sync_group(ticket, request, client, now),
    )
