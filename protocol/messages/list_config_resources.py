"""ListConfigResources (74): the names of resources with a configuration.

v1 of other kinds than client metrics
"""

from ..primitives import Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = field("1+", default=[])


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    class ConfigResource(Struct):
        resource_name: String
        resource_type: Int8 = field("1+", default=16, ignorable=True)

    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]
