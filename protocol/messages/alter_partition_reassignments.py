"""AlterPartitionReassignments (45): moves partitions to other replicas, or calls such a move off with null.

v1 may forbid that the number of replicas changes
"""

from ..primitives import Boolean, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            replicas: list[Int32] | None = field(default=None)

        name: String
        partitions: list[Partition]

    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Boolean = field("1+", default=True)
    topics: list[Topic]


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            error_message: String | None

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32
    allow_replication_factor_change: Boolean = field("1+", default=True, ignorable=True)
    error_code: Int16
    error_message: String | None
    responses: list[Topic]
