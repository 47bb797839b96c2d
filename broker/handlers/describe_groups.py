"""DescribeGroups (15): classic groups, with their members. A group that is not there is Dead.

v3 what the asker may do · v4 static members · v5 flexible · v6 a group that is not there is GROUP_ID_NOT_FOUND, with a
message
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

from ..api import handles
from ..security.authorized_operations import GROUP_OPERATIONS
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Group = DescribeGroupsResponse.Group


def refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(group_id, error) for group_id in request.groups])


@handles(DescribeGroupsRequest, refuse=refuse)
async def describe_groups(broker: "Broker", call: "Call", request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    told = [await _describe(broker, call, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in told:
            if not group.error_code:
                group.authorized_operations = broker.guard.operations(  # type: ignore[misc]
                    call, GROUP, group.group_id, GROUP_OPERATIONS
                )
    return DescribeGroupsResponse(groups=told)


async def _describe(broker: "Broker", call: "Call", group_id: str) -> Group:
    try:
        broker.guard.must(call, Operation.DESCRIBE, GROUP, group_id)
        return await broker.groups.look(group_id, lambda groups: groups.describe_group(group_id, call.version))
    except KafkaError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: KafkaError) -> Group:
    return Group(
        error_code=error.code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )
