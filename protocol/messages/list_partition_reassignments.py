"""ListPartitionReassignments (46): the moves of partitions that are under way."""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response, Struct, field


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    class Topic(Struct):
        name: String
        partition_indexes: list[Int32]

    timeout_ms: Int32 = field(default=60000)
    topics: list[Topic] | None = field(default=None)


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            replicas: list[Int32]
            adding_replicas: list[Int32]
            removing_replicas: list[Int32]

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    topics: list[Topic]
