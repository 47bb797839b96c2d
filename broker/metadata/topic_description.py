"""What Metadata and DescribeTopicPartitions tell of a partition, seen from one listener.

A leader that cannot be reached through the listener on which the question came is none for that client. Replicas on
brokers that are fenced, gone, or not on this listener are offline, and so are those in a directory that has failed.
"""

from typing import NamedTuple

from trioka.cluster.metadata import Metadata
from trioka.cluster.partition import LOST_DIRECTORY, Partition, is_reserved_directory
from trioka.cluster.topic_names import check_topic_name
from trioka.protocol.errors import (
    InvalidTopic,
    KafkaError,
    LeaderNotAvailable,
    ListenerNotFound,
    UnknownTopicOrPartition,
)


class Described(NamedTuple):
    partition: Partition
    error_code: int
    leader_id: int  # -1 if it cannot be reached
    offline: list[int]  # replicas


class TopicDescription:
    """Made for one answer. Two that are equal tell the same of a partition."""

    __slots__ = ("_directories", "_knows_listeners", "_registered", "_within_reach")

    def __init__(self, metadata: Metadata, listener: str, *, knows_listeners: bool = False) -> None:
        """A client that `knows_listeners` is told when a leader is there and only not on this one."""
        self._registered = {broker.broker_id for broker in metadata.brokers}
        self._within_reach = {
            broker.broker_id
            for broker in metadata.brokers
            if not broker.fenced and broker.listener(listener) is not None
        }
        self._directories = {broker.broker_id: broker.directories for broker in metadata.brokers}
        self._knows_listeners = knows_listeners

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicDescription):
            return NotImplemented
        return self._all() == other._all()

    __hash__ = None  # type: ignore[assignment]

    def _all(self) -> tuple[object, ...]:
        return self._registered, self._within_reach, self._directories, self._knows_listeners

    def _is_lost(self, broker_id: int, directory: bytes) -> bool:
        online = self._directories[broker_id]
        if not online or directory in online:
            return False
        return directory == LOST_DIRECTORY or not is_reserved_directory(directory)

    def partition(self, partition: Partition) -> Described:
        reach = self._within_reach
        offline = [
            broker_id
            for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
            if broker_id not in reach or self._is_lost(broker_id, directory)
        ]
        if partition.leader in reach:
            return Described(partition, 0, partition.leader, offline)
        elsewhere = self._knows_listeners and partition.leader in self._registered
        error: type[KafkaError] = ListenerNotFound if elsewhere else LeaderNotAvailable
        return Described(partition, error.code, -1, offline)


def why_unknown(name: str) -> type[KafkaError]:
    """A topic that is not there may not be there, or never can be."""
    try:
        check_topic_name(name)
    except InvalidTopic:
        return InvalidTopic
    return UnknownTopicOrPartition


def whom_to_ask(metadata: Metadata, node_id: int) -> int:
    """The broker that is told to be the controller: this one, since it passes on what it is asked to change. If it is
    not part of the cluster now, another; -1 if there is none."""
    alive = [broker.broker_id for broker in metadata.brokers if not broker.fenced]
    return node_id if node_id in alive else min(alive, default=-1)
