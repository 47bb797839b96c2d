"""CreateTopics (19): new topics, or only whether they could be.

A topic can be written to when the answer is there. What is asked for is checked by the controller, topic by topic; one
that is refused does not hinder the others. The answer tells a new topic's whole configuration, defaults included.

v4 -1 asks for the broker's defaults · v5 the configuration in the answer · v7 topic ids in the answer
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trioka.cluster.decision import Outcome
from trioka.cluster.topic_changes import NewTopic
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

from ..config.description import describe_created_topic
from ..request_timeout import check_timeout
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

Told = CreateTopicsResponse.Topic


def refuse(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    outcome = Outcome.of(error)
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            Told(name=topic.name, error_code=outcome.code, error_message=outcome.message) for topic in request.topics
        ],
    )


@handles(CreateTopicsRequest, refuse=refuse)
async def create_topics(broker: "Broker", call: "Call", request: CreateTopicsRequest) -> CreateTopicsResponse:
    check_timeout(request.timeout_ms)
    decision = await broker.quorum.change(
        lambda controller: controller.create_topics(request.topics, validate_only=request.validate_only)
    )
    configs = {
        topic.name: {config.name: config.value for config in topic.configs if config.value is not None}
        for topic in request.topics
    }
    return CreateTopicsResponse(
        throttle_time_ms=0, topics=[_told(broker, reply, configs[reply.name]) for reply in decision.replies]
    )


def _told(broker: "Broker", reply: NewTopic, configs: Mapping[str, str]) -> Told:
    if reply.outcome.error is not None:
        return Told(name=reply.name, error_code=reply.outcome.code, error_message=reply.outcome.message)
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
