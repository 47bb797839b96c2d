"""DeleteGroups (42): deletes groups without members, including their offsets. A group that is listed twice has one
result.

v2 flexible
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

from ..api import handles
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Result = DeleteGroupsResponse.Result


def error_response(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[Result(group_id=group_id, error_code=error.code) for group_id in dict.fromkeys(request.groups_names)],
    )


@handles(DeleteGroupsRequest, error_response=error_response)
async def delete_groups(broker: "Broker", call: "Call", request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(
        throttle_time_ms=0, results=[await _delete(broker, call, group_id) for group_id in names]
    )


async def _delete(broker: "Broker", call: "Call", group_id: str) -> Result:
    try:
        broker.guard.must(call, AclOperation.DELETE, GROUP, group_id)
        await broker.groups.submit_async(
            group_id, lambda groups, request_id, now: groups.delete_group(request_id, group_id, now)
        )
    except KafkaError as error:
        return Result(group_id=group_id, error_code=error.code)
    return Result(group_id=group_id, error_code=0)
