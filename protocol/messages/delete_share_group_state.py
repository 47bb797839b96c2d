"""DeleteShareGroupState (86): forgets a share group's state of partitions. Between brokers."""

from ..primitives import Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32

        topic_id: Uuid
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            error_code: Int16
            error_message: String | None = field(default=None)

        topic_id: Uuid
        partitions: list[Partition]

    results: list[Topic]
