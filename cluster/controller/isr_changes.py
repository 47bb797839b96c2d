"""AlterPartition (a leader proposes an ISR) and AssignReplicasToDirs (a broker reports the directory of a replica).

A leader proposes an ISR from what it knows; the controller accepts it only if that is still true. The order of the
checks gives the leader the right error: find the active controller, stop leading, refresh, or propose another ISR.
"""

from collections.abc import Iterable, Mapping

from trioka.protocol.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotController,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.internal_records.metadata import NoOpRecord, PartitionChangeRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from trioka.protocol.primitives import uuid_text

from ..decision import DONE, Decision, ItemResult
from ..image.brokers import Broker
from ..image.metadata import Metadata
from ..image.partition import LOST_DIRECTORY, NO_LEADER_CHANGE, Partition, RecoveryState
from ..image.topics import Topic
from ..placement.partition_change import PartitionTarget, change_partition, election_context
from ..quorum.metadata_log import MetadataRecord
from ..settings import ControllerSettings
from .broker_changes import check_broker_epoch
from .elections import default_election

ANY_EPOCH = -1  # of a broker whose leader is too old to send it


@frozen
class PartitionReply:
    """The result for one partition; `partition` is its new state, unless there is an error."""

    topic_id: bytes
    index: int
    outcome: ItemResult
    partition: Partition | None = None


@frozen
class DirectoryReply:
    directory: bytes
    topic_id: bytes
    index: int
    outcome: ItemResult


# --- AlterPartition


def alter_partition(
    metadata: Metadata, settings: ControllerSettings, request: AlterPartitionRequest
) -> Decision[PartitionReply]:
    """A proposal that changes nothing is answered only after a record is committed, too: a leader asks in this way
    whether it still leads (cluster/replication/read_barrier.py), and a controller that was replaced must not say so."""
    check_broker_epoch(metadata, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    replies = []
    for requested in request.topics:
        for proposal in requested.partitions:
            outcome, after, index = DONE, None, proposal.partition_index
            try:
                topic, partition = _find(metadata, requested.topic_id, index)
                _check_proposal(metadata, request.broker_id, partition, proposal)
                record = _accept(metadata, settings, topic, partition, proposal)
                after = partition if record is None else partition.changed_by(record)
                if record is not None:
                    records.append(record)
                    if record.leader not in (NO_LEADER_CHANGE, request.broker_id):
                        # The change counts all the same: it has ended a reassignment, and the leader was moved away.
                        raise NewLeaderElected(f"{topic.name}-{index} is led by {record.leader} from now on")
            except KafkaError as error:
                outcome, after = ItemResult.of(error), None
            replies.append(PartitionReply(topic_id=requested.topic_id, index=index, outcome=outcome, partition=after))
    if not records and any(reply.partition is not None for reply in replies):
        records.append(NoOpRecord())
    return Decision(records=tuple(records), replies=tuple(replies))


def _find(metadata: Metadata, topic_id: bytes, index: int) -> tuple[Topic, Partition]:
    topic = metadata.topics.by_id(topic_id)
    if topic is None:
        raise UnknownTopicId(f"there is no topic with the id {uuid_text(topic_id)}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"topic {topic.name!r} has no partition {index}")
    return topic, partition


def _isr_of(proposal: AlterPartitionRequest.Topic.Partition) -> Mapping[int, int]:
    """The proposed ISR, each with its broker epoch."""
    if proposal.new_isr_with_epochs:
        return {each.broker_id: each.broker_epoch for each in proposal.new_isr_with_epochs}
    return dict.fromkeys(proposal.new_isr, ANY_EPOCH)


def _check_proposal(
    metadata: Metadata, broker_id: int, partition: Partition, proposal: AlterPartitionRequest.Topic.Partition
) -> None:
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        raise NotController("the leader has a newer epoch than this controller, which is no longer the active one")
    if proposal.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"the leader epoch is {partition.leader_epoch}, not {proposal.leader_epoch}")
    if broker_id != partition.leader:
        raise InvalidRequest(f"broker {partition.leader} leads, not {broker_id}")
    if proposal.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion(f"the partition epoch is {partition.partition_epoch}")
    isr = _isr_of(proposal)
    count = len(proposal.new_isr_with_epochs) or len(proposal.new_isr)
    if not set(isr) <= set(partition.replicas) or len(isr) != count:
        raise InvalidRequest(f"an ISR of {sorted(isr)}, and the replicas are {partition.replicas}")
    if partition.leader not in isr:
        raise InvalidRequest("a leader cannot leave the ISR by itself")
    if proposal.leader_recovery_state not in (RecoveryState.RECOVERED, RecoveryState.RECOVERING):
        raise InvalidRequest(f"the recovery state {proposal.leader_recovery_state} is not known")
    if proposal.leader_recovery_state == RecoveryState.RECOVERING:
        if len(isr) > 1:
            raise InvalidRequest("no follower can be in sync with a leader that is still recovering")
        if partition.leader_recovery_state is RecoveryState.RECOVERED:
            raise InvalidRequest("a leader that has recovered does not begin to recover again")
    _check_eligibility(metadata, isr)


def _check_eligibility(metadata: Metadata, isr: Mapping[int, int]) -> None:
    for broker_id, epoch in isr.items():
        broker = metadata.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in (ANY_EPOCH, broker.epoch):
            raise IneligibleReplica(f"broker {broker_id} is unregistered, fenced, shutting down, or was restarted")


def _accept(
    metadata: Metadata,
    settings: ControllerSettings,
    topic: Topic,
    partition: Partition,
    proposal: AlterPartitionRequest.Topic.Partition,
) -> PartitionChangeRecord | None:
    target = PartitionTarget(
        isr=tuple(_isr_of(proposal)),
        recovery_state=RecoveryState(proposal.leader_recovery_state),
        election=default_election(metadata, settings, topic, partition),
    )
    return change_partition(topic.topic_id, partition, election_context(metadata, settings, topic, partition), target)


# --- AssignReplicasToDirs


def assign_replicas_to_directories(
    metadata: Metadata, settings: ControllerSettings, request: AssignReplicasToDirsRequest
) -> Decision[DirectoryReply]:
    """A replica in an offline directory leaves the ISR; a replica whose directory is lost cannot lead either, until it
    has caught up again (S6). If a replica is named twice, the latter counts."""
    broker = check_broker_epoch(metadata, request.broker_id, request.broker_epoch)
    records: dict[tuple[bytes, int], MetadataRecord] = {}
    replies = []
    for directory, topic_id, index in _assigned_directories(request.directories):
        outcome = DONE
        try:
            record = _assign(metadata, settings, broker, directory, *_find(metadata, topic_id, index))
            if record is not None:
                records[topic_id, index] = record
        except KafkaError as error:
            outcome = ItemResult.of(error)
        replies.append(DirectoryReply(directory=directory, topic_id=topic_id, index=index, outcome=outcome))
    return Decision(records=tuple(records.values()), replies=tuple(replies))


def _assign(
    metadata: Metadata,
    settings: ControllerSettings,
    broker: Broker,
    directory: bytes,
    topic: Topic,
    partition: Partition,
) -> PartitionChangeRecord | None:
    if broker.broker_id not in partition.replicas:
        raise NotLeaderOrFollower(f"broker {broker.broker_id} holds no replica of {topic.name}-{partition.index}")
    is_online = directory in broker.directories

    def is_active(other: int) -> bool:
        return (is_online or other != broker.broker_id) and metadata.brokers.is_active(other)

    isr = tuple(replica for replica in partition.isr if is_online or replica != broker.broker_id)
    now = election_context(metadata, settings, topic, partition, is_active)
    target = PartitionTarget(
        isr=isr,
        directories={broker.broker_id: directory},
        election=default_election(metadata, settings, topic, partition),
        crashed=(broker.broker_id,) if directory == LOST_DIRECTORY else (),
    )
    return change_partition(topic.topic_id, partition, now, target)


def _assigned_directories(
    directories: Iterable[AssignReplicasToDirsRequest.Directory],
) -> Iterable[tuple[bytes, bytes, int]]:
    for directory in directories:
        for topic in directory.topics:
            for partition in topic.partitions:
                yield directory.id, topic.topic_id, partition.partition_index
