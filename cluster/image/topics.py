"""The topics and their partitions, by name and by id."""

from collections.abc import Iterator
from typing import Final

from trioka.protocol.internal_records.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from trioka.protocol.primitives import uuid_text

from ..quorum.metadata_log import MetadataRecord
from .partition import Partition
from .replay_error import ReplayError

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
CLUSTER_METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"  # clients do not see it as internal, as in Kafka
BROKER_TOPICS: Final = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}  # that only brokers write to


class Topic:
    """A topic. Its partitions are numbered from nought without a gap, once all records of its creation are there."""

    __slots__ = ("name", "partitions", "revision", "topic_id")

    def __init__(self, *, name: str, topic_id: bytes, partitions: dict[int, Partition] | None = None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, Partition] = {} if partitions is None else partitions  # ascending
        self.revision = 0  # how often its partitions have changed: caches compare it

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topic):
            return NotImplemented
        return (self.name, self.topic_id, self.partitions) == (other.name, other.topic_id, other.partitions)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {uuid_text(self.topic_id)}, {len(self.partitions)} partitions)"

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Of its first partition; partitions in a reassignment may temporarily have more."""
        return len(self.partitions[0].replicas)


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def unified_name(name: str) -> str:
    """`a.b` and `a_b` are the same name to a metrics system, so that only one of them may exist."""
    return name.replace(".", "_")


class Topics:
    """All topics. Iteration is in the order of names, the same on every node."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_unified_name: dict[str, set[str]] = {}
        self._sorted_names: list[str] | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Topic]:
        if self._sorted_names is None:
            self._sorted_names = sorted(self._by_name)
        return (self._by_name[name] for name in self._sorted_names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topics) and self._by_name == other._by_name

    __hash__ = None  # type: ignore[assignment]

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, topic_id: bytes, index: int) -> Partition | None:
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partitions(self) -> Iterator[tuple[Topic, Partition]]:
        """Every partition of every topic."""
        for topic in self:
            for partition in topic.partitions.values():
                yield topic, partition

    def colliding(self, name: str) -> str | None:
        """The topic that collides with this name, because a metrics system could not distinguish the two."""
        if not has_collision_characters(name):
            return None
        return min(self._by_unified_name.get(unified_name(name), ()), default=None)

    def copy(self) -> "Topics":
        topics = Topics()
        for topic in self._by_name.values():
            topics._add(Topic(name=topic.name, topic_id=topic.topic_id, partitions=dict(topic.partitions)))
        return topics

    # --- replay

    def replay_topic(self, record: TopicRecord) -> Topic:
        if record.name in self._by_name or record.topic_id in self._by_id:
            raise ReplayError(f"topic {record.name!r}, {uuid_text(record.topic_id)}, exists already")
        topic = Topic(name=record.name, topic_id=record.topic_id)
        self._add(topic)
        return topic

    def replay_removal(self, record: RemoveTopicRecord) -> Topic:
        topic = self._known(record.topic_id)
        del self._by_id[topic.topic_id], self._by_name[topic.name]
        self._sorted_names = None
        if has_collision_characters(topic.name):
            names = self._by_unified_name[unified_name(topic.name)]
            names.remove(topic.name)
            if not names:
                del self._by_unified_name[unified_name(topic.name)]
        return topic

    def replay_partition(self, record: PartitionRecord) -> tuple[Topic, Partition | None, Partition]:
        """A partition, whole: it may exist already, and then is replaced."""
        topic = self._known(record.topic_id)
        before = topic.partitions.get(record.partition_id)
        after = Partition.from_record(record)
        last = next(reversed(topic.partitions), -1)
        topic.partitions[after.index] = after
        topic.revision += 1
        if after.index < last and before is None:  # a snapshot of another node may have any order
            topic.partitions = dict(sorted(topic.partitions.items()))
        return topic, before, after

    def replay_partition_change(self, record: PartitionChangeRecord) -> tuple[Topic, Partition, Partition]:
        topic = self._known(record.topic_id)
        before = topic.partitions.get(record.partition_id)
        if before is None:
            raise ReplayError(f"topic {topic.name!r} has no partition {record.partition_id} to change")
        after = topic.partitions[before.index] = before.changed_by(record)
        topic.revision += 1
        return topic, before, after

    def replay_cleared_elr(self, record: ClearElrRecord) -> list[tuple[Topic, Partition, Partition]]:
        """Clears the eligible leader replicas of one topic, or with an empty name those of all."""
        topics = list(self)
        if record.topic_name:
            named = self._by_name.get(record.topic_name)
            if named is None:
                raise ReplayError(
                    f"cannot clear the eligible leaders of topic {record.topic_name!r}: it does not exist"
                )
            topics = [named]
        changed = []
        for topic in topics:
            for before in list(topic.partitions.values()):
                if before.eligible_leader_replicas or before.last_known_elr:
                    nothing = PartitionChangeRecord(
                        partition_id=before.index,
                        topic_id=topic.topic_id,
                        eligible_leader_replicas=[],
                        last_known_elr=[],
                    )
                    after = topic.partitions[before.index] = before.changed_by(nothing)
                    topic.revision += 1
                    changed.append((topic, before, after))
        return changed

    def records(self) -> Iterator[MetadataRecord]:
        """The records that produce the same topics in replay."""
        for topic in self:
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for partition in topic.partitions.values():
                yield partition.record(topic.topic_id)

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._sorted_names = None
        if has_collision_characters(topic.name):
            self._by_unified_name.setdefault(unified_name(topic.name), set()).add(topic.name)

    def _known(self, topic_id: bytes) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise ReplayError(f"there is no topic with the id {uuid_text(topic_id)}")
        return topic
