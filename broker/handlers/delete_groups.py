"""DeleteGroups (42): forgets groups that have no members, with all their offsets. A group that is named twice is told
once.

v2 flexible
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

from ..api import handles
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Result = DeleteGroupsResponse.Result


def refuse(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[Result(group_id=group_id, error_code=error.code) for group_id in dict.fromkeys(request.groups_names)],
    )


@handles(DeleteGroupsRequest, refuse=refuse)
async def delete_groups(broker: "Broker", call: "Call", request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(
        throttle_time_ms=0, results=[await _delete(broker, call, group_id) for group_id in names]
    )


async def _delete(broker: "Broker", call: "Call", group_id: str) -> Result:
    try:
        broker.guard.must(call, Operation.DELETE, GROUP, group_id)
        await broker.groups.answer(group_id, lambda groups, ticket, now: groups.delete_group(ticket, group_id, now))
    except KafkaError as error:
        return Result(group_id=group_id, error_code=error.code)
    return Result(group_id=group_id, error_code=0)
