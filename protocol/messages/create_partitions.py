"""CreatePartitions (37): gives topics more partitions.

v2 flexible · v3 may be answered THROTTLING_QUOTA_EXCEEDED
"""

from ..primitives import Boolean, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    class Topic(Struct):
        class Assignment(Struct):
            broker_ids: list[Int32]

        name: String
        count: Int32
        assignments: list[Assignment] | None

    topics: list[Topic]
    timeout_ms: Int32
    validate_only: Boolean


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    class Topic(Struct):
        name: String
        error_code: Int16
        error_message: String | None = field(default=None)

    throttle_time_ms: Int32
    results: list[Topic]
