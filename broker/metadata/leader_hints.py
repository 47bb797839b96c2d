"""Leader hints in Produce and Fetch responses (KIP-951): the current leader, its epoch and its address for partitions
that this broker does not lead. They save clients a Metadata request.
"""

from typing import TYPE_CHECKING, NamedTuple

from trioka.cluster.partition import Partition
from trioka.protocol.messages.fetch import FetchResponse
from trioka.protocol.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from ..broker import Broker


class LeaderHint(NamedTuple):
    id: int
    epoch: int


NO_LEADER = LeaderHint(-1, -1)


class LeaderHints:
    """The leader hints of one response."""

    def __init__(self, broker: "Broker", listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._leaders: set[int] = set()

    def leader(self, topic: str, topic_id: bytes, index: int) -> LeaderHint:
        """The leader of a partition, whose topic is given by name or by id. Its address joins the endpoints."""
        partition = self._partition(topic, topic_id, index)
        if partition is None:
            return NO_LEADER
        self._leaders.add(partition.leader)
        return LeaderHint(partition.leader, partition.leader_epoch)

    def _partition(self, topic: str, topic_id: bytes, index: int) -> Partition | None:
        topics = self._broker.metadata.topics
        image = topics.by_name(topic) if topic else topics.by_id(topic_id)
        return None if image is None else image.partitions.get(index)

    def _addresses(self) -> list[tuple[int, str, int, str | None]]:
        return [endpoint for endpoint in self._broker.endpoints(self._listener) if endpoint[0] in self._leaders]

    def fetch_endpoints(self) -> list[FetchResponse.NodeEndpoint]:
        return [
            FetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in self._addresses()
        ]

    def produce_endpoints(self) -> list[ProduceResponse.NodeEndpoint]:
        return [
            ProduceResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in self._addresses()
        ]
