"""CreateTopics (19): creates topics, or only validates the request.

v4 -1 selects the broker's defaults · v5 flexible, the configuration in the answer · v7 topic ids in the answer
"""

from ..primitives import NULL_UUID, Boolean, Int8, Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    class Topic(Struct):
        class Assignment(Struct):
            partition_index: Int32
            broker_ids: list[Int32]

        class Config(Struct):
            name: String
            value: String | None

        name: String
        num_partitions: Int32
        replication_factor: Int16
        assignments: list[Assignment]
        configs: list[Config]

    topics: list[Topic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Boolean = field("1+", default=False)


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    class Topic(Struct):
        class Config(Struct):
            name: String = field("5+")
            value: String | None = field("5+")
            read_only: Boolean = field("5+")
            config_source: Int8 = field("5+", default=-1, ignorable=True)
            is_sensitive: Boolean = field("5+")

        name: String
        topic_id: Uuid = field("7+", default=NULL_UUID, ignorable=True)
        error_code: Int16
        error_message: String | None = field("1+", nullable="0+", ignorable=True)
        topic_config_error_code: Int16 = field("5+", default=0, tag=0, tagged="5+", ignorable=True)
        num_partitions: Int32 = field("5+", default=-1, ignorable=True)
        replication_factor: Int16 = field("5+", default=-1, ignorable=True)
        configs: list[Config] | None = field("5+", default=[], ignorable=True)

    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[Topic]
