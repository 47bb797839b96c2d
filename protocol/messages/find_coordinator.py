"""FindCoordinator (10): which broker looks after a group, a transactional id or a share partition.

v1 kinds of key · v3 flexible · v4 many keys at once · v5, v6 newer errors and share groups
"""

from ..primitives import Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", default=[])


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    class Coordinator(Struct):
        key: String = field("4+")
        node_id: Int32 = field("4+")
        host: String = field("4+")
        port: Int32 = field("4+")
        error_code: Int16 = field("4+")
        error_message: String | None = field("4+", ignorable=True)

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=[])
