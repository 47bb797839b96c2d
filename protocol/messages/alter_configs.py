"""AlterConfigs (33): replaces the whole configuration of a resource; what is not named returns to its default.

v2 flexible
"""

from ..primitives import Boolean, Int8, Int16, Int32, String
from ..schema import Request, Response, Struct


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    class Resource(Struct):
        class Config(Struct):
            name: String
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: list[Config]

    resources: list[Resource]
    validate_only: Boolean


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    class Resource(Struct):
        error_code: Int16
        error_message: String | None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32
    responses: list[Resource]
