"""Metadata (3): topics, partitions, their leaders and replicas, and the brokers.

v1 null selects all topics, an empty list none · v4 may create topics · v5 offline replicas · v7 leader epochs · v8
the operations that the client may do · v9 flexible · v10, v12 topics by id · v13 an error for the whole answer
"""

from ..primitives import NULL_UUID, Boolean, Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    class Topic(Struct):
        topic_id: Uuid = field("10+", default=NULL_UUID, ignorable=True)
        name: String | None = field(nullable="10+")

    topics: list[Topic] | None = field(nullable="1+")
    allow_auto_topic_creation: Boolean = field("4+", default=True)
    include_cluster_authorized_operations: Boolean = field("8-10", default=False)
    include_topic_authorized_operations: Boolean = field("8+", default=False)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    class Broker(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field("1+", default=None, ignorable=True)

    class Topic(Struct):
        class Partition(Struct):
            error_code: Int16
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            offline_replicas: list[Int32] = field("5+", default=[], ignorable=True)

        error_code: Int16
        name: String | None = field(nullable="12+")
        topic_id: Uuid = field("10+", default=NULL_UUID, ignorable=True)
        is_internal: Boolean = field("1+", default=False, ignorable=True)
        partitions: list[Partition]
        topic_authorized_operations: Int32 = field("8+", default=-0x80000000)

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[Broker]
    cluster_id: String | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[Topic] = field(may_be_encoded=True)
    cluster_authorized_operations: Int32 = field("8-10", default=-0x80000000)
    error_code: Int16 = field("13+", default=0, ignorable=True)
