"""WriteShareGroupState (85): a share group's state of partitions is kept. Between brokers.

v1 how many are delivered
"""

from ..primitives import Int8, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class StateBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                delivery_state: Int8
                delivery_count: Int16

            partition: Int32
            state_epoch: Int32
            leader_epoch: Int32
            start_offset: Int64
            delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
            state_batches: list[StateBatch]

        topic_id: Uuid
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = field(default=None)

        topic_id: Uuid
        partitions: list[Partition]

    results: list[Topic]
