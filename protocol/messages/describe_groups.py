"""DescribeGroups (15): classic groups, with their members.

v3 the operations that the client may do · v4 static members · v5 flexible · v6 GROUP_ID_NOT_FOUND and a message
"""

from ..primitives import Boolean, Bytes, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: list[String]
    include_authorized_operations: Boolean = field("3+", default=False)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    class Group(Struct):
        class Member(Struct):
            member_id: String
            group_instance_id: String | None = field("4+", default=None, ignorable=True)
            client_id: String
            client_host: String
            member_metadata: Bytes
            member_assignment: Bytes

        error_code: Int16
        error_message: String | None = field("6+", default=None)
        group_id: String
        group_state: String
        protocol_type: String
        protocol_data: String
        members: list[Member]
        authorized_operations: Int32 = field("3+", default=-0x80000000)

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[Group]
