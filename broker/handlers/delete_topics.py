"""DeleteTopics (20): topics go, with everything in them.

v3 TOPIC_DELETION_DISABLED where delete.topic.enable is false, INVALID_REQUEST before · v5 messages · v6 topics by id
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.protocol.errors import InvalidRequest, KafkaError, TopicAuthorizationFailed, TopicDeletionDisabled
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from trioka.protocol.primitives import NULL_UUID

from ..api import handles
from ..config.node_keys import DELETE_TOPIC_ENABLE
from ..security.guard import TOPIC
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Asked = DeleteTopicsRequest.Topic
Told = DeleteTopicsResponse.Topic

FIRST_VERSION_WITH_DISABLED: Final = 3
DENIED: Final = TopicAuthorizationFailed()


def refuse(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[Told(name=topic.name, topic_id=topic.topic_id, error_code=error.code) for topic in _asked(request)],
    )


@handles(DeleteTopicsRequest, refuse=refuse, forwards=True)
async def delete_topics(broker: "Broker", call: "Call", request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not broker.config[DELETE_TOPIC_ENABLE]:
        if call.version < FIRST_VERSION_WITH_DISABLED:
            raise InvalidRequest("topics cannot be deleted here: delete.topic.enable is false")
        raise TopicDeletionDisabled("delete.topic.enable is false")
    check_timeout(request.timeout_ms)
    asked, denied = _rights(broker, call, _asked(request))
    decision = await broker.quorum.change(lambda controller: controller.delete_topics(asked))
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
        ]
        + denied,
    )


def _rights(broker: "Broker", call: "Call", asked: list[Asked]) -> tuple[list[Asked], list[Told]]:
    """What may be asked for, and what is said of the rest. Whoever may not know of a topic is told neither its name
    nor whether it is there; its id is no secret. A topic that is named twice is refused for that."""
    if not broker.guard.is_closed or broker.guard.may(call, Operation.DELETE, is_attempt=False):
        return asked, []
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    left: list[Asked] = []
    denied: list[Told] = []
    for topic in asked:
        by_id = topic.name is None
        name = broker.topic_name(topic.topic_id) if by_id else topic.name
        is_odd = times[topic.name, topic.topic_id] > 1 or (not by_id and topic.topic_id != NULL_UUID)
        if name is None or is_odd:
            left.append(topic)
            continue
        may_know = broker.guard.may(call, Operation.DESCRIBE, TOPIC, name)
        exists = broker.metadata.topics.by_name(name) is not None
        if may_know and (not exists or broker.guard.may(call, Operation.DELETE, TOPIC, name)):
            left.append(topic)
        else:
            told = name if may_know or not by_id else None
            denied.append(Told(name=told, topic_id=topic.topic_id, error_code=DENIED.code, error_message=str(DENIED)))
    return left, denied


def _asked(request: DeleteTopicsRequest) -> list[Asked]:
    """Before v6 there are only names."""
    return request.topics or [Asked(name=name, topic_id=NULL_UUID) for name in request.topic_names]
