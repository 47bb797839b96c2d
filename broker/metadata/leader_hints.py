"""Where a client finds what this broker does not lead: who leads instead, in which epoch, and where (KIP-951). It need
not ask for the metadata then.
"""

from typing import TYPE_CHECKING, NamedTuple

from trioka.cluster.partition import Partition
from trioka.protocol.messages.fetch import FetchResponse
from trioka.protocol.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from ..broker import Broker


class Leader(NamedTuple):
    id: int
    epoch: int


NOBODY = Leader(-1, -1)


class Elsewhere:
    """Made for one answer, with the first partition that is not led here."""

    def __init__(self, broker: "Broker", listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._leaders: set[int] = set()

    def leader(self, topic: str, topic_id: bytes, index: int) -> Leader:
        """Of a partition, by the name or by the id of its topic."""
        partition = self._partition(topic, topic_id, index)
        if partition is None:
            return NOBODY
        self._leaders.add(partition.leader)
        return Leader(partition.leader, partition.leader_epoch)

    def _partition(self, topic: str, topic_id: bytes, index: int) -> Partition | None:
        topics = self._broker.metadata.topics
        found = topics.by_name(topic) if topic else topics.by_id(topic_id)
        return None if found is None else found.partitions.get(index)

    def _addresses(self) -> list[tuple[int, str, int, str | None]]:
        return [found for found in self._broker.endpoints(self._listener) if found[0] in self._leaders]

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
