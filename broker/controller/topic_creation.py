"""Automatic creation of topics: internal topics with the settings of their keys, others with the defaults."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.protocol.errors import NONE, KafkaError, TopicAlreadyExists, error_class
from trioka.protocol.messages.create_topics import CreateTopicsRequest

from ..config import coordinator_keys as coordinators
from ..config import share_keys as share
from ..config.layers import Config
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..config.node_keys import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS

if TYPE_CHECKING:
    from ..broker import Broker

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATES_TOPIC: Final = "__share_group_state"

SEEN_TIMEOUT_S: Final = 2.0  # how long to wait until this broker has replayed the creation
CHECK_INTERVAL_S: Final = 0.01


async def create_topics(broker: "Broker", wanted: Sequence[CreateTopicsRequest.Topic]) -> dict[str, str]:
    """Creates topics through the active controller. Returns the error of each topic that was not created. When it
    returns, this broker knows the created topics, unless its metadata is more than SEEN_TIMEOUT_S behind."""
    timeout_ms = broker.config[REQUEST_TIMEOUT_MS]
    request = CreateTopicsRequest(topics=list(wanted), timeout_ms=timeout_ms, validate_only=False)
    try:
        response: Any = await broker.controller.send_request(request, timeout_s=timeout_ms / 1000)
    except KafkaError as error:
        return {topic.name: error.name for topic in wanted}
    failed = {
        topic.name: topic.error_message or error_class(topic.error_code).name
        for topic in response.topics
        if topic.error_code not in (NONE, TopicAlreadyExists.code)
    }
    created = [topic.name for topic in wanted if topic.name not in failed]
    with trio.move_on_after(SEEN_TIMEOUT_S):
        while any(broker.metadata.topics.by_name(name) is None for name in created):  # noqa: ASYNC110 - rare and short
            await trio.sleep(CHECK_INTERVAL_S)
    return failed


def topic_to_create(name: str, config: Config) -> CreateTopicsRequest.Topic:
    if name == OFFSETS_TOPIC:
        return _topic(
            name,
            config[coordinators.OFFSETS_TOPIC_NUM_PARTITIONS],
            config[coordinators.OFFSETS_TOPIC_REPLICATION_FACTOR],
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": config[coordinators.OFFSETS_TOPIC_SEGMENT_BYTES],
            },
        )
    if name == TRANSACTIONS_TOPIC:
        return _topic(
            name,
            config[coordinators.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
            config[coordinators.TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": config[coordinators.TRANSACTION_STATE_LOG_MIN_ISR],
                "segment.bytes": config[coordinators.TRANSACTION_STATE_LOG_SEGMENT_BYTES],
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_STATES_TOPIC:
        return _topic(
            name,
            config[share.SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS],
            config[share.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR],
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": config[share.SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR],
                "retention.ms": "-1",
                "segment.bytes": config[share.SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES],
            },
        )
    return _topic(name, config[NUM_PARTITIONS], config[DEFAULT_REPLICATION_FACTOR], {})


def _topic(
    name: str, partitions: int, replication_factor: int, configs: dict[str, object]
) -> CreateTopicsRequest.Topic:
    return CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreateTopicsRequest.Topic.Config(name=key, value=str(value)) for key, value in configs.items()],
    )
