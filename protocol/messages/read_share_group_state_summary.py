"""ReadShareGroupStateSummary (87): a share group's start offsets, without the batches. Between brokers.

v1 how many are delivered
"""

from ..primitives import Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            leader_epoch: Int32

        topic_id: Uuid
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = field(default=None)
            state_epoch: Int32
            leader_epoch: Int32
            start_offset: Int64
            delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)

        topic_id: Uuid
        partitions: list[Partition]

    results: list[Topic]
