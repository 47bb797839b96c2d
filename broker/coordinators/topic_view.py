"""Topics as coordinators see them (`coordinator/topics.py`), read from the metadata on demand.

Results are cached until the metadata changes: each commit looks up its topic, and a topic may have thousands of
partitions.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trioka.coordinator.topics import Topic

if TYPE_CHECKING:
    from trioka.cluster.image.metadata import Metadata
    from trioka.cluster.image.topics import Topic as ClusterTopic

    from ..broker import Broker


class TopicView:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._seen_at = -1
        self._seen: dict[bytes, Topic] = {}

    @property
    def version(self) -> int:
        return self._metadata.offset

    def by_name(self, name: str) -> Topic | None:
        return self._show(self._metadata.topics.by_name(name))

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._show(self._metadata.topics.by_id(topic_id))

    def names(self) -> Iterator[str]:
        return (topic.name for topic in self._metadata.topics)

    @property
    def _metadata(self) -> "Metadata":
        return self._broker.metadata

    def _show(self, topic: "ClusterTopic | None") -> Topic | None:
        if topic is None:
            return None
        if self._seen_at != self.version:
            self._seen_at = self.version
            self._seen.clear()
        shown = self._seen.get(topic.topic_id)
        if shown is None:
            shown = self._seen[topic.topic_id] = self._read(topic)
        return shown

    def _read(self, topic: "ClusterTopic") -> Topic:
        rack_of = {broker.broker_id: broker.rack for broker in self._metadata.brokers}
        racks = tuple(
            frozenset(rack for replica in partition.replicas if (rack := rack_of.get(replica)) is not None)
            for partition in topic.partitions.values()
        )
        return Topic(id=topic.topic_id, name=topic.name, racks=racks)
