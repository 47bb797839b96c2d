"""DeleteTopics (20): deletes topics and their records.

v3 TOPIC_DELETION_DISABLED if delete.topic.enable is false, INVALID_REQUEST before · v5 messages · v6 topics by id
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import InvalidRequest, KafkaError, TopicAuthorizationFailed, TopicDeletionDisabled
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from trioka.protocol.primitives import NULL_UUID

from ..api import handles
from ..config.node_keys import DELETE_TOPIC_ENABLE
from ..security.guard import TOPIC
from .mutation_quotas import charge_of
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicRequest = DeleteTopicsRequest.Topic
TopicResult = DeleteTopicsResponse.Topic

FIRST_VERSION_WITH_DISABLED: Final = 3
DENIED: Final = TopicAuthorizationFailed()

FIRST_STRICT_VERSION: Final = 5  # from here on clients know THROTTLING_QUOTA_EXCEEDED


def error_response(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            TopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error.code) for topic in _topics(request)
        ],
    )


@handles(DeleteTopicsRequest, error_response=error_response, forwards=True)
async def delete_topics(broker: "Broker", call: "Call", request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not broker.config[DELETE_TOPIC_ENABLE]:
        if call.version < FIRST_VERSION_WITH_DISABLED:
            raise InvalidRequest("topics cannot be deleted: delete.topic.enable is false")
        raise TopicDeletionDisabled("delete.topic.enable is false")
    check_timeout(request.timeout_ms)
    allowed, denied = _authorize(broker, call, _topics(request))
    charge = charge_of(broker, call, FIRST_STRICT_VERSION)
    decision = await broker.quorum.change(lambda controller: controller.delete_topics(allowed, charge=charge))
    return DeleteTopicsResponse(
        throttle_time_ms=charge.throttle_time_ms,
        responses=[
            TopicResult(
                name=reply.name,
                topic_id=reply.topic_id,
                error_code=reply.outcome.code,
                error_message=reply.outcome.message,
            )
            for reply in decision.replies
        ]
        + denied,
    )


def _authorize(
    broker: "Broker", call: "Call", topics: list[TopicRequest]
) -> tuple[list[TopicRequest], list[TopicResult]]:
    """The topics that the client may delete, and the results of the others. A client without DESCRIBE learns neither
    the name of a topic given by id nor whether a topic exists. Invalid entries, such as duplicates, count as allowed:
    the controller rejects them."""
    if not broker.guard.is_closed or broker.guard.may(call, AclOperation.DELETE, is_attempt=False):
        return topics, []
    times = Counter((topic.name, topic.topic_id) for topic in topics)
    allowed: list[TopicRequest] = []
    denied: list[TopicResult] = []
    for topic in topics:
        by_id = topic.name is None
        name = broker.topic_name(topic.topic_id) if by_id else topic.name
        is_invalid = times[topic.name, topic.topic_id] > 1 or (not by_id and topic.topic_id != NULL_UUID)
        if name is None or is_invalid:
            allowed.append(topic)
            continue
        may_describe = broker.guard.may(call, AclOperation.DESCRIBE, TOPIC, name)
        exists = broker.metadata.topics.by_name(name) is not None
        if may_describe and (not exists or broker.guard.may(call, AclOperation.DELETE, TOPIC, name)):
            allowed.append(topic)
        else:
            visible_name = name if may_describe or not by_id else None
            denied.append(
                TopicResult(
                    name=visible_name, topic_id=topic.topic_id, error_code=DENIED.code, error_message=str(DENIED)
                )
            )
    return allowed, denied


def _topics(request: DeleteTopicsRequest) -> list[TopicRequest]:
    """The requested topics; before v6 they are given by name only."""
    return request.topics or [TopicRequest(name=name, topic_id=NULL_UUID) for name in request.topic_names]
