"""ReadShareGroupState (84): a share group's state of partitions. Between brokers."""

from ..primitives import Int8, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            leader_epoch: Int32

        topic_id: Uuid
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class StateBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                delivery_state: Int8
                delivery_count: Int16

            partition: Int32
            error_code: Int16
            error_message: String | None = field(default=None)
            state_epoch: Int32
            start_offset: Int64
            state_batches: list[StateBatch]

        topic_id: Uuid
        partitions: list[Partition]

    results: list[Topic]
