"""StreamsGroupDescribe (89): streams groups with their members, tasks and topology."""

from ..primitives import Boolean, Int16, Int32, Int64, String, Uint16
from ..schema import Request, Response, Struct, field


class Endpoint(Struct):
    host: String
    port: Uint16


class TaskOffset(Struct):
    subtopology_id: String
    partition: Int32
    offset: Int64


class TaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class KeyValue(Struct):
    key: String
    value: String


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


class StreamsGroupDescribeRequest(Request, key=89, versions="0", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Boolean


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+"):
    class Group(Struct):
        class Topology(Struct):
            class Subtopology(Struct):
                subtopology_id: String
                source_topics: list[String]
                repartition_sink_topics: list[String]
                state_changelog_topics: list[TopicInfo]
                repartition_source_topics: list[TopicInfo]

            epoch: Int32
            subtopologies: list[Subtopology] | None = field(default=None)

        class Member(Struct):
            member_id: String
            member_epoch: Int32
            instance_id: String | None = field(default=None)
            rack_id: String | None = field(default=None)
            client_id: String
            client_host: String
            topology_epoch: Int32
            process_id: String
            user_endpoint: Endpoint | None = field(default=None)
            client_tags: list[KeyValue]
            task_offsets: list[TaskOffset]
            task_end_offsets: list[TaskOffset]
            assignment: Assignment
            target_assignment: Assignment
            is_classic: Boolean

        error_code: Int16
        error_message: String | None = field(default=None)
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        topology: Topology | None = field(default=None)
        members: list[Member]
        authorized_operations: Int32 = field(default=-0x80000000)

    throttle_time_ms: Int32
    groups: list[Group]
