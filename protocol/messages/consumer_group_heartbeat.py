"""ConsumerGroupHeartbeat (68): the next-generation group protocol, all of it: join, stay, take up, give up, leave
(KIP-848).

v1 subscription by regular expression; the member chooses its id
"""

from ..primitives import Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = field(default=None)
    topic_partitions: list[TopicPartition] | None = field(default=None)


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    class Assignment(Struct):
        topic_partitions: list[TopicPartitions]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
