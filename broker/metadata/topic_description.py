"""Descriptions of partitions in Metadata and DescribeTopicPartitions responses, for the clients of one listener.

A leader that has no address on the client's listener is reported as not available. Replicas are offline if their broker
is fenced, unregistered or not on this listener, or if their log directory has failed.
"""

from typing import NamedTuple

from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.partition import LOST_DIRECTORY, Partition, is_reserved_directory
from trioka.cluster.placement.topic_names import check_topic_name
from trioka.protocol.errors import (
    InvalidTopic,
    KafkaError,
    LeaderNotAvailable,
    ListenerNotFound,
    UnknownTopicOrPartition,
)


class PartitionDescription(NamedTuple):
    partition: Partition
    error_code: int
    leader_id: int  # -1 if it is not reachable through the listener
    offline: list[int]  # replicas


class TopicDescription:
    """The state of the brokers that descriptions depend on. Equal instances describe a partition equally."""

    __slots__ = ("_directories", "_knows_listeners", "_reachable", "_registered")

    def __init__(self, metadata: Metadata, listener: str, *, knows_listeners: bool = False) -> None:
        """Clients that `knows_listeners` get LISTENER_NOT_FOUND if the leader is only missing on this listener."""
        self._registered = {broker.broker_id for broker in metadata.brokers}
        self._reachable = {
            broker.broker_id
            for broker in metadata.brokers
            if not broker.fenced and broker.listener(listener) is not None
        }
        self._directories = {broker.broker_id: broker.directories for broker in metadata.brokers}
        self._knows_listeners = knows_listeners

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicDescription):
            return NotImplemented
        return self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]

    def _state(self) -> tuple[object, ...]:
        return self._registered, self._reachable, self._directories, self._knows_listeners

    def _is_lost(self, broker_id: int, directory: bytes) -> bool:
        online = self._directories[broker_id]
        if not online or directory in online:
            return False
        return directory == LOST_DIRECTORY or not is_reserved_directory(directory)

    def partition(self, partition: Partition) -> PartitionDescription:
        reach = self._reachable
        offline = [
            broker_id
            for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
            if broker_id not in reach or self._is_lost(broker_id, directory)
        ]
        if partition.leader in reach:
            return PartitionDescription(partition, 0, partition.leader, offline)
        is_registered = self._knows_listeners and partition.leader in self._registered
        error: type[KafkaError] = ListenerNotFound if is_registered else LeaderNotAvailable
        return PartitionDescription(partition, error.code, -1, offline)


def unknown_topic_error(name: str) -> type[KafkaError]:
    """The error for a topic that does not exist: InvalidTopic if its name is invalid."""
    try:
        check_topic_name(name)
    except InvalidTopic:
        return InvalidTopic
    return UnknownTopicOrPartition


def advertised_controller(metadata: Metadata, node_id: int) -> int:
    """The id that clients see as the controller: this broker, since it forwards requests to the active controller. If
    this broker is fenced, another live broker; -1 if there is none."""
    alive = [broker.broker_id for broker in metadata.brokers if not broker.fenced]
    return node_id if node_id in alive else min(alive, default=-1)
