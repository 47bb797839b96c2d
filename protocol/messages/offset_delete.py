"""OffsetDelete (47): forgets a group's place in partitions that it does not read any more."""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response, Struct, field


class OffsetDeleteRequest(Request, key=47, versions="0"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32

        name: String
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class OffsetDeleteResponse(Response, key=47, versions="0"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16

        name: String
        partitions: list[Partition]

    error_code: Int16
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[Topic]
