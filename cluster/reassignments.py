"""Reassignments: partitions move to other replicas.

A move grows the partition first: the new replicas are added, the old ones stay. When all new ones are in sync the old
ones are removed. Until then it can be called off. Where nothing has to be copied it ends at once.
"""

from collections.abc import Sequence

from trioka.protocol.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from trioka.protocol.internal_records.metadata import PartitionChangeRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

from .assignments import check_assignment
from .decision import DONE, Decision, Outcome
from .elections import automatic
from .metadata import Metadata
from .metadata_log import MetadataRecord
from .partition import Partition
from .partition_change import Wish, change_partition, circumstances
from .settings import ControllerSettings
from .topic_overrides import is_unclean_election_allowed
from .topics import Topic


@frozen
class ReassignmentReply:
    """What became of one partition. A topic for which nothing was asked has one reply with `index` None."""

    topic: str
    index: int | None
    outcome: Outcome


@frozen
class OngoingReassignment:
    topic: str
    partition: Partition


def alter(
    metadata: Metadata,
    settings: ControllerSettings,
    topics: Sequence[AlterPartitionReassignmentsRequest.Topic],
    allow_replication_factor_change: bool,
) -> Decision[ReassignmentReply]:
    records: list[MetadataRecord] = []
    replies = []
    for wanted in topics:
        for target in wanted.partitions:
            outcome = DONE
            try:
                topic, partition = _find(metadata, wanted.name, target.partition_index)
                if target.replicas is None:
                    record = _call_off(metadata, settings, topic, partition)
                else:
                    aim = tuple(target.replicas)
                    record = _move(metadata, settings, topic, partition, aim, allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                outcome = Outcome.of(error)
            replies.append(ReassignmentReply(topic=wanted.name, index=target.partition_index, outcome=outcome))
        if not wanted.partitions:
            replies.append(ReassignmentReply(topic=wanted.name, index=None, outcome=DONE))
    return Decision(records=tuple(records), replies=tuple(replies))


def ongoing(
    metadata: Metadata, topics: Sequence[ListPartitionReassignmentsRequest.Topic] | None
) -> tuple[OngoingReassignment, ...]:
    """The moves under way: all, or of those partitions that were named and exist."""
    if topics is None:
        return tuple(
            OngoingReassignment(topic=topic.name, partition=partition)
            for topic, partition in metadata.topics.partitions()
            if partition.is_reassigning
        )
    found = []
    for wanted in topics:
        topic = metadata.topics.by_name(wanted.name)
        if topic is not None:
            partitions = (topic.partitions.get(index) for index in wanted.partition_indexes)
            found += [
                OngoingReassignment(topic=topic.name, partition=partition)
                for partition in partitions
                if partition is not None and partition.is_reassigning
            ]
    return tuple(found)


def _find(metadata: Metadata, name: str, index: int) -> tuple[Topic, Partition]:
    topic = metadata.topics.by_name(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic named {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"there is no partition {name}:{index}")
    return topic, partition


def _move(
    metadata: Metadata,
    settings: ControllerSettings,
    topic: Topic,
    partition: Partition,
    aim: tuple[int, ...],
    allow_replication_factor_change: bool,
) -> PartitionChangeRecord | None:
    check_assignment(metadata.brokers, aim)
    if not allow_replication_factor_change:
        # While another move is under way, its aim counts.
        staying = len(set(partition.replicas) - set(partition.removing_replicas))
        if len(aim) != staying:
            raise InvalidReplicationFactor(f"{staying} replicas would become {len(aim)}, which was not allowed")
    removing = tuple(sorted(set(partition.replicas) - set(aim)))
    adding = tuple(sorted(set(aim) - set(partition.replicas)))
    if partition.is_reassigning:
        adding = tuple(sorted(set(adding) | (set(partition.adding_replicas) & set(aim))))
    wish = Wish(replicas=(*aim, *removing), removing=removing, adding=adding)
    return change_partition(topic.topic_id, partition, circumstances(metadata, settings, topic, partition), wish)


def _call_off(
    metadata: Metadata, settings: ControllerSettings, topic: Topic, partition: Partition
) -> PartitionChangeRecord | None:
    if not partition.is_reassigning:
        raise NoReassignmentInProgress
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    if not replicas:
        raise InvalidReplicaAssignment(f"all replicas of {topic.name}-{partition.index} are new: there is no way back")
    if not isr:
        if not is_unclean_election_allowed(metadata, settings, topic):
            raise InvalidReplicaAssignment(
                f"none of the former replicas of {topic.name}-{partition.index} is in sync, and an unclean election "
                "is not allowed"
            )
        # Whoever is there is elected, and becomes the ISR. Without eligible leaders an ISR is never empty.
        isr = () if metadata.features.has_eligible_leader_replicas else replicas[:1]
    wish = Wish(isr=isr, replicas=replicas, removing=(), adding=(), election=automatic(metadata, settings, topic))
    return change_partition(topic.topic_id, partition, circumstances(metadata, settings, topic, partition), wish)
