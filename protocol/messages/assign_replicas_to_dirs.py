"""AssignReplicasToDirs (73): a broker reports to the controller which log directory holds which replica."""

from ..primitives import Int16, Int32, Int64, Uuid
from ..schema import Request, Response, Struct, field


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+"):
    class Directory(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32

            topic_id: Uuid
            partitions: list[Partition]

        id: Uuid
        topics: list[Topic]

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    directories: list[Directory]


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    class Directory(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32
                error_code: Int16

            topic_id: Uuid
            partitions: list[Partition]

        id: Uuid
        topics: list[Topic]

    throttle_time_ms: Int32
    error_code: Int16
    directories: list[Directory]
