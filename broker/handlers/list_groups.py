"""ListGroups (16): the groups that this broker looks after.

v3 flexible · v4 filter by state · v5 filter by type. Filters do not mind upper and lower case, and a word that means
nothing matches nothing.
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from ..api import handles
from ..security.guard import GROUP

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code, groups=[])


@handles(ListGroupsRequest, refuse=refuse)
async def list_groups(broker: "Broker", call: "Call", request: ListGroupsRequest) -> ListGroupsResponse:
    found = await broker.groups.look_at_all(lambda groups: groups.list_groups(request))
    groups = [group for some in found for group in some]
    if not broker.guard.may(call, Operation.DESCRIBE, is_attempt=False):
        names = [group.group_id for group in groups]
        allowed = broker.guard.allowed(call, Operation.DESCRIBE, GROUP, names, is_attempt=False)
        groups = [group for group in groups if group.group_id in allowed]
    return ListGroupsResponse(error_code=0, groups=groups)
