"""DeleteShareGroupOffsets (92): forgets a share group's place in topics."""

from ..primitives import Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    class Topic(Struct):
        topic_name: String

    group_id: String
    topics: list[Topic]


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    class Topic(Struct):
        topic_name: String
        topic_id: Uuid
        error_code: Int16
        error_message: String | None = field(default=None)

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: list[Topic]
