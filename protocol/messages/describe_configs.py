"""DescribeConfigs (32): the configuration of resources, each key with where its value comes from.

v1 synonyms · v3 types and documentation · v4 flexible
"""

from ..primitives import Boolean, Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    class Resource(Struct):
        resource_type: Int8
        resource_name: String
        configuration_keys: list[String] | None

    resources: list[Resource]
    include_synonyms: Boolean = field("1+", default=False)
    include_documentation: Boolean = field("3+", default=False)


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    class Result(Struct):
        class Config(Struct):
            class Synonym(Struct):
                name: String = field("1+")
                value: String | None = field("1+", nullable="0+")
                source: Int8 = field("1+")

            name: String
            value: String | None
            read_only: Boolean
            config_source: Int8 = field("1+", default=-1, ignorable=True)
            is_sensitive: Boolean
            synonyms: list[Synonym] = field("1+", ignorable=True)
            config_type: Int8 = field("3+", default=0, ignorable=True)
            documentation: String | None = field("3+", default="", nullable="0+", ignorable=True)

        error_code: Int16
        error_message: String | None
        resource_type: Int8
        resource_name: String
        configs: list[Config]

    throttle_time_ms: Int32
    results: list[Result]
