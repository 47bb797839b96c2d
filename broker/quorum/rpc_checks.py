"""Checks of every quorum request: its cluster, its partition, and its destination must be this node's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import InconsistentClusterId, InvalidRequest, InvalidVoterKey

from ..config.addresses import Server

if TYPE_CHECKING:
    from .driver import Quorum


class _Partition(Protocol):
    @property
    def partition_index(self) -> int: ...


class _Topic(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[_Partition]: ...


def check_cluster(quorum: "Quorum", cluster_id: str | None) -> None:
    if cluster_id is not None and cluster_id != quorum.cluster_id:
        raise InconsistentClusterId(f"this is cluster {quorum.cluster_id}, not {cluster_id}")


def check_quorum_request(quorum: "Quorum", cluster_id: str | None, topics: Sequence[_Topic]) -> None:
    quorum.check()
    check_cluster(quorum, cluster_id)
    requested = [(topic.topic_name, partition.partition_index) for topic in topics for partition in topic.partitions]
    if requested != [(CLUSTER_METADATA_TOPIC, 0)]:
        raise InvalidRequest(f"{requested[:3]} is not the metadata partition")


def check_destination(quorum: "Quorum", voter: ReplicaKey) -> None:
    """A voter is a node with a directory id: a request for a former directory is rejected."""
    if voter.id >= 0 and not voter.matches(quorum.raft.me):
        raise InvalidVoterKey(f"this is node {quorum.node_id}, with another directory or node id")


def known_endpoints(quorum: "Quorum") -> dict[int, Server]:
    """The leader's endpoint, if it is known."""
    leader_id = quorum.leader_id
    if leader_id is None:
        return {}
    if leader_id == quorum.node_id and quorum.endpoints:
        return {leader_id: Server(quorum.endpoints[0].host, quorum.endpoints[0].port)}
    address = quorum.address_of(leader_id)
    return {} if address is None else {leader_id: address}
