"""ListGroups (16): the groups that this broker looks after.

v3 flexible · v4 filter by state · v5 filter by type
"""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response, Struct, field


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = field("4+", default=[])
    types_filter: list[String] = field("5+", default=[])


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    class Group(Struct):
        group_id: String
        protocol_type: String
        group_state: String = field("4+", default="", ignorable=True)
        group_type: String = field("5+", default="", ignorable=True)

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    groups: list[Group]
