"""Elections: asked for by people (ElectLeaders), needed because a broker has left or come back, or held from time to
time because things could be better than they are."""

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

from .decision import DONE, Decision, Outcome
from .metadata import Metadata
from .metadata_log import MetadataRecord
from .partition import Partition
from .partition_change import Circumstances, Election, Wish, change_partition, circumstances
from .settings import ControllerSettings
from .topic_overrides import is_unclean_election_allowed
from .topics import Topic

PREFERRED: Final = 0
UNCLEAN: Final = 1


@frozen
class ElectionReply:
    """What became of one partition. A topic whose partitions all need nothing has one reply with `index` None."""

    topic: str
    index: int | None
    outcome: Outcome


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
    asked = topics if topics is not None else _everything(metadata)
    for wanted in asked:
        found = []
        for index in wanted.partitions:
            outcome = _elect(metadata, settings, wanted.topic, index, election, records)
            if topics is not None or outcome.error is not ElectionNotNeeded:
                found.append(ElectionReply(topic=wanted.topic, index=index, outcome=outcome))
        replies += found or [ElectionReply(topic=wanted.topic, index=None, outcome=DONE)]
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
) -> Outcome:
    topic = metadata.topics.by_name(name)
    if topic is None:
        return Outcome(error=UnknownTopicOrPartition, message=f"there is no such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return Outcome(error=UnknownTopicOrPartition, message=f"there is no such partition as {name}-{index}")
    if partition.has_preferred_leader if election is Election.PREFERRED else partition.has_leader:
        return Outcome(
            error=ElectionNotNeeded, message=f"leader election not needed: {name}-{index} is led by {partition.leader}"
        )
    now = circumstances(metadata, settings, topic, partition)
    record = change_partition(topic.topic_id, partition, now, Wish(election=election))
    if record is None and election is Election.PREFERRED:
        message = f"broker {partition.replicas[0]}, the first replica, is not in sync or not there"
        return Outcome(error=PreferredLeaderNotAvailable, message=message)
    if record is None:
        return Outcome(error=EligibleLeadersNotAvailable, message=f"no replica of {partition.replicas} is there")
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
            now = circumstances(metadata, settings, topic, partition)
            records += _changed(topic, partition, now, Wish(election=Election.PREFERRED))
    return Decision(records=tuple(records), replies=(len(records) >= limit,))


def elect_last_resorts(metadata: Metadata, settings: ControllerSettings, limit: int) -> Decision[bool]:
    """Partitions that nobody leads, and that were allowed to lose records rather than wait: somebody who is there leads
    them. Whoever allowed it may have done so after the last leader had gone."""
    records: list[MetadataRecord] = []
    for topic, partition in metadata.topics.partitions():
        if len(records) >= limit:
            break
        if not partition.has_leader and is_unclean_election_allowed(metadata, settings, topic):
            now = circumstances(metadata, settings, topic, partition)
            records += _changed(topic, partition, now, Wish(election=Election.UNCLEAN))
    return Decision(records=tuple(records), replies=(len(records) >= limit,))


def without_broker(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Iterator[MetadataRecord]:
    """A broker leads no more, is in no ISR, and others take over where they can."""
    for topic, partition in metadata.topics.partitions():
        if broker_id in partition.isr:
            yield from _left(metadata, settings, topic, partition, broker_id)


def without_replica(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Iterator[MetadataRecord]:
    """A broker has crashed, or never comes back: it is neither in sync nor fit to lead. It may have lost what it had
    acknowledged and not synced."""

    def is_active(other: int) -> bool:
        return other != broker_id and metadata.brokers.is_active(other)

    for topic, partition in metadata.topics.partitions():
        if broker_id in partition.isr or broker_id in partition.eligible_leader_replicas:
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            now = circumstances(metadata, settings, topic, partition, is_active)
            wish = Wish(isr=isr, crashed=(broker_id,), election=automatic(metadata, settings, topic))
            yield from _changed(topic, partition, now, wish)


def with_broker(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Iterator[MetadataRecord]:
    """A broker is there (again): partitions without a leader may have one now."""

    def is_active(other: int) -> bool:
        return other == broker_id or metadata.brokers.is_active(other)

    for topic, partition in metadata.topics.partitions():
        if not partition.has_leader:
            now = circumstances(metadata, settings, topic, partition, is_active)
            yield from _changed(topic, partition, now, Wish(election=automatic(metadata, settings, topic)))


def without_directories(
    metadata: Metadata, settings: ControllerSettings, broker_id: int, directories: set[bytes]
) -> Iterator[MetadataRecord]:
    """Directories of a broker are offline: it is not in sync for what lies in them."""
    for topic, partition in metadata.topics.partitions():
        if broker_id in partition.isr and partition.directory(broker_id) in directories:
            yield from _left(metadata, settings, topic, partition, broker_id)


def automatic(metadata: Metadata, settings: ControllerSettings, topic: Topic) -> Election:
    """The election that happens when nobody asked for one."""
    return Election.UNCLEAN if is_unclean_election_allowed(metadata, settings, topic) else Election.ONLINE


def _left(
    metadata: Metadata, settings: ControllerSettings, topic: Topic, partition: Partition, broker_id: int
) -> Iterator[MetadataRecord]:
    def is_active(other: int) -> bool:
        return other != broker_id and metadata.brokers.is_active(other)

    isr = tuple(replica for replica in partition.isr if replica != broker_id)
    now = circumstances(metadata, settings, topic, partition, is_active)
    yield from _changed(topic, partition, now, Wish(isr=isr, election=automatic(metadata, settings, topic)))


def _changed(topic: Topic, partition: Partition, now: Circumstances, wish: Wish) -> Iterator[MetadataRecord]:
    record = change_partition(topic.topic_id, partition, now, wish)
    if record is not None:
        yield record
