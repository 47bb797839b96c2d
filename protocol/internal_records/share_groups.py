"""Records of `__consumer_offsets` that share groups leave (KIP-932)."""

from ..primitives import Int8, Int32, Int64, String, Uuid
from ..schema import Entry, Struct, field


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class TopicPartitionsInfo(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class TopicInfo(Struct):
    topic_id: Uuid
    topic_name: String


class ShareGroupMetadataKey(Entry, key=11, versions="0"):
    group_id: String = field("0")


class ShareGroupMetadataValue(Entry, key=11, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64


class ShareGroupMemberMetadataKey(Entry, key=10, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class ShareGroupMemberMetadataValue(Entry, key=10, versions="0", flexible="0+"):
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


class ShareGroupTargetAssignmentMetadataKey(Entry, key=12, versions="0"):
    group_id: String = field("0")


class ShareGroupTargetAssignmentMetadataValue(Entry, key=12, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, tagged="0+", ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Entry, key=13, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class ShareGroupTargetAssignmentMemberValue(Entry, key=13, versions="0", flexible="0+"):
    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(Entry, key=14, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class ShareGroupCurrentMemberAssignmentValue(Entry, key=14, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(Entry, key=15, versions="0"):
    group_id: String = field("0")


class ShareGroupStatePartitionMetadataValue(Entry, key=15, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
