"""DescribeGroups (15): describes classic groups with their members. The state of a group that does not exist is Dead.

v3 authorized operations · v4 static members · v5 flexible · v6 GROUP_ID_NOT_FOUND, with a message, if a group does not
exist
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

from ..api import handles
from ..security.authorized_operations import GROUP_OPERATIONS
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Group = DescribeGroupsResponse.Group


def error_response(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_error_result(group_id, error) for group_id in request.groups])


@handles(DescribeGroupsRequest, error_response=error_response)
async def describe_groups(broker: "Broker", call: "Call", request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [await _describe(broker, call, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = broker.guard.operations(  # type: ignore[misc]
                    call, GROUP, group.group_id, GROUP_OPERATIONS
                )
    return DescribeGroupsResponse(groups=groups)


async def _describe(broker: "Broker", call: "Call", group_id: str) -> Group:
    try:
        broker.guard.must(call, AclOperation.DESCRIBE, GROUP, group_id)
        return await broker.groups.read(group_id, lambda groups: groups.describe_group(group_id, call.version))
    except KafkaError as error:
        return _error_result(group_id, error)


def _error_result(group_id: str, error: KafkaError) -> Group:
    return Group(
        error_code=error.code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )
