"""DeleteAcls (31): removes the access rules that match.

v2 flexible · v3 a user resource
"""

from ..primitives import Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+"):
    class Filter(Struct):
        resource_type_filter: Int8
        resource_name_filter: String | None
        pattern_type_filter: Int8 = field("1+", default=3)
        principal_filter: String | None
        host_filter: String | None
        operation: Int8
        permission_type: Int8

    filters: list[Filter]


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    class FilterResult(Struct):
        class MatchingAcl(Struct):
            error_code: Int16
            error_message: String | None
            resource_type: Int8
            resource_name: String
            pattern_type: Int8 = field("1+", default=3)
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        error_code: Int16
        error_message: String | None
        matching_acls: list[MatchingAcl]

    throttle_time_ms: Int32
    filter_results: list[FilterResult]
