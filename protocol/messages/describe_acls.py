"""DescribeAcls (29): the access rules that match.

v2 flexible · v3 a user resource
"""

from ..primitives import Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    class Resource(Struct):
        class Acl(Struct):
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = field("1+", default=3)
        acls: list[Acl]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    resources: list[Resource]
