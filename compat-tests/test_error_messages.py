"""What administrators are told when something is refused: in words of our own, with those in it that people and scripts
look for in Apache Kafka's messages.

Each case is a request that both refuse, and the key words of Kafka's reason. They must stand in Kafka's message, or the
case is out of date, and in ours. Case does not count.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from side_by_side import SideBySide, side_by_side

from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.alter_configs import AlterConfigsRequest
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.schema import Request, Struct

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
APPEND = 2
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
TIMEOUT_MS = 60_000
NOBODYS_ID = b"x" * 16
MOST_WORDS_ALIKE = 6  # a message that short is its key words

VersionedRequest = tuple[Request, int]
Case = tuple[VersionedRequest, tuple[str, ...]]
NewTopic = CreateTopicsRequest.Topic


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side() as sides:
        sides.create_topic("orders", 5)
        sides.create_topic("a.b")
        yield sides


# -- requests ----------------------------------------------------------------------------------------------------------


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assigned: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> NewTopic:
    return NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[NewTopic.Assignment(partition_index=index, broker_ids=ids) for index, ids in assigned],
        configs=[NewTopic.Config(name=key, value=value) for key, value in configs],
    )


def create(*topics: NewTopic) -> VersionedRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=True), 7


def assigned(*assignments: tuple[int, list[int]], partitions: int = -1, replicas: int = -1) -> VersionedRequest:
    return create(topic("new", partitions, replicas, assigned=assignments))


def configured(key: str, value: str | None) -> VersionedRequest:
    return create(topic("new", configs=[(key, value)]))


def grow(name: str, count: int, *assignments: list[int]) -> VersionedRequest:
    wanted = CreatePartitionsRequest.Topic
    given = [wanted.Assignment(broker_ids=ids) for ids in assignments] or None
    one = wanted(name=name, count=count, assignments=given)
    return CreatePartitionsRequest(topics=[one], timeout_ms=TIMEOUT_MS, validate_only=True), 3


def delete(*topics: tuple[str | None, bytes]) -> VersionedRequest:
    named = [DeleteTopicsRequest.Topic(name=name, topic_id=topic_id) for name, topic_id in topics]
    return DeleteTopicsRequest(topics=named, timeout_ms=TIMEOUT_MS), 6


def alter(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> VersionedRequest:
    wanted = IncrementalAlterConfigsRequest.Resource
    change = wanted.Config(name=key, config_operation=operation, value=value)
    resource = wanted(resource_type=kind, resource_name=name, configs=[change])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1


def replace(kind: int, name: str, key: str, value: str | None) -> VersionedRequest:
    wanted = AlterConfigsRequest.Resource
    resource = wanted(resource_type=kind, resource_name=name, configs=[wanted.Config(name=key, value=value)])
    return AlterConfigsRequest(resources=[resource], validate_only=True), 2


def describe(kind: int, name: str) -> VersionedRequest:
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource]), 4


def move(name: str, partition: int, *brokers: int) -> VersionedRequest:
    wanted = AlterPartitionReassignmentsRequest.Topic
    one = wanted.Partition(partition_index=partition, replicas=list(brokers))
    topics = [wanted(name=name, partitions=[one])]
    return AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics), 0


def elect(name: str, partition: int, kind: int = 0) -> VersionedRequest:
    wanted = ElectLeadersRequest.TopicPartition(topic=name, partitions=[partition])
    return ElectLeadersRequest(election_type=kind, topic_partitions=[wanted], timeout_ms=TIMEOUT_MS), 2


def feature(name: str, level: int, how: int) -> VersionedRequest:
    update = UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=how)
    return UpdateFeaturesRequest(feature_updates=[update], validate_only=True), 1


def quota(entity: dict[str, str], key: str, value: float) -> VersionedRequest:
    entry = AlterClientQuotasRequest.Entry
    parts = [entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    one = entry(entity=parts, ops=[entry.Op(key=key, value=value, remove=False)])
    return AlterClientQuotasRequest(entries=[one], validate_only=True), 1


BAD_NAME = ("topic name is invalid", "'a b' contains", "other than ASCII alphanumerics, '.', '_' and '-'")
NO_SUCH_BROKER = ("manual partition assignment includes broker 7", "no such broker is registered")
TWO_OF_ONE = ("manual partition assignment", "the broker 1 more than once")
RATE = "producer_byte_rate"

CASES: dict[str, Case] = {
    # CreateTopics
    "a topic that exists": (create(topic("orders")), ("topic 'orders' already exists",)),
    "more replicas than brokers": (create(topic("n", 1, 3)), ("replication factor of 3 cannot be reached",)),
    "no replicas": (create(topic("n", 1, 0)), ("replication factor must be larger than 0", "-1")),
    "no partitions": (create(topic("n", 0)), ("number of partitions", "invalid non-positive value")),
    "too many partitions": (create(topic("n", 20_000)), ("large number of partitions per request",)),
    "no name": (create(topic("")), ("topic name is invalid", "empty string", "not allowed")),
    "a dot": (create(topic(".")), ("topic name is invalid: '.' is not allowed",)),
    "two dots": (create(topic("..")), ("topic name is invalid: '..' is not allowed",)),
    "a blank": (create(topic("a b")), BAD_NAME),
    "a long name": (create(topic("x" * 250)), ("topic name is invalid", "longer than the max allowed length 249")),
    "a colliding name": (create(topic("a_b")), ("topic 'a_b' collides with existing topic", "a.b")),
    "a topic twice": (create(topic("n"), topic("n")), ("duplicate topic name",)),
    "the metadata": (create(topic("__cluster_metadata")), ("internal topic __cluster_metadata is prohibited",)),
    "a new topic's unknown key": (configured("nope", "1"), ("unknown topic config name: nope",)),
    "a new topic's bad value": (configured("retention.ms", "x"), ("invalid value", "for configuration retention.ms")),
    "a new topic's null": (configured("retention.ms", None), ("null value", "not supported for topic configs")),
    "a value too low": (
        configured("min.insync.replicas", "0"),
        ("for configuration min.insync.replicas", "at least 1"),
    ),
    "assigned and counted replicas": (
        assigned((0, [1]), replicas=1),
        ("manual partition assignment", "replication factor", "set to -1"),
    ),
    "assigned and counted partitions": (
        assigned((0, [1]), partitions=1),
        ("manual partition assignment", "numPartitions", "set to -1"),
    ),
    "assigned to nobody": (assigned((0, [7])), NO_SUCH_BROKER),
    "assigned twice": (assigned((0, [1]), (0, [1])), ("multiple manual partition assignments",)),
    "assigned to one twice": (assigned((0, [1, 1])), TWO_OF_ONE),
    "assigned with a gap": (assigned((1, [1])), ("consecutive 0-based integer sequence",)),
    "assigned nothing": (assigned((0, [])), ("manual partition assignment", "an empty replica list")),
    # CreatePartitions
    "as many as before": (grow("orders", 5), ("topic already has 5 partition(s)",)),
    "fewer than before": (grow("orders", 3), ("currently has 5 partition(s)", "3 would not be an increase")),
    "too few assignments": (grow("orders", 7, [1]), ("2 additional partition(s)", "1 assignment(s)")),
    "more for nobody": (grow("orders", 6, [7]), NO_SUCH_BROKER),
    "more for one twice": (grow("orders", 6, [1, 1]), TWO_OF_ONE),
    # DeleteTopics
    "delete what is not there": (delete(("nope", NULL_UUID)), ("does not host this topic",)),
    "delete an unknown id": (delete((None, NOBODYS_ID)), ("does not host this topic ID",)),
    "delete by both": (delete(("orders", NOBODYS_ID)), ("both topic name and topic id",)),
    "delete by neither": (delete((None, NULL_UUID)), ("neither topic name nor id",)),
    "delete twice": (delete(("orders", NULL_UUID), ("orders", NULL_UUID)), ("duplicate topic name",)),
    # IncrementalAlterConfigs and AlterConfigs
    "configure what is not there": (alter(TOPIC, "nope", "retention.ms", "1"), ("topic 'nope' does not exist",)),
    "configure a bad name": (alter(TOPIC, "a b", "retention.ms", "1"), BAD_NAME),
    "configure no topic": (alter(TOPIC, "", "retention.ms", "1"), ("default topic resources are not allowed",)),
    "configure no group": (alter(GROUP, "", "x", "1"), ("default group resources are not allowed",)),
    "configure no subscription": (alter(CLIENT_METRICS, "", "x", "1"), ("subscription name", "empty")),
    "an unknown key": (alter(TOPIC, "orders", "nope", "1"), ("unknown topic config name: nope",)),
    "an unknown key of groups": (alter(GROUP, "g", "nope", "1"), ("unknown group config name: nope",)),
    "an unknown key of metrics": (
        alter(CLIENT_METRICS, "m", "nope", "1"),
        ("unknown client metrics configuration: nope",),
    ),
    "a bad value": (alter(TOPIC, "orders", "retention.ms", "x"), ("invalid value", "for configuration retention.ms")),
    "a bad value of a broker": (
        alter(BROKER, "1", "log.cleaner.threads", "x"),
        ("invalid value", "for configuration log.cleaner.threads"),
    ),
    "a bad value of a group": (
        alter(GROUP, "g", "consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "must be greater than or equal to group.consumer.min.session.timeout.ms"),
    ),
    "a bad value of metrics": (
        alter(CLIENT_METRICS, "m", "interval.ms", "1"),
        ("interval.ms", "must be between 100 and 3600000"),
    ),
    "append to a number": (
        alter(TOPIC, "orders", "retention.ms", "1", APPEND),
        ("APPEND to key retention.ms", "its type is not LIST"),
    ),
    "a null": (alter(TOPIC, "orders", "retention.ms", None), ("null value", "not supported", "retention.ms")),
    "another broker": (
        alter(BROKER, "7", "log.cleaner.threads", "1"),
        ("unexpected broker id", "expected 1", "received 7"),
    ),
    "a broker without a number": (
        alter(BROKER, "x", "log.cleaner.threads", "1"),
        ("id must be an integer", "it is: x"),
    ),
    "what a start needs": (
        alter(BROKER, "1", "num.partitions", "3"),
        ("cannot update these configs dynamically", "num.partitions"),
    ),
    "an unknown resource": (alter(99, "x", "a", "b"), ("unknown resource type 99",)),
    "an unknown logger": (alter(BROKER_LOGGER, "1", "nope", "INFO"), ("logger nope does not exist",)),
    "an unknown level": (
        alter(BROKER_LOGGER, "1", "root", "NOISY"),
        ("log level of root", "NOISY", "not a supported log level", "DEBUG"),
    ),
    "replace what is not there": (replace(TOPIC, "nope", "retention.ms", "1"), ("topic 'nope' does not exist",)),
    "replace by an unknown key": (replace(TOPIC, "orders", "nope", "1"), ("unknown topic config name: nope",)),
    "replace by a bad value": (replace(TOPIC, "orders", "retention.ms", "x"), ("invalid value", "retention.ms")),
    "replace of another broker": (replace(BROKER, "7", "log.cleaner.threads", "1"), ("unexpected broker id", "7")),
    # DescribeConfigs
    "describe a bad name": (describe(TOPIC, "a b"), BAD_NAME),
    "describe another broker": (describe(BROKER, "7"), ("unexpected broker id", "expected 1", "received 7")),
    "describe no number": (describe(BROKER, "x"), ("broker id must be an integer", "it is: x")),
    # AlterPartitionReassignments, ElectLeaders
    "move what is not there": (move("nope", 0, 1), ("topic named nope",)),
    "move an unknown partition": (move("orders", 9, 1), ("partition orders:9",)),
    "move to nobody": (move("orders", 0, 7), NO_SUCH_BROKER),
    "move to one twice": (move("orders", 0, 1, 1), TWO_OF_ONE),
    "move to none": (move("orders", 0), ("manual partition assignment", "an empty replica list")),
    "elect for what is not there": (elect("nope", 0), ("no such topic as nope",)),
    "elect for an unknown partition": (elect("orders", 9), ("no such partition as orders-9",)),
    "elect who leads": (elect("orders", 0), ("leader election not needed",)),
    "elect otherwise": (elect("orders", 0, 5), ("unknown election type 5",)),
    # UpdateFeatures
    "an unknown feature": (
        feature("nope", 1, UPGRADE),
        ("invalid update version 1 for feature nope", "controller 1 does not support this feature"),
    ),
    "a level too high": (
        feature("group.version", 9, UPGRADE),
        ("invalid update version 9 for feature group.version", "only supports versions 0-1"),
    ),
    "a level below nought": (feature("group.version", -1, UPGRADE), ("invalid update version -1", "less than 0")),
    "back without saying so": (
        feature("group.version", 0, UPGRADE),
        ("invalid update version 0", "safe or unsafe downgrade"),
    ),
    "back in the metadata": (
        feature("metadata.version", 7, UNSAFE_DOWNGRADE),
        ("unsupported metadata.version downgrade from 30 to 7",),
    ),
    "another kind of update": (feature("group.version", 1, 9), ("for feature group.version", "upgrade type")),
    # AlterClientQuotas
    "an unknown quota": (quota({"user": "ann"}, "nope", 1.0), ("invalid configuration key nope",)),
    "a quota of something": (quota({"nope": "x"}, RATE, 1.0), ("client quota entity type: nope",)),
    "a quota below nought": (quota({"user": "ann"}, RATE, -1.0), (f"{RATE} must be greater than 0",)),
    "a quota for nobody": (quota({}, RATE, 1.0), ("empty client quota entity",)),
    "a quota without a name": (quota({"user": ""}, RATE, 1.0), ("empty user not supported",)),
    "a quota for no address": (quota({"ip": "x y"}, "connection_creation_rate", 1.0), ("x y is not a valid IP",)),
    "a quota for a strange pair": (
        quota({"ip": "1.1.1.1", "user": "ann"}, "connection_creation_rate", 1.0),
        ("invalid quota entity combination",),
    ),
    "half a byte": (quota({"user": "ann"}, RATE, 1.5), (f"{RATE} cannot be a fractional value",)),
    # UnregisterBroker
    "a broker that nobody knows": ((UnregisterBrokerRequest(broker_id=77), 0), ("ID 77 is not currently registered",)),
}


# -- answers -----------------------------------------------------------------------------------------------------------


def reasons(answer: Any) -> list[tuple[int, str]]:
    """The errors of an answer, from outside in, each with its message."""
    found = []
    if isinstance(answer, Struct):
        if code := getattr(answer, "error_code", 0):
            found.append((code, getattr(answer, "error_message", None) or ""))
        for field in answer.__fields__:
            parts = getattr(answer, field.name)
            if isinstance(parts, list):
                found += [reason for part in parts for reason in reasons(part)]
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_says_what_is_looked_for(sides: SideBySide, name: str) -> None:
    (request, version), words = CASES[name]
    kafka, trioka = map(reasons, sides.both(request, version))
    assert [code for code, _ in kafka] == [code for code, _ in trioka] and kafka
    kafkas, ours = kafka[-1][1], trioka[-1][1]
    for word in words:
        assert word.lower() in kafkas.lower(), f"Apache Kafka does not say {word!r} any more: {kafkas!r}"
        assert word.lower() in ours.lower(), f"trioka does not say {word!r}: {ours!r}"
    assert ours != kafkas or len(ours.split()) <= MOST_WORDS_ALIKE, "a sentence of our own"


def test_too_many_replicas_are_refused_in_the_words_of_older_releases_too(sides: SideBySide) -> None:
    request, version = create(topic("n", 1, 3))
    ((_, ours),) = reasons(sides.trioka.ask(request, version))
    assert "Replication factor: 3 larger than available brokers: 1." in ours
