"""OffsetCommit (8): a group's place in partitions is kept.

v5 no retention time · v6 leader epochs · v7 static members · v8 flexible · v9 next-generation groups · v10 topics
by id
"""

from ..primitives import NULL_UUID, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
            committed_metadata: String | None

        name: String = field("0-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=NULL_UUID, ignorable=True)
        partitions: list[Partition]

    group_id: String
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("1+", ignorable=True)
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[Topic]


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16

        name: String = field("0-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=NULL_UUID, ignorable=True)
        partitions: list[Partition]

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[Topic]
