"""InitializeShareGroupState (83): where a share group starts in partitions. Between brokers."""

from ..primitives import Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            state_epoch: Int32
            start_offset: Int64

        topic_id: Uuid
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = field(default=None)

        topic_id: Uuid
        partitions: list[Partition]

    results: list[Topic]
