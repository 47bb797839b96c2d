"""Records of `__consumer_offsets` that streams groups leave (KIP-1071)."""

from ..primitives import Int8, Int16, Int32, Int64, String, Uint16
from ..schema import Entry, Struct, field


class LastAssignmentConfig(Struct):
    key: String
    value: String


class Endpoint(Struct):
    host: String
    port: Uint16


class KeyValue(Struct):
    key: String
    value: String


class TaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class ResponseTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=[], tag=0, tagged="0+")


class TopicConfig(Struct):
    key: String
    value: String


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig]


class StreamsGroupMetadataKey(Entry, key=17, versions="0"):
    group_id: String = field("0")


class StreamsGroupMetadataValue(Entry, key=17, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(default=-1, tag=0, tagged="0+")
    last_assignment_configs: list[LastAssignmentConfig] | None = field(default=[], tag=1, tagged="0+")


class StreamsGroupMemberMetadataKey(Entry, key=19, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class StreamsGroupMemberMetadataValue(Entry, key=19, versions="0", flexible="0+"):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(Entry, key=20, versions="0"):
    group_id: String = field("0")


class StreamsGroupTargetAssignmentMetadataValue(Entry, key=20, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, tagged="0+", ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Entry, key=21, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class StreamsGroupTargetAssignmentMemberValue(Entry, key=21, versions="0", flexible="0+"):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class StreamsGroupCurrentMemberAssignmentKey(Entry, key=22, versions="0"):
    group_id: String = field("0")
    member_id: String = field("0")


class StreamsGroupCurrentMemberAssignmentValue(Entry, key=22, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[ResponseTaskIds]
    standby_tasks: list[ResponseTaskIds]
    warmup_tasks: list[ResponseTaskIds]
    active_tasks_pending_revocation: list[ResponseTaskIds]
    standby_tasks_pending_revocation: list[ResponseTaskIds]
    warmup_tasks_pending_revocation: list[ResponseTaskIds]


class StreamsGroupTopologyKey(Entry, key=23, versions="0"):
    group_id: String = field("0")


class StreamsGroupTopologyValue(Entry, key=23, versions="0", flexible="0+"):
    class Subtopology(Struct):
        class CopartitionGroup(Struct):
            source_topics: list[Int16]
            source_topic_regex: list[Int16]
            repartition_source_topics: list[Int16]

        subtopology_id: String
        source_topics: list[String]
        source_topic_regex: list[String]
        state_changelog_topics: list[TopicInfo]
        repartition_sink_topics: list[String]
        repartition_source_topics: list[TopicInfo]
        copartition_groups: list[CopartitionGroup]

    epoch: Int32
    subtopologies: list[Subtopology]
