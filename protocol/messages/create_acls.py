"""CreateAcls (30): adds access rules.

v2 flexible · v3 a user resource
"""

from ..primitives import Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    class Creation(Struct):
        resource_type: Int8
        resource_name: String
        resource_pattern_type: Int8 = field("1+", default=3)
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    creations: list[Creation]


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    class Result(Struct):
        error_code: Int16
        error_message: String | None

    throttle_time_ms: Int32
    results: list[Result]
