"""Where groups are coordinated: the coordinators of this broker's partitions of `__consumer_offsets`, and how requests
reach them.

Loaded when there is a group to look after, or somebody asks for one: a broker's start does not wait for it.
"""

from typing import TYPE_CHECKING

from trioka.cluster.features import GROUP_VERSION
from trioka.coordinator.client import Client
from trioka.coordinator.deadlines import Deadlines
from trioka.coordinator.groups import GroupCoordinator
from trioka.coordinator.record_codec import GROUPS
from trioka.coordinator.settings import Surroundings
from trioka.protocol.compression import Codec

from ..config.coordinator_keys import (
    GROUP_COORDINATOR_REBALANCE_PROTOCOLS,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_TOPIC_COMPRESSION_CODEC,
    OFFSETS_TOPIC_NUM_PARTITIONS,
)
from ..controller.topic_creation import OFFSETS_TOPIC
from .group_config import GroupSettings
from .runtime import Shards
from .topic_view import TopicsWindow

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def group_shards(broker: "Broker") -> Shards[GroupCoordinator]:
    settings, topics = GroupSettings(broker), TopicsWindow(broker)

    def new(epoch: int) -> GroupCoordinator:
        return GroupCoordinator(
            Surroundings(
                classic=settings.classic,
                consumer=settings.consumer,
                offsets=settings.offsets,
                topics=topics,
                deadlines=Deadlines(),
                random=broker.random,
                may_describe=lambda client, topic: broker.guard.may_know(
                    client.principal, client.host.removeprefix("/"), topic
                ),
            )
        )

    config = broker.config
    return Shards(
        broker,
        OFFSETS_TOPIC,
        GROUPS,
        new,
        lambda: broker.config[OFFSETS_TOPIC_NUM_PARTITIONS],
        codec=Codec(config[OFFSETS_TOPIC_COMPRESSION_CODEC]),
        commit_timeout_s=config[OFFSETS_COMMIT_TIMEOUT_MS] / 1000,
    )


def has_consumer_groups(broker: "Broker") -> bool:
    """Whether the cluster's features and this broker's settings let there be any."""
    return (
        broker.metadata.features.level(GROUP_VERSION) > 0
        and "consumer" in broker.config[GROUP_COORDINATOR_REBALANCE_PROTOCOLS]
    )


def client_of(call: "Call") -> Client:
    """Who asks, as groups write it down."""
    connection = call.connection
    return Client(call.client_id, f"/{connection.host}", call.version, connection.principal)
