"""DescribeClientQuotas (48): the quotas that match.

v1 flexible
"""

from ..primitives import Boolean, Float64, Int8, Int16, Int32, String
from ..schema import Request, Response, Struct


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    class Component(Struct):
        entity_type: String
        match_type: Int8
        match: String | None

    components: list[Component]
    strict: Boolean


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: String
            entity_name: String | None

        class Value(Struct):
            key: String
            value: Float64

        entity: list[Entity]
        values: list[Value]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: list[Entry] | None
