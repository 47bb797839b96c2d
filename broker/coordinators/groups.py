"""The group coordinators of this broker's partitions of `__consumer_offsets`, and the dispatch of requests to them.

Imported with the first group or the first request for one, so that it does not delay a broker's start.
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.features import GROUP_VERSION
from trioka.coordinator.client import Client
from trioka.coordinator.deadlines import Deadlines
from trioka.coordinator.groups import GroupCoordinator
from trioka.coordinator.record_codec import GROUPS
from trioka.coordinator.settings import CoordinatorContext
from trioka.protocol.compression import Codec

from ..config.coordinator_keys import (
    GROUP_COORDINATOR_REBALANCE_PROTOCOLS,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_TOPIC_COMPRESSION_CODEC,
    OFFSETS_TOPIC_NUM_PARTITIONS,
)
from ..controller.topic_creation import OFFSETS_TOPIC
from .group_config import GroupConfigs
from .runtime import CoordinatorRuntime
from .topic_view import TopicView

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def new_group_runtime(broker: "Broker") -> CoordinatorRuntime[GroupCoordinator]:
    settings, topics = GroupConfigs(broker), TopicView(broker)

    def new(epoch: int) -> GroupCoordinator:
        return GroupCoordinator(
            CoordinatorContext(
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
    return CoordinatorRuntime(
        broker,
        OFFSETS_TOPIC,
        GROUPS,
        new,
        lambda: broker.config[OFFSETS_TOPIC_NUM_PARTITIONS],
        codec=Codec(config[OFFSETS_TOPIC_COMPRESSION_CODEC]),
        commit_timeout_s=config[OFFSETS_COMMIT_TIMEOUT_MS] / 1000,
    )


def has_consumer_groups(broker: "Broker") -> bool:
    """Whether the cluster's features and this broker's settings allow consumer groups."""
    return (
        broker.metadata.features.level(GROUP_VERSION) > 0
        and "consumer" in broker.config[GROUP_COORDINATOR_REBALANCE_PROTOCOLS]
    )


def client_of(call: "Call") -> Client:
    """The client of a request, as groups store it."""
    connection = call.connection
    return Client(call.client_id, f"/{connection.host}", call.version, connection.principal)
