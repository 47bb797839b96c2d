"""Records of `__remote_log_metadata`: which segments lie in the object store, and what becomes of them."""

from ..primitives import Boolean, Bytes, Int8, Int32, Int64, String, Uuid
from ..schema import Entry, Struct, field


class RemoteLogSegmentMetadataRecord(Entry, key=0, versions="0", flexible="0+"):
    class RemoteLogSegmentId(Struct):
        class TopicIdPartition(Struct):
            name: String
            id: Uuid
            partition: Int32

        topic_id_partition: TopicIdPartition
        id: Uuid

    class SegmentLeaderEpoch(Struct):
        leader_epoch: Int32
        offset: Int64

    remote_log_segment_id: RemoteLogSegmentId
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpoch]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8
    txn_index_empty: Boolean = field(default=False, tag=0, tagged="0+")


class RemoteLogSegmentMetadataUpdateRecord(Entry, key=1, versions="0", flexible="0+"):
    class RemoteLogSegmentId(Struct):
        class TopicIdPartition(Struct):
            name: String
            id: Uuid
            partition: Int32

        topic_id_partition: TopicIdPartition
        id: Uuid

    remote_log_segment_id: RemoteLogSegmentId
    broker_id: Int32
    event_timestamp_ms: Int64
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8


class RemotePartitionDeleteMetadataRecord(Entry, key=2, versions="0", flexible="0+"):
    class TopicIdPartition(Struct):
        name: String
        id: Uuid
        partition: Int32

    topic_id_partition: TopicIdPartition
    broker_id: Int32
    event_timestamp_ms: Int64
    remote_partition_delete_state: Int8


class RemoteLogSegmentMetadataSnapshotRecord(Entry, key=3, versions="0", flexible="0+"):
    class SegmentLeaderEpoch(Struct):
        leader_epoch: Int32
        offset: Int64

    segment_id: Uuid
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpoch]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8
    txn_index_empty: Boolean = field(default=False, tag=0, tagged="0+")
