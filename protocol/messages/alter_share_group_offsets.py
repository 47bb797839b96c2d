"""AlterShareGroupOffsets (91): sets where a share group starts to read."""

from ..primitives import Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            start_offset: Int64

        topic_name: String
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            error_message: String | None = field(default=None)

        topic_name: String
        topic_id: Uuid
        partitions: list[Partition]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: list[Topic]
