"""JoinGroup (11): a member joins a classic group; answered when all have joined.

v4 an id is required · v5 static members · v6 flexible · v7 the protocol type · v8 a reason · v9 the leader may
skip the assignment
"""

from ..primitives import Boolean, Bytes, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    class Protocol(Struct):
        name: String
        metadata: Bytes

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String
    protocols: list[Protocol]
    reason: String | None = field("8+", default=None, ignorable=True)


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    class Member(Struct):
        member_id: String
        group_instance_id: String | None = field("5+", default=None, ignorable=True)
        metadata: Bytes

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None, ignorable=True)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Boolean = field("9+", default=False)
    member_id: String
    members: list[Member]
