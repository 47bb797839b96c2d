"""DescribeQuorum (55): the metadata quorum: its leader, its voters, its observers, how far each has come.

v1 times of the last fetch and of the last catching up · v2 directories, endpoints, messages
"""

from ..primitives import NULL_UUID, Int16, Int32, Int64, String, Uint16, Uuid
from ..schema import Request, Response, Struct, field


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = field("2+", default=NULL_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32

        topic_name: String
        partitions: list[Partition]

    topics: list[Topic]


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            error_message: String | None = field("2+", default="", ignorable=True)
            leader_id: Int32
            leader_epoch: Int32
            high_watermark: Int64
            current_voters: list[ReplicaState]
            observers: list[ReplicaState]

        topic_name: String
        partitions: list[Partition]

    class Node(Struct):
        class Listener(Struct):
            name: String = field("2+")
            host: String = field("2+")
            port: Uint16 = field("2+")

        node_id: Int32 = field("2+")
        listeners: list[Listener] = field("2+")

    error_code: Int16
    error_message: String | None = field("2+", default="", ignorable=True)
    topics: list[Topic]
    nodes: list[Node] = field("2+", default=[])
