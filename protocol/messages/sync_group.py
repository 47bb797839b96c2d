"""SyncGroup (14): the leader of a classic group hands out the assignment, and everyone receives theirs.

v3 static members · v4 flexible · v5 protocol type and name
"""

from ..primitives import Bytes, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    class Assignment(Struct):
        member_id: String
        assignment: Bytes

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignments: list[Assignment]


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignment: Bytes
