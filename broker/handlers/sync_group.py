"""SyncGroup (14): the leader of a classic group sends the assignments, and each member receives its own.

v3 static members · v4 flexible · v5 protocol type and name, both required
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import InconsistentGroupProtocol, KafkaError
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

FIRST_WITH_PROTOCOL: Final = 5


def error_response(request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")


@handles(SyncGroupRequest, error_response=error_response)
def sync_group(broker: "Broker", call: "Call", request: SyncGroupRequest) -> "Response | Pending":
    broker.guard.must(call, AclOperation.READ, GROUP, request.group_id)
    if call.version >= FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol()
    client = client_of(call)
    return broker.groups.submit(
        call,
        request,
        error_response,
        request.group_id,
        lambda groups, request_id, now: groups.sync_group(request_id, request, client, now),
    )
