"""DescribeTopicPartitions (75): topics with their partitions, page by page."""

from ..primitives import Boolean, Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    class Topic(Struct):
        name: String

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32

    topics: list[Topic]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            error_code: Int16
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = field(default=-1, ignorable=True)
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            eligible_leader_replicas: list[Int32] | None = field(default=None)
            last_known_elr: list[Int32] | None = field(default=None)
            offline_replicas: list[Int32] = field(ignorable=True)

        error_code: Int16
        name: String | None
        topic_id: Uuid = field(ignorable=True)
        is_internal: Boolean = field(default=False, ignorable=True)
        partitions: list[Partition]
        topic_authorized_operations: Int32 = field(default=-0x80000000)

    class NextCursor(Struct):
        topic_name: String
        partition_index: Int32

    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[Topic]
    next_cursor: NextCursor | None = field(default=None)
