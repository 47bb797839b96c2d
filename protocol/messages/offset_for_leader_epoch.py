"""OffsetForLeaderEpoch (23): where a leader epoch ends in partitions.

v3 the replica id of the sender · v4 flexible
"""

from ..primitives import Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
            leader_epoch: Int32

        topic: String
        partitions: list[Partition]

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[Topic]


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    class Topic(Struct):
        class Partition(Struct):
            error_code: Int16
            partition: Int32
            leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
            end_offset: Int64 = field(default=-1)

        topic: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[Topic]
