"""AlterReplicaLogDirs (34): moves replicas to another log directory of the same broker.

v2 flexible
"""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response, Struct


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+"):
    class Dir(Struct):
        class Topic(Struct):
            name: String
            partitions: list[Int32]

        path: String
        topics: list[Topic]

    dirs: list[Dir]


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16

        topic_name: String
        partitions: list[Partition]

    throttle_time_ms: Int32
    results: list[Topic]
