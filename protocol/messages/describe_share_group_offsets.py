"""DescribeShareGroupOffsets (90): how far share groups have come.

v1 lag
"""

from ..primitives import Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Topic(Struct):
            topic_name: String
            partitions: list[Int32]

        group_id: String
        topics: list[Topic] | None

    groups: list[Group]


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32
                start_offset: Int64
                leader_epoch: Int32
                lag: Int64 = field("1+", default=-1, ignorable=True)
                error_code: Int16
                error_message: String | None = field(default=None)

            topic_name: String
            topic_id: Uuid
            partitions: list[Partition]

        group_id: String
        topics: list[Topic]
        error_code: Int16
        error_message: String | None = field(default=None)

    throttle_time_ms: Int32
    groups: list[Group]
