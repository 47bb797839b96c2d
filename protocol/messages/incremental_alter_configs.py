"""IncrementalAlterConfigs (44): sets, deletes, appends to and subtracts from single keys.

v1 flexible
"""

from ..primitives import Boolean, Int8, Int16, Int32, String
from ..schema import Request, Response, Struct


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    class Resource(Struct):
        class Config(Struct):
            name: String
            config_operation: Int8
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: list[Config]

    resources: list[Resource]
    validate_only: Boolean


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    class Resource(Struct):
        error_code: Int16
        error_message: String | None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32
    responses: list[Resource]
