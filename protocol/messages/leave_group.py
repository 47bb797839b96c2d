"""LeaveGroup (13): members leave a classic group.

v3 many at once, static members · v4 flexible · v5 a reason
"""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response, Struct, field


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    class Member(Struct):
        member_id: String = field("3+")
        group_instance_id: String | None = field("3+", default=None)
        reason: String | None = field("5+", default=None, ignorable=True)

    group_id: String
    member_id: String = field("0-2", default="")
    members: list[Member] = field("3+", default=[])


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    class Member(Struct):
        member_id: String = field("3+")
        group_instance_id: String | None = field("3+")
        error_code: Int16 = field("3+")

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    members: list[Member] = field("3+", default=[])
