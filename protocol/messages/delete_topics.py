"""DeleteTopics (20): deletes topics.

v4 flexible · v5 an error message · v6 topics by id
"""

from ..primitives import NULL_UUID, Int16, Int32, String, Uuid
from ..schema import Request, Response, Struct, field


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    class Topic(Struct):
        name: String | None = field("6+", default=None)
        topic_id: Uuid = field("6+")

    topics: list[Topic] = field("6+", default=[])
    topic_names: list[String] = field("0-5", default=[], ignorable=True)
    timeout_ms: Int32


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    class Topic(Struct):
        name: String | None = field(nullable="6+")
        topic_id: Uuid = field("6+", default=NULL_UUID, ignorable=True)
        error_code: Int16
        error_message: String | None = field("5+", default=None, ignorable=True)

    throttle_time_ms: Int32 = field("1+", ignorable=True)
    responses: list[Topic]
