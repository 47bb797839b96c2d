"""What leaders and brokers tell of their replicas: AlterPartition (who is in sync) and AssignReplicasToDirs (where a
replica lies).

A leader proposes an ISR from what it knows; the controller takes it only if that is still true. The order of the
checks tells the leader what to do: find the real controller, stop leading, look again, or ask for another ISR.
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
from trioka.protocol.internal_records.metadata import PartitionChangeRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from trioka.protocol.primitives import uuid_text

from .broker_changes import check_broker_epoch
from .brokers import Broker
from .decision import DONE, Decision, Outcome
from .elections import automatic
from .metadata import Metadata
from .metadata_log import MetadataRecord
from .partition import LOST_DIRECTORY, NO_LEADER_CHANGE, Partition, RecoveryState
from .partition_change import Wish, change_partition, circumstances
from .settings import ControllerSettings
from .topics import Topic

ANY_EPOCH = -1  # of a broker whose leader is too old to know it


@frozen
class PartitionReply:
    """What became of one partition; `partition` is how it will be, unless there is an error."""

    topic_id: bytes
    index: int
    outcome: Outcome
    partition: Partition | None = None


@frozen
class DirectoryReply:
    directory: bytes
    topic_id: bytes
    index: int
    outcome: Outcome


# --- AlterPartition


def alter_partition(
    metadata: Metadata, settings: ControllerSettings, request: AlterPartitionRequest
) -> Decision[PartitionReply]:
    check_broker_epoch(metadata, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    replies = []
    for asked in request.topics:
        for proposal in asked.partitions:
            outcome, after, index = DONE, None, proposal.partition_index
            try:
                topic, partition = _find(metadata, asked.topic_id, index)
                _check_proposal(metadata, request.broker_id, partition, proposal)
                record = _accept(metadata, settings, topic, partition, proposal)
                after = partition if record is None else partition.changed_by(record)
                if record is not None:
                    records.append(record)
                    if record.leader not in (NO_LEADER_CHANGE, request.broker_id):
                        # The change counts all the same: it has ended a reassignment, and the leader was moved away.
                        raise NewLeaderElected(f"{topic.name}-{index} is led by {record.leader} from now on")
            except KafkaError as error:
                outcome, after = Outcome.of(error), None
            replies.append(PartitionReply(topic_id=asked.topic_id, index=index, outcome=outcome, partition=after))
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
        raise NotController("the leader knows more than this controller, which cannot be the active one any more")
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
            raise InvalidRequest("nobody can be in sync with a leader that is still recovering")
        if partition.leader_recovery_state is RecoveryState.RECOVERED:
            raise InvalidRequest("a leader that has recovered does not begin to recover again")
    _check_eligibility(metadata, isr)


def _check_eligibility(metadata: Metadata, isr: Mapping[int, int]) -> None:
    for broker_id, epoch in isr.items():
        broker = metadata.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in (ANY_EPOCH, broker.epoch):
            raise IneligibleReplica(f"broker {broker_id} is gone, fenced, shutting down, or was started anew")


def _accept(
    metadata: Metadata,
    settings: ControllerSettings,
    topic: Topic,
    partition: Partition,
    proposal: AlterPartitionRequest.Topic.Partition,
) -> PartitionChangeRecord | None:
    wish = Wish(
        isr=tuple(_isr_of(proposal)),
        recovery_state=RecoveryState(proposal.leader_recovery_state),
        election=automatic(metadata, settings, topic),
    )
    return change_partition(topic.topic_id, partition, circumstances(metadata, settings, topic, partition), wish)


# --- AssignReplicasToDirs


def assign_replicas_to_directories(
    metadata: Metadata, settings: ControllerSettings, request: AssignReplicasToDirsRequest
) -> Decision[DirectoryReply]:
    """A replica in a directory that is offline leaves the ISR; one whose directory is lost is not fit to lead either,
    until it has caught up again (S6). If a replica is named twice, the latter counts."""
    broker = check_broker_epoch(metadata, request.broker_id, request.broker_epoch)
    records: dict[tuple[bytes, int], MetadataRecord] = {}
    replies = []
    for directory, topic_id, index in _said(request.directories):
        outcome = DONE
        try:
            record = _assign(metadata, settings, broker, directory, *_find(metadata, topic_id, index))
            if record is not None:
                records[topic_id, index] = record
        except KafkaError as error:
            outcome = Outcome.of(error)
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
    now = circumstances(metadata, settings, topic, partition, is_active)
    wish = Wish(
        isr=isr,
        directories={broker.broker_id: directory},
        election=automatic(metadata, settings, topic),
        crashed=(broker.broker_id,) if directory == LOST_DIRECTORY else (),
    )
    return change_partition(topic.topic_id, partition, now, wish)


def _said(directories: Iterable[AssignReplicasToDirsRequest.Directory]) -> Iterable[tuple[bytes, bytes, int]]:
    for directory in directories:
        for topic in directory.topics:
            for partition in topic.partitions:
                yield directory.id, topic.topic_id, partition.partition_index
