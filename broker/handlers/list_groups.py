"""ListGroups (16): lists the groups that this broker coordinates.

v3 flexible · v4 filter by state · v5 filter by type. Filters ignore case; unknown states and types match nothing.
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from ..api import handles
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code, groups=[])


@handles(ListGroupsRequest, error_response=error_response)
async def list_groups(broker: "Broker", call: "Call", request: ListGroupsRequest) -> ListGroupsResponse:
    shards = await broker.groups.read_all(lambda groups: groups.list_groups(request))
    groups = [group for shard in shards for group in shard]
    if not broker.guard.may(call, AclOperation.DESCRIBE, is_attempt=False):
        names = [group.group_id for group in groups]
        allowed = broker.guard.allowed(call, AclOperation.DESCRIBE, GROUP, names, is_attempt=False)
        groups = [group for group in groups if group.group_id in allowed]
    return ListGroupsResponse(error_code=0, groups=groups)
