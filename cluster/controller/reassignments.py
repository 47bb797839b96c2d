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

from ..decision import DONE, Decision, ItemResult
from ..image.configs import topic_resource
from ..image.metadata import Metadata
from ..image.partition import Partition
from ..image.topics import Topic
from ..placement.assignments import check_assignment
from ..placement.memory_topics import check_assigned_brokers, check_min_insync
from ..placement.partition_change import PartitionTarget, change_partition, election_context
from ..placement.topic_overrides import is_unclean_election_allowed
from ..quorum.metadata_log import MetadataRecord
from ..settings import ControllerSettings
from .elections import default_election


@frozen
class ReassignmentReply:
    """The result for one partition. A topic without partitions in the request has one reply with `index` None."""

    topic: str
    index: int | None
    outcome: ItemResult


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
    for requested in topics:
        for target in requested.partitions:
            outcome = DONE
            try:
                topic, partition = _find(metadata, requested.name, target.partition_index)
                if target.replicas is None:
                    record = _cancel(metadata, settings, topic, partition)
                else:
                    new_replicas = tuple(target.replicas)
                    record = _move(metadata, settings, topic, partition, new_replicas, allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                outcome = ItemResult.of(error)
            replies.append(ReassignmentReply(topic=requested.name, index=target.partition_index, outcome=outcome))
        if not requested.partitions:
            replies.append(ReassignmentReply(topic=requested.name, index=None, outcome=DONE))
    return Decision(records=tuple(records), replies=tuple(replies))


def ongoing(
    metadata: Metadata, topics: Sequence[ListPartitionReassignmentsRequest.Topic] | None
) -> tuple[OngoingReassignment, ...]:
    """The reassignments in progress: all, or those of the named partitions that exist."""
    if topics is None:
        return tuple(
            OngoingReassignment(topic=topic.name, partition=partition)
            for topic, partition in metadata.topics.partitions()
            if partition.is_reassigning
        )
    found = []
    for requested in topics:
        topic = metadata.topics.by_name(requested.name)
        if topic is not None:
            partitions = (topic.partitions.get(index) for index in requested.partition_indexes)
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
    new_replicas: tuple[int, ...],
    allow_replication_factor_change: bool,
) -> PartitionChangeRecord | None:
    check_assignment(metadata.brokers, new_replicas)
    configs = metadata.configs.get(topic_resource(topic.name))
    check_assigned_brokers(metadata, configs, new_replicas)
    check_min_insync(configs, len(new_replicas))
    if not allow_replication_factor_change:
        # While another move is under way, its aim counts.
        staying = len(set(partition.replicas) - set(partition.removing_replicas))
        if len(new_replicas) != staying:
            raise InvalidReplicationFactor(
                f"{staying} replicas would become {len(new_replicas)}, which was not allowed"
            )
    removing = tuple(sorted(set(partition.replicas) - set(new_replicas)))
    adding = tuple(sorted(set(new_replicas) - set(partition.replicas)))
    if partition.is_reassigning:
        adding = tuple(sorted(set(adding) | (set(partition.adding_replicas) & set(new_replicas))))
    target = PartitionTarget(replicas=(*new_replicas, *removing), removing=removing, adding=adding)
    return change_partition(topic.topic_id, partition, election_context(metadata, settings, topic, partition), target)


def _cancel(
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
        # A replica that is alive is elected, and becomes the ISR. Without eligible leaders an ISR is never empty.
        isr = () if metadata.features.has_eligible_leader_replicas else replicas[:1]
    target = PartitionTarget(
        isr=isr,
        replicas=replicas,
        removing=(),
        adding=(),
        election=default_election(metadata, settings, topic, partition),
    )
    return change_partition(topic.topic_id, partition, election_context(metadata, settings, topic, partition), target)
