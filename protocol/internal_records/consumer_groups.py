"""Records of `__consumer_offsets` that groups of the next-generation protocol leave (KIP-848)."""

from ..primitives import Bytes, Int8, Int32, Int64, String, Uuid
from ..schema import EMPTY, Entry, Struct, field


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=[], tag=0, tagged="0+")


class ConsumerGroupPartitionMetadataKey(Entry, key=4, versions="0"):
    group_id: String = field("0")


class ConsumerGroupPartitionMetadataValue(Entry, key=4, versions="0", flexible="0+"):
    class Topic(Struct):
        class PartitionMetadata(Struct):
            partition: Int32
            racks: list[String]

        topic_id: Uuid
        topic_name: String
        num_partitions: Int32
        partition_metadata: list[PartitionMetadata]

    topics: list[Topic]


class ConsumerGroupMetadataKey(Entry, key=3, versions="0"):
    group_id: String = field("0")


class ConsumerGroupMetadataValue(Entry, key=3, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0, tagged="0+")


class ConsumerGroupMemberMetadataKey(Entry, key=5, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class ConsumerGroupMemberMetadataValue(Entry, key=5, versions="0", flexible="0+"):
    class ClassicMemberMetadata(Struct):
        class SupportedProtocol(Struct):
            name: String
            metadata: Bytes

        session_timeout_ms: Int32
        supported_protocols: list[SupportedProtocol]

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(default=EMPTY, tag=0, tagged="0+")


class ConsumerGroupTargetAssignmentMetadataKey(Entry, key=6, versions="0"):
    group_id: String = field("0")


class ConsumerGroupTargetAssignmentMetadataValue(Entry, key=6, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, tagged="0+", ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Entry, key=7, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class ConsumerGroupTargetAssignmentMemberValue(Entry, key=7, versions="0", flexible="0+"):
    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    topic_partitions: list[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Entry, key=8, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class ConsumerGroupCurrentMemberAssignmentValue(Entry, key=8, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Entry, key=16, versions="0"):
    group_id: String = field("0")
    regular_expression: String = field("0")


class ConsumerGroupRegularExpressionValue(Entry, key=16, versions="0", flexible="0+"):
    topics: list[String]
    version: Int64
    timestamp: Int64
