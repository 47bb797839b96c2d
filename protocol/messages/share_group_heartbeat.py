"""ShareGroupHeartbeat (76): the share group protocol: join, stay, leave."""

from ..primitives import Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = field(default=None)
    subscribed_topic_names: list[String] | None = field(default=None)


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    class Assignment(Struct):
        topic_partitions: list[TopicPartitions]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
