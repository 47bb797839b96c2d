"""Topics that come into being because somebody asks for them: with the broker's defaults, or, if they are the brokers'
own, with what their keys say.
"""

from typing import Final

from trioka.protocol.messages.create_topics import CreateTopicsRequest

from .config import coordinator_keys as coordinators
from .config import share_keys as share
from .config.effective import Config
from .config.node_keys import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATES_TOPIC: Final = "__share_group_state"


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
