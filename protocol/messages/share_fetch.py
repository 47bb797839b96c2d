"""ShareFetch (78): records for a member of a share group, which holds them until it acknowledges.

v2 how strictly to limit the number of records, renewals
"""

from ..primitives import Boolean, Int8, Int16, Int32, Int64, Records, String, Uuid
from ..schema import Request, Response, Struct, field


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: Int64
                last_offset: Int64
                acknowledge_types: list[Int8]

            partition_index: Int32
            partition_max_bytes: Int32 = field("0", default=0)
            acknowledgement_batches: list[AcknowledgementBatch]

        topic_id: Uuid
        partitions: list[Partition]

    class ForgottenTopicsData(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    max_records: Int32 = field("1+")
    batch_size: Int32 = field("1+")
    share_acquire_mode: Int8 = field("2+", default=0, ignorable=True)
    is_renew_ack: Boolean = field("2+", default=False)
    topics: list[Topic]
    forgotten_topics_data: list[ForgottenTopicsData]


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class CurrentLeader(Struct):
                leader_id: Int32
                leader_epoch: Int32

            class AcquiredRecord(Struct):
                first_offset: Int64
                last_offset: Int64
                delivery_count: Int16

            partition_index: Int32
            error_code: Int16
            error_message: String | None = field(default=None)
            acknowledge_error_code: Int16
            acknowledge_error_message: String | None = field(default=None)
            current_leader: CurrentLeader
            records: Records | None = field(nullable="0")
            acquired_records: list[AcquiredRecord]

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
    acquisition_lock_timeout_ms: Int32 = field("1+")
    responses: list[Topic]
    node_endpoints: list[NodeEndpoint]
