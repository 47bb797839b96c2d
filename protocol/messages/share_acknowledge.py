"""ShareAcknowledge (79): a member of a share group is done with records.

v2 renews what it holds
"""

from ..primitives import Boolean, Int8, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                acknowledge_types: list[Int8]

            partition_index: Int32
            acknowledgement_batches: list[AcknowledgementBatch]

        topic_id: Uuid
        partitions: list[Partition]

    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Boolean = field("2+", default=False)
    topics: list[Topic]


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class CurrentLeader(Struct):
                leader_id: Int32
                leader_epoch: Int32

            partition_index: Int32
            error_code: Int16
            error_message: String | None = field(default=None)
            current_leader: CurrentLeader

        topic_id: Uuid
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field(default=None)

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: list[Topic]
    node_endpoints: list[NodeEndpoint]
