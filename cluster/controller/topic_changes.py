"""Creates, extends and deletes topics: CreateTopics, CreatePartitions, DeleteTopics.

The checks, their order and their errors are those of Apache Kafka 4.3.1, with three intended differences: a request
that needs more records than one batch holds is refused item by item, where Kafka answers UNKNOWN_SERVER_ERROR; the
replies are in the order of the request, where Kafka's are shuffled; and a refused item creates no partitions, where
Kafka may create some of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final
from uuid import UUID

from trioka.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.internal_records.metadata import RemoveTopicRecord, TopicRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.primitives import NULL_UUID, uuid_text

from ..decision import DONE, Decision, ItemResult
from ..image.configs import topic_resource
from ..image.metadata import Metadata
from ..image.partition import Partition, is_reserved_directory
from ..image.quotas import ChargeMutations
from ..image.topics import CLUSTER_METADATA_TOPIC
from ..placement.assignments import check_assignment, new_partition
from ..placement.memory_topics import brokers_for, check_assigned_brokers, check_new_topic
from ..placement.placement import place, usable_brokers
from ..placement.topic_names import check_topic_name
from ..quorum.metadata_log import MAX_RECORDS_PER_BATCH, MetadataRecord
from ..settings import ControllerSettings
from .config_changes import new_topic_configs

BROKER_DEFAULT: Final = -1
MAX_PARTITIONS_PER_REQUEST: Final = 10_000


@frozen
class CreatedTopic:
    """A topic that was created, or why it was not."""

    name: str
    outcome: ItemResult
    topic_id: bytes = NULL_UUID
    num_partitions: int = -1
    replication_factor: int = -1


@frozen
class DeletedTopic:
    """Name and id, as far as they are known or were given."""

    name: str | None
    topic_id: bytes
    outcome: ItemResult


@frozen
class PartitionsReply:
    name: str
    outcome: ItemResult


# --- CreateTopics


def create_topics(
    metadata: Metadata,
    settings: ControllerSettings,
    random: Random,
    topics: Sequence[CreateTopicsRequest.Topic],
    validate_only: bool,
    charge: ChargeMutations,
) -> Decision[CreatedTopic]:
    """One reply for each name, in the order in which they are first named."""
    times = Counter(topic.name for topic in topics)
    once = [topic for topic in topics if times[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC]
    if sum(_requested_partitions(settings, topic) for topic in once) > MAX_PARTITIONS_PER_REQUEST:
        return _all_refused(
            times, f"too large number of partitions per request: {MAX_PARTITIONS_PER_REQUEST} is the most"
        )
    records: list[MetadataRecord] = []
    replies: dict[str, CreatedTopic] = {}
    for topic in topics:
        if times[topic.name] > 1:
            replies[topic.name] = _refused(
                topic.name, InvalidRequest("duplicate topic name: the request has it more than once")
            )
        elif topic.name == CLUSTER_METADATA_TOPIC:
            replies[topic.name] = _refused(
                topic.name,
                InvalidRequest(
                    f"creation of the internal topic {topic.name} is prohibited: every cluster has it by itself"
                ),
            )
        else:
            try:
                replies[topic.name], created = _create_topic(metadata, settings, random, topic, charge)
                records += created
            except KafkaError as error:
                replies[topic.name] = _refused(topic.name, error)
    if len(records) > MAX_RECORDS_PER_BATCH:
        return _all_refused(times, f"the request needs {len(records)} records, {MAX_RECORDS_PER_BATCH} are possible")
    return Decision(records=() if validate_only else tuple(records), replies=tuple(replies.values()))


def _requested_partitions(settings: ControllerSettings, topic: CreateTopicsRequest.Topic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.num_partitions if topic.num_partitions == BROKER_DEFAULT else max(topic.num_partitions, 0)


def _refused(name: str, error: KafkaError) -> CreatedTopic:
    return CreatedTopic(name=name, outcome=ItemResult.of(error))


def _all_refused(names: Counter[str], reason: str) -> Decision[CreatedTopic]:
    return Decision(records=(), replies=tuple(_refused(name, PolicyViolation(reason)) for name in names))


def _create_topic(
    metadata: Metadata,
    settings: ControllerSettings,
    random: Random,
    topic: CreateTopicsRequest.Topic,
    charge: ChargeMutations,
) -> tuple[CreatedTopic, list[MetadataRecord]]:
    # An existing name is reported before a collision: it always collides with itself.
    if metadata.topics.by_name(topic.name) is not None:
        raise TopicAlreadyExists(f"topic {topic.name!r} already exists")
    check_topic_name(topic.name)
    colliding = metadata.topics.colliding(topic.name)
    if colliding is not None:
        raise InvalidTopic(
            f"topic {topic.name!r} collides with existing topic {colliding!r}: both would be one name in metrics"
        )
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        raise InvalidConfig(
            f"a null value is not supported for topic configs, and was given for {', '.join(without_value)}"
        )
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    config_records = new_topic_configs(metadata, settings, topic.name, configs)
    partitions = _new_partitions(metadata, settings, random, topic, configs)
    is_factor_named = bool(topic.assignments) or topic.replication_factor != BROKER_DEFAULT
    check_new_topic(metadata, configs, partitions, is_factor_named=is_factor_named)
    charge(len(partitions))
    topic_id = _new_topic_id(metadata, random)
    reply = CreatedTopic(
        name=topic.name,
        outcome=DONE,
        topic_id=topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
    )
    return reply, [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *config_records,
        *(partition.record(topic_id) for partition in partitions),
    ]


def _new_partitions(
    metadata: Metadata,
    settings: ControllerSettings,
    random: Random,
    topic: CreateTopicsRequest.Topic,
    configs: Mapping[str, str],
) -> list[Partition]:
    if topic.assignments:
        return _assigned_partitions(metadata, topic)
    count, replication_factor = topic.num_partitions, topic.replication_factor
    if replication_factor < BROKER_DEFAULT or replication_factor == 0:
        raise InvalidReplicationFactor(
            f"the replication factor must be larger than 0, or -1 for the default, and is {replication_factor}"
        )
    if count < BROKER_DEFAULT or count == 0:
        raise InvalidPartitions(
            f"the number of partitions has the invalid non-positive value {count}; only -1 means the default"
        )
    if count == BROKER_DEFAULT:
        count = settings.num_partitions
    if replication_factor == BROKER_DEFAULT:
        replication_factor = settings.default_replication_factor
    return _placed_partitions(metadata, random, configs, 0, count, replication_factor)


def _placed_partitions(
    metadata: Metadata, random: Random, configs: Mapping[str, str], first: int, count: int, replication_factor: int
) -> list[Partition]:
    places = usable_brokers(brokers_for(metadata, configs))
    partitions = []
    for index, replicas in enumerate(place(places, count, replication_factor, random), start=first):
        partition = new_partition(metadata.brokers, index, replicas)
        assert partition is not None, "the first replica is on a broker that may lead"
        partitions.append(partition)
    return partitions


def _assigned_partitions(metadata: Metadata, topic: CreateTopicsRequest.Topic) -> list[Partition]:
    if topic.replication_factor != BROKER_DEFAULT:
        raise InvalidRequest("with a manual partition assignment the replication factor must be set to -1")
    if topic.num_partitions != BROKER_DEFAULT:
        raise InvalidRequest("with a manual partition assignment numPartitions must be set to -1")
    found: dict[int, Partition] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in found:
            raise InvalidReplicaAssignment(f"partition {index} has multiple manual partition assignments")
        found[index] = _assigned_partition(metadata, index, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
    if set(found) != set(range(len(found))):
        raise InvalidReplicaAssignment(
            "the numbers of assigned partitions must be a consecutive 0-based integer sequence"
        )
    return [found[index] for index in range(len(found))]


def _assigned_partition(
    metadata: Metadata, index: int, broker_ids: Sequence[int], replication_factor: int | None
) -> Partition:
    check_assignment(metadata.brokers, broker_ids, replication_factor)
    partition = new_partition(metadata.brokers, index, broker_ids)
    if partition is None:
        raise InvalidReplicaAssignment(f"partition {index} is assigned to brokers that are all fenced or shutting down")
    return partition


def _new_topic_id(metadata: Metadata, random: Random) -> bytes:
    """A random id that is unused, not reserved, and does not begin with `-`, which command lines take for an option."""
    while True:
        topic_id = UUID(bytes=random.randbytes(16), version=4).bytes
        if (
            not is_reserved_directory(topic_id)
            and not uuid_text(topic_id).startswith("-")
            and metadata.topics.by_id(topic_id) is None
        ):
            return topic_id


# --- CreatePartitions


def create_partitions(
    metadata: Metadata,
    random: Random,
    topics: Sequence[CreatePartitionsRequest.Topic],
    validate_only: bool,
    charge: ChargeMutations,
) -> Decision[PartitionsReply]:
    """One reply for each topic, however often it is named."""
    times = Counter(topic.name for topic in topics)
    records: list[MetadataRecord] = []
    replies: dict[str, PartitionsReply] = {}
    for topic in topics:
        outcome = DONE
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("duplicate topic name: the request has it more than once")
            more = _more_partitions(metadata, random, topic, MAX_RECORDS_PER_BATCH - len(records))
            charge(len(more))
            records += more
        except KafkaError as error:
            outcome = ItemResult.of(error)
        replies[topic.name] = PartitionsReply(name=topic.name, outcome=outcome)
    return Decision(records=() if validate_only else tuple(records), replies=tuple(replies.values()))


def _more_partitions(
    metadata: Metadata, random: Random, requested: CreatePartitionsRequest.Topic, limit: int
) -> list[MetadataRecord]:
    topic = metadata.topics.by_name(requested.name)
    if topic is None:
        raise UnknownTopicOrPartition
    count = len(topic.partitions)
    more = requested.count - count
    if more == 0:
        raise InvalidPartitions(f"the topic already has {count} partition(s)")
    if more < 0:
        raise InvalidPartitions(
            f"the topic currently has {count} partition(s), so that {requested.count} would not be an increase"
        )
    if requested.assignments is not None and len(requested.assignments) != more:
        raise InvalidReplicaAssignment(
            f"{more} additional partition(s) need as many assignments, "
            f"and the request has {len(requested.assignments)} assignment(s)"
        )
    if more > limit:
        raise PolicyViolation(f"{more} partitions are too many for one request, which may add {limit}")
    configs = metadata.configs.get(topic_resource(topic.name))
    if requested.assignments is None:
        partitions = _placed_partitions(metadata, random, configs, count, more, topic.replication_factor)
    else:
        partitions = [
            _assigned_partition(metadata, index, assignment.broker_ids, topic.replication_factor)
            for index, assignment in enumerate(requested.assignments, start=count)
        ]
        for partition in partitions:
            check_assigned_brokers(metadata, configs, partition.replicas)
    return [partition.record(topic.topic_id) for partition in partitions]


# --- DeleteTopics


def delete_topics(
    metadata: Metadata, topics: Sequence[DeleteTopicsRequest.Topic], charge: ChargeMutations
) -> Decision[DeletedTopic]:
    """A topic is named by its name or by its id, never by both and never twice: a request that names a topic twice may
    be a mistake of the client, so nothing that is named twice is deleted."""
    names = Counter(topic.name for topic in topics if topic.name is not None and topic.topic_id == NULL_UUID)
    ids = Counter(topic.topic_id for topic in topics if topic.name is None and topic.topic_id != NULL_UUID)
    records: list[MetadataRecord] = []
    replies: dict[tuple[str | None, bytes, int], DeletedTopic] = {}
    for number, topic in enumerate(topics):
        try:
            name, topic_id = _topic_to_delete(metadata, topic, names, ids)
            topic_to_delete = metadata.topics.by_id(topic_id)
            assert topic_to_delete is not None
            charge(len(topic_to_delete.partitions))
            records.append(RemoveTopicRecord(topic_id=topic_id))
            reply = DeletedTopic(name=name, topic_id=topic_id, outcome=DONE)
        except KafkaError as error:
            reply = DeletedTopic(name=topic.name, topic_id=topic.topic_id, outcome=ItemResult.of(error))
        is_sound = (topic.name is None) != (topic.topic_id == NULL_UUID)
        replies[topic.name, topic.topic_id, 0 if is_sound else number] = reply
    return Decision(records=tuple(records), replies=tuple(replies.values()))


def _topic_to_delete(
    metadata: Metadata, topic: DeleteTopicsRequest.Topic, names: Counter[str], ids: Counter[bytes]
) -> tuple[str, bytes]:
    if topic.name is None and topic.topic_id == NULL_UUID:
        raise InvalidRequest("neither topic name nor id is set")
    if topic.name is not None and topic.topic_id != NULL_UUID:
        raise InvalidRequest("a topic is named in one way, and not by both topic name and topic id")
    if topic.name is not None:
        if names[topic.name] > 1:
            raise InvalidRequest("duplicate topic name: the request has it more than once")
        found = metadata.topics.by_name(topic.name)
        if found is None:
            raise UnknownTopicOrPartition(f"topic {topic.name!r} does not exist: this server does not host this topic")
        if found.topic_id in ids:
            raise InvalidRequest("the request names this topic by its id, too")
    else:
        if ids[topic.topic_id] > 1:
            raise InvalidRequest("the request names this id more than once")
        found = metadata.topics.by_id(topic.topic_id)
        if found is None:
            raise UnknownTopicId(f"this server does not host this topic ID: {uuid_text(topic.topic_id)}")
        if found.name in names:
            raise InvalidRequest("the request names this topic by its name, too")
    return found.name, found.topic_id
