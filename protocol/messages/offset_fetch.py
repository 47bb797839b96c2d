"""OffsetFetch (9): the committed offsets of groups.

v2 null selects all · v3 throttling · v5 leader epochs · v6 flexible · v7 waits for transactions · v8 many groups
· v9 next-generation groups · v10 topics by id
"""

from ..primitives import NULL_UUID, Boolean, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    class Topic(Struct):
        name: String = field("0-7")
        partition_indexes: list[Int32] = field("0-7")

    class Group(Struct):
        class Topic(Struct):
            name: String = field("8-9", default="", ignorable=True)
            topic_id: Uuid = field("10+", default=NULL_UUID, ignorable=True)
            partition_indexes: list[Int32] = field("8+")

        group_id: String = field("8+")
        member_id: String | None = field("9+", default=None, ignorable=True)
        member_epoch: Int32 = field("9+", default=-1, ignorable=True)
        topics: list[Topic] | None = field("8+")

    group_id: String = field("0-7", default="")
    topics: list[Topic] | None = field("0-7", default=[], nullable="2-7")
    groups: list[Group] = field("8+", default=[])
    require_stable: Boolean = field("7+", default=False)


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32 = field("0-7")
            committed_offset: Int64 = field("0-7")
            committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
            metadata: String | None = field("0-7")
            error_code: Int16 = field("0-7")

        name: String = field("0-7")
        partitions: list[Partition] = field("0-7")

    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32 = field("8+")
                committed_offset: Int64 = field("8+")
                committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
                metadata: String | None = field("8+")
                error_code: Int16 = field("8+")

            name: String = field("8-9", default="", ignorable=True)
            topic_id: Uuid = field("10+", default=NULL_UUID, ignorable=True)
            partitions: list[Partition] = field("8+")

        group_id: String = field("8+")
        topics: list[Topic] = field("8+")
        error_code: Int16 = field("8+", default=0)

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[Topic] = field("0-7", default=[])
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[Group] = field("8+", default=[])
