"""AlterClientQuotas (49): sets and removes quotas of users, client ids and addresses.

v1 flexible
"""

from ..primitives import Boolean, Float64, Int16, Int32, String
from ..schema import Request, Response, Struct


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: String
            entity_name: String | None

        class Op(Struct):
            key: String
            value: Float64
            remove: Boolean

        entity: list[Entity]
        ops: list[Op]

    entries: list[Entry]
    validate_only: Boolean


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: String
            entity_name: String | None

        error_code: Int16
        error_message: String | None
        entity: list[Entity]

    throttle_time_ms: Int32
    entries: list[Entry]
