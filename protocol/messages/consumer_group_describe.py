"""ConsumerGroupDescribe (69): groups of the next-generation protocol, with their members and what each is assigned.

v1 the member's type
"""

from ..primitives import Boolean, Int8, Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Boolean


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Member(Struct):
            member_id: String
            instance_id: String | None = field(default=None)
            rack_id: String | None = field(default=None)
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: list[String]
            subscribed_topic_regex: String | None = field(default=None)
            assignment: Assignment
            target_assignment: Assignment
            member_type: Int8 = field("1+", default=-1, ignorable=True)

        error_code: Int16
        error_message: String | None = field(default=None)
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: list[Member]
        authorized_operations: Int32 = field(default=-0x80000000)

    throttle_time_ms: Int32
    groups: list[Group]
