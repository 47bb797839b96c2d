"""CreateTopics (19): new topics, or only whether they could be.

A topic can be written to when the answer is there. What is asked for is checked by the controller, topic by topic; one
that is refused does not hinder the others. The answer tells a new topic's whole configuration, defaults included.

v4 -1 asks for the broker's defaults · v5 the configuration in the answer · v7 topic ids in the answer
"""

from collections import Counter
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.cluster.decision import Outcome
from trioka.cluster.topic_changes import NewTopic
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

from ..api import handles
from ..config.description import describe_created_topic
from ..security.guard import TOPIC
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = CreateTopicsResponse.Topic

DENIED: Final = TopicAuthorizationFailed()


def refuse(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    outcome = Outcome.of(error)
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            Told(name=topic.name, error_code=outcome.code, error_message=outcome.message) for topic in request.topics
        ],
    )


@handles(CreateTopicsRequest, refuse=refuse, forwards=True)
async def create_topics(broker: "Broker", call: "Call", request: CreateTopicsRequest) -> CreateTopicsResponse:
    denied, known = _rights(broker, call, request)
    check_timeout(request.timeout_ms)
    decision = await broker.quorum.change(
        lambda controller: controller.create_topics(request.topics, validate_only=request.validate_only)
    )
    configs = {
        topic.name: {config.name: config.value for config in topic.configs if config.value is not None}
        for topic in request.topics
    }
    told = [_told(broker, reply, configs[reply.name], reply.name in known) for reply in decision.replies]
    told += [Told(name=name, error_code=DENIED.code, error_message=str(DENIED)) for name in denied]
    return CreateTopicsResponse(throttle_time_ms=0, topics=told)


def _rights(broker: "Broker", call: "Call", request: CreateTopicsRequest) -> tuple[list[str], Container[str]]:
    """The topics that this client may not make, which are taken out of the request, and those whose configuration it
    may know. One that is named twice is refused for that."""
    times = Counter(topic.name for topic in request.topics)
    names = {name for name, count in times.items() if count == 1} - {CLUSTER_METADATA_TOPIC}
    known = broker.guard.allowed(call, Operation.DESCRIBE_CONFIGS, TOPIC, names, is_attempt=False)
    if broker.guard.may(call, Operation.CREATE, is_attempt=False):
        return [], known
    allowed = broker.guard.allowed(call, Operation.CREATE, TOPIC, names)
    denied = [name for name in times if name in names and name not in allowed]
    request.topics[:] = [topic for topic in request.topics if topic.name not in denied]
    return denied, known


def _told(broker: "Broker", reply: NewTopic, configs: Mapping[str, str], is_known: bool) -> Told:
    if reply.outcome.error is not None:
        return Told(name=reply.name, error_code=reply.outcome.code, error_message=reply.outcome.message)
    if not is_known:
        return Told(
            name=reply.name,
            topic_id=reply.topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=DENIED.code,
        )
    return Told(
        name=reply.name,
        topic_id=reply.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=reply.num_partitions,
        replication_factor=reply.replication_factor,
        configs=[
            Told.Config(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_created_topic(broker.config.topic(configs))
        ],
    )
