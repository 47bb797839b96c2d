"""Heartbeat (12): a member of a group is alive.

v3 static members · v4 flexible
"""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response, field


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
