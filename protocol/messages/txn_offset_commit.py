"""TxnOffsetCommit (28): a group's place in partitions, as part of a transaction.

v2 leader epochs · v3 flexible, fencing by generation (KIP-447) · v4, v5 KIP-890
"""

from ..primitives import Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
            committed_metadata: String | None

        name: String
        partitions: list[Partition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: list[Topic]


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32
    topics: list[Topic]
