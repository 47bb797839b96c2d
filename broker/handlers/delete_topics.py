"""DeleteTopics (20): topics go, with everything in them.

v3 TOPIC_DELETION_DISABLED where delete.topic.enable is false, INVALID_REQUEST before · v5 messages · v6 topics by id
"""

from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import InvalidRequest, KafkaError, TopicDeletionDisabled
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from trioka.protocol.wire import NULL_UUID

from ..config.node_keys import DELETE_TOPIC_ENABLE
from ..request_timeout import check_timeout
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

Asked = DeleteTopicsRequest.Topic
Told = DeleteTopicsResponse.Topic

FIRST_VERSION_WITH_DISABLED: Final = 3


def refuse(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[Told(name=topic.name, topic_id=topic.topic_id, error_code=error.code) for topic in _asked(request)],
    )


@handles(DeleteTopicsRequest, refuse=refuse)
async def delete_topics(broker: "Broker", call: "Call", request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not broker.config[DELETE_TOPIC_ENABLE]:
        if call.version < FIRST_VERSION_WITH_DISABLED:
            raise InvalidRequest("topics cannot be deleted here: delete.topic.enable is false")
        raise TopicDeletionDisabled("delete.topic.enable is false")
    check_timeout(request.timeout_ms)
    decision = await broker.quorum.change(lambda controller: controller.delete_topics(_asked(request)))
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            Told(
                name=reply.name,
                topic_id=reply.topic_id,
                error_code=reply.outcome.code,
                error_message=reply.outcome.message,
            )
            for reply in decision.replies
        ],
    )


def _asked(request: DeleteTopicsRequest) -> list[Asked]:
    """Before v6 there are only names."""
    return request.topics or [Asked(name=name, topic_id=NULL_UUID) for name in request.topic_names]
