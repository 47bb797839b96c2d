"""What is checked of every question of the quorum: it is of this cluster, of the one partition, and for this node."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.voters import ReplicaKey
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
    asked = [(topic.topic_name, partition.partition_index) for topic in topics for partition in topic.partitions]
    if asked != [(CLUSTER_METADATA_TOPIC, 0)]:
        raise InvalidRequest(f"{asked[:3]} is not the metadata's partition")


def check_addressee(quorum: "Quorum", voter: ReplicaKey) -> None:
    """A voter is a node with a certain directory: what was meant for its former disk is not for this one."""
    if voter.id >= 0 and not voter.matches(quorum.raft.me):
        raise InvalidVoterKey(f"this is node {quorum.node_id}, with another directory or another number")


def known_endpoints(quorum: "Quorum") -> dict[int, Server]:
    """Where the leader listens, if that is known."""
    leader_id = quorum.leader_id
    if leader_id is None:
        return {}
    if leader_id == quorum.node_id and quorum.endpoints:
        return {leader_id: Server(quorum.endpoints[0].host, quorum.endpoints[0].port)}
    address = quorum.address_of(leader_id)
    return {} if address is None else {leader_id: address}
