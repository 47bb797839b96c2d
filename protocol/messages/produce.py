"""Produce (0): records to partitions.

v3 record batches of format 2, transactions · v5 log start · v8 errors of single records · v9 flexible · v10
leaders' endpoints · v11, v12 KIP-890, partitions join a transaction by being written to · v13 topics by id
"""

from ..primitives import NULL_UUID, Int16, Int32, Int64, Records, String, Uuid
from ..schema import EMPTY, Request, Response, Struct, field


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    class Topic(Struct):
        class Partition(Struct):
            index: Int32
            records: Records | None

        name: String = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=NULL_UUID, ignorable=True)
        partition_data: list[Partition]

    transactional_id: String | None = field("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[Topic]


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    class Topic(Struct):
        class Partition(Struct):
            class RecordError(Struct):
                batch_index: Int32 = field("8+")
                batch_index_error_message: String | None = field("8+", default=None)

            class CurrentLeader(Struct):
                leader_id: Int32 = field("10+", default=-1)
                leader_epoch: Int32 = field("10+", default=-1)

            index: Int32
            error_code: Int16
            base_offset: Int64
            log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
            log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
            record_errors: list[RecordError] = field("8+", default=[], ignorable=True)
            error_message: String | None = field("8+", default=None, ignorable=True)
            current_leader: CurrentLeader = field("10+", default=EMPTY, tag=0, tagged="10+")

        name: String = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=NULL_UUID, ignorable=True)
        partition_responses: list[Partition]

    class NodeEndpoint(Struct):
        node_id: Int32 = field("10+")
        host: String = field("10+")
        port: Int32 = field("10+")
        rack: String | None = field("10+", default=None)

    responses: list[Topic]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default=[], tag=0, tagged="10+")
