"""Elections: requested by users (ElectLeaders), caused by brokers that stop or start, or run periodically to return
leadership to the preferred replicas.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from trioka.protocol.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest

from ..decision import DONE, Decision, ItemResult
from ..image.metadata import Metadata
from ..image.partition import Partition
from ..image.topics import Topic
from ..placement.partition_change import Election, ElectionContext, PartitionTarget, change_partition, election_context
from ..placement.topic_overrides import (
    READ_CONSISTENCY,
    is_linearizable,
    is_restored_automatically,
    is_unclean_election_allowed,
)
from ..quorum.metadata_log import MetadataRecord
from ..settings import ControllerSettings

PREFERRED: Final = 0
UNCLEAN: Final = 1


@frozen
class ElectionReply:
    """The result for one partition. A topic whose partitions all need no election has one reply with `index` None."""

    topic: str
    index: int | None
    outcome: ItemResult


def elect_leaders(
    metadata: Metadata,
    settings: ControllerSettings,
    election_type: int,
    topics: Sequence[ElectLeadersRequest.TopicPartition] | None,
) -> Decision[ElectionReply]:
    if election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"unknown election type {election_type}: there are {PREFERRED} and {UNCLEAN}")
    election = Election.PREFERRED if election_type == PREFERRED else Election.UNCLEAN
    records: list[MetadataRecord] = []
    replies: list[ElectionReply] = []
    requested_topics = topics if topics is not None else _everything(metadata)
    for requested in requested_topics:
        found = []
        for index in requested.partitions:
            outcome = _elect(metadata, settings, requested.topic, index, election, records)
            if topics is not None or outcome.error is not ElectionNotNeeded:
                found.append(ElectionReply(topic=requested.topic, index=index, outcome=outcome))
        replies += found or [ElectionReply(topic=requested.topic, index=None, outcome=DONE)]
    return Decision(records=tuple(records), replies=tuple(replies))


def _everything(metadata: Metadata) -> Iterator[ElectLeadersRequest.TopicPartition]:
    for topic in metadata.topics:
        yield ElectLeadersRequest.TopicPartition(topic=topic.name, partitions=list(topic.partitions))


def _elect(
    metadata: Metadata,
    settings: ControllerSettings,
    name: str,
    index: int,
    election: Election,
    records: list[MetadataRecord],
) -> ItemResult:
    topic = metadata.topics.by_name(name)
    if topic is None:
        return ItemResult(error=UnknownTopicOrPartition, message=f"there is no such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return ItemResult(error=UnknownTopicOrPartition, message=f"there is no such partition as {name}-{index}")
    if partition.has_preferred_leader if election is Election.PREFERRED else partition.has_leader:
        return ItemResult(
            error=ElectionNotNeeded, message=f"leader election not needed: {name}-{index} is led by {partition.leader}"
        )
    if election is Election.UNCLEAN and is_linearizable(metadata, name):
        message = f"topic {name} has linearizable reads: set {READ_CONSISTENCY}=committed before an unclean election"
        return ItemResult(error=InvalidRequest, message=message)
    now = election_context(metadata, settings, topic, partition)
    record = change_partition(topic.topic_id, partition, now, PartitionTarget(election=election))
    if record is None and election is Election.PREFERRED:
        message = f"broker {partition.replicas[0]}, the first replica, is not in sync or not there"
        return ItemResult(error=PreferredLeaderNotAvailable, message=message)
    if record is None:
        return ItemResult(error=EligibleLeadersNotAvailable, message=f"no replica of {partition.replicas} is there")
    records.append(record)
    return DONE


def balance(metadata: Metadata, settings: ControllerSettings, limit: int) -> Decision[bool]:
    """The first replicas lead again, where they can: after a restart, leadership goes back to where it was spread over
    all brokers. The reply is whether there may be more to do than was done at once."""
    records: list[MetadataRecord] = []
    for topic, partition in metadata.topics.partitions():
        if len(records) >= limit:
            break
        if not partition.has_preferred_leader:
            now = election_context(metadata, settings, topic, partition)
            records += _changed(topic, partition, now, PartitionTarget(election=Election.PREFERRED))
    return Decision(records=tuple(records), replies=(len(records) >= limit,))


def elect_unclean(metadata: Metadata, settings: ControllerSettings, limit: int) -> Decision[bool]:
    """Unclean elections for partitions without a leader, where the configuration allows them: a live replica leads
    them. The configuration may have changed after the last leader had failed."""
    records: list[MetadataRecord] = []
    for topic, partition in metadata.topics.partitions():
        if len(records) >= limit:
            break
        if not partition.has_leader and default_election(metadata, settings, topic, partition) is Election.UNCLEAN:
            now = election_context(metadata, settings, topic, partition)
            records += _changed(topic, partition, now, PartitionTarget(election=Election.UNCLEAN))
    return Decision(records=tuple(records), replies=(len(records) >= limit,))


def on_broker_fenced(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Iterator[MetadataRecord]:
    """A broker leads no more, is in no ISR, and others take over where they can."""
    for topic, partition in metadata.topics.partitions():
        if broker_id in partition.isr:
            yield from _left(metadata, settings, topic, partition, broker_id)


def on_broker_removed(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Iterator[MetadataRecord]:
    """A broker has crashed, or was removed: it leaves the ISR and the ELR. It may have lost records that it had
    acknowledged and not synced."""

    def is_active(other: int) -> bool:
        return other != broker_id and metadata.brokers.is_active(other)

    for topic, partition in metadata.topics.partitions():
        if broker_id in partition.isr or broker_id in partition.eligible_leader_replicas:
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            now = election_context(metadata, settings, topic, partition, is_active)
            target = PartitionTarget(
                isr=isr, crashed=(broker_id,), election=default_election(metadata, settings, topic, partition)
            )
            yield from _changed(topic, partition, now, target)


def on_broker_unfenced(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Iterator[MetadataRecord]:
    """A broker was unfenced: partitions without a leader may elect one now."""

    def is_active(other: int) -> bool:
        return other == broker_id or metadata.brokers.is_active(other)

    for topic, partition in metadata.topics.partitions():
        if not partition.has_leader:
            now = election_context(metadata, settings, topic, partition, is_active)
            yield from _changed(
                topic, partition, now, PartitionTarget(election=default_election(metadata, settings, topic, partition))
            )


def on_directories_offline(
    metadata: Metadata, settings: ControllerSettings, broker_id: int, directories: set[bytes]
) -> Iterator[MetadataRecord]:
    """Directories of a broker are offline: its replicas there leave the ISR."""
    for topic, partition in metadata.topics.partitions():
        if broker_id in partition.isr and partition.directory(broker_id) in directories:
            yield from _left(metadata, settings, topic, partition, broker_id)


def default_election(metadata: Metadata, settings: ControllerSettings, topic: Topic, partition: Partition) -> Election:
    """The election type that applies without an ElectLeaders request."""
    if is_unclean_election_allowed(metadata, settings, topic):
        return Election.UNCLEAN
    # A replica leaves the last of these lists when its directory is gone, or it crashed: none is complete, or will be.
    is_lost = not (partition.isr or partition.eligible_leader_replicas or partition.last_known_elr)
    if is_lost and is_restored_automatically(metadata, topic.name) and not is_linearizable(metadata, topic.name):
        return Election.UNCLEAN
    return Election.ONLINE


def _left(
    metadata: Metadata, settings: ControllerSettings, topic: Topic, partition: Partition, broker_id: int
) -> Iterator[MetadataRecord]:
    def is_active(other: int) -> bool:
        return other != broker_id and metadata.brokers.is_active(other)

    isr = tuple(replica for replica in partition.isr if replica != broker_id)
    now = election_context(metadata, settings, topic, partition, is_active)
    yield from _changed(
        topic, partition, now, PartitionTarget(isr=isr, election=default_election(metadata, settings, topic, partition))
    )


def _changed(
    topic: Topic, partition: Partition, now: ElectionContext, target: PartitionTarget
) -> Iterator[MetadataRecord]:
    record = change_partition(topic.topic_id, partition, now, target)
    if record is not None:
        yield record
