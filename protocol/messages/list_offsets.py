"""ListOffsets (2): offsets by timestamp: a time, or -1 latest, -2 earliest, -3 of the largest timestamp, -4 earliest
local, -5 latest tiered, -6 earliest not yet tiered.

v2 isolation · v4 leader epochs · v6 flexible · v7 -3 · v8 -4 · v9 -5 · v10 a time limit · v11 -6
"""

from ..primitives import Int8, Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
            timestamp: Int64

        name: String
        partitions: list[Partition]

    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: list[Topic]
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            timestamp: Int64 = field("1+", default=-1)
            offset: Int64 = field("1+", default=-1)
            leader_epoch: Int32 = field("4+", default=-1)

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[Topic]
