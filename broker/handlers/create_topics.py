"""CreateTopics (19): creates topics, or validates the request only.

When the response is sent, the topics can be written to. The controller validates each topic on its own. The response
contains the whole configuration of new topics, including defaults.

v4 -1 selects the broker's defaults · v5 the configuration in the response · v7 topic ids in the response
"""

from collections import Counter
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final

from trioka.cluster.controller.topic_changes import CreatedTopic
from trioka.cluster.decision import ItemResult
from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

from ..api import handles
from ..config.description import describe_created_topic
from ..security.guard import TOPIC
from .mutation_quotas import charge_of
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = CreateTopicsResponse.Topic

DENIED: Final = TopicAuthorizationFailed()

FIRST_STRICT_VERSION: Final = 6  # from here on clients know THROTTLING_QUOTA_EXCEEDED


def error_response(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    outcome = ItemResult.of(error)
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            TopicResult(name=topic.name, error_code=outcome.code, error_message=outcome.message)
            for topic in request.topics
        ],
    )


@handles(CreateTopicsRequest, error_response=error_response, forwards=True)
async def create_topics(broker: "Broker", call: "Call", request: CreateTopicsRequest) -> CreateTopicsResponse:
    denied, describable = _authorize(broker, call, request)
    check_timeout(request.timeout_ms)
    charge = charge_of(broker, call, FIRST_STRICT_VERSION)
    decision = await broker.quorum.change(
        lambda controller: controller.create_topics(request.topics, validate_only=request.validate_only, charge=charge)
    )
    configs = {
        topic.name: {config.name: config.value for config in topic.configs if config.value is not None}
        for topic in request.topics
    }
    results = [_to_result(broker, reply, configs[reply.name], reply.name in describable) for reply in decision.replies]
    results += [TopicResult(name=name, error_code=DENIED.code, error_message=str(DENIED)) for name in denied]
    return CreateTopicsResponse(throttle_time_ms=charge.throttle_time_ms, topics=results)


def _authorize(broker: "Broker", call: "Call", request: CreateTopicsRequest) -> tuple[list[str], Container[str]]:
    """The topics that the client may not create, which are removed from the request, and those whose configuration it
    may describe. Topics that are listed twice stay in the request: the controller rejects them."""
    times = Counter(topic.name for topic in request.topics)
    names = {name for name, count in times.items() if count == 1} - {CLUSTER_METADATA_TOPIC}
    describable = broker.guard.allowed(call, AclOperation.DESCRIBE_CONFIGS, TOPIC, names, is_attempt=False)
    if broker.guard.may(call, AclOperation.CREATE, is_attempt=False):
        return [], describable
    allowed = broker.guard.allowed(call, AclOperation.CREATE, TOPIC, names)
    denied = [name for name in times if name in names and name not in allowed]
    request.topics[:] = [topic for topic in request.topics if topic.name not in denied]
    return denied, describable


def _to_result(broker: "Broker", reply: CreatedTopic, configs: Mapping[str, str], is_describable: bool) -> TopicResult:
    if reply.outcome.error is not None:
        return TopicResult(name=reply.name, error_code=reply.outcome.code, error_message=reply.outcome.message)
    if not is_describable:
        return TopicResult(
            name=reply.name,
            topic_id=reply.topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=DENIED.code,
        )
    return TopicResult(
        name=reply.name,
        topic_id=reply.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=reply.num_partitions,
        replication_factor=reply.replication_factor,
        configs=[
            TopicResult.Config(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_created_topic(broker.config.topic(configs))
        ],
    )
