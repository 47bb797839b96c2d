"""Configuration: Apache Kafka and trioka, asked the same. Where they differ, and why, stands beside the test."""

import socket
import time
from collections.abc import Iterator, Sequence

import pytest
from judged import SETTINGS, same_soon
from oracle import _free_ports
from side_by_side import PATIENCE_S, POLL_S, Order, Side, SideBySide, side_by_side
from support.serving import HOST

from trioka.protocol.messages.alter_configs import AlterConfigsRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE, INVALID_REQUEST = 0, 42
PROTOCOLS = "listener.security.protocol.map"

Change = tuple[str, int, str | None]

BY_NAME: Order = {"results.configs": "name"}
# The sentences are our own; that there are some is compared below.
WORDS = "results.configs.documentation"


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side(**SETTINGS) as sides:
        sides.create_topic("a")
        yield sides


def describe(kind: int, name: str, keys: list[str] | None = None, **include: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[resource], **include)


def incremental(kind: int, name: str, *changes: Change, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    configs = [
        IncrementalAlterConfigsRequest.Resource.Config(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replacing(kind: int, name: str, *pairs: tuple[str, str | None], validate_only: bool = False) -> AlterConfigsRequest:
    configs = [AlterConfigsRequest.Resource.Config(name=key, value=value) for key, value in pairs]
    resource = AlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=configs)
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def altered(sides: SideBySide, kind: int, name: str, changes: Sequence[Change], keys: list[str] | None = None) -> None:
    """Each change in turn, in both versions, and what has come of it."""
    for change in changes:
        for version in (0, 1):
            sides.same(incremental(kind, name, change), version)
        same_soon(sides, describe(kind, name, keys, include_synonyms=True), 4, ignoring={WORDS}, order=BY_NAME)


# -- DescribeConfigs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_the_keys_of_a_topic_are_described(sides: SideBySide, version: int) -> None:
    for keys in (None, [], ["retention.ms"], ["retention.ms", "nope", "nope"], ["nope"]):
        for synonyms in (False, True):
            requested = describe(TOPIC, "a", keys, include_synonyms=synonyms)
            sides.same(requested, version, order=BY_NAME)


def test_documentation_is_told_to_those_who_ask(sides: SideBySide) -> None:
    for answer in sides.both(describe(TOPIC, "a", include_documentation=True), 4):
        assert all(config.documentation for config in answer.results[0].configs)


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("name", ["nobody", "", ".", "..", "a b", "x" * 249, "x" * 250])
def test_topics_that_are_not_there_have_no_configuration(sides: SideBySide, name: str, version: int) -> None:
    sides.same(describe(TOPIC, name), version)


def test_every_key_of_a_broker_is_described(sides: SideBySide) -> None:
    """Where the node is found differs from node to node, and Apache Kafka is formatted for a quorum that can grow."""
    places = {
        "log.dirs",
        "listeners",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
    }
    response = []
    for answer in sides.both(describe(BROKER, "1", include_synonyms=True), 4):
        (result,) = answer.results
        response.append({config.name: config for config in result.configs})
        assert places <= response[-1].keys()
    kafka, trioka = ({name: repr(config) for name, config in each.items() if name not in places} for each in response)
    assert kafka == trioka


@pytest.mark.parametrize("name", ["", "1", "+1", "2", "-1", " 1", "x", "99999999999"])
def test_a_broker_knows_of_itself_and_of_all(sides: SideBySide, name: str) -> None:
    for version in (1, 4):
        sides.same(describe(BROKER, name, ["num.partitions", "min.insync.replicas"]), version)
        sides.same(describe(BROKER, name, ["log.retention.ms", "x"], include_synonyms=True), version, order=BY_NAME)


@pytest.mark.parametrize("kind", [BROKER_LOGGER, CLIENT_METRICS, GROUP, 0, 1, 3, 64, -1])
@pytest.mark.parametrize("name", ["", "x"])
def test_other_resources_are_described(sides: SideBySide, kind: int, name: str) -> None:
    for version in (1, 4):
        sides.same(describe(kind, name, include_synonyms=True), version, order=BY_NAME)


def test_a_resource_of_no_known_type_spoils_the_whole_request(sides: SideBySide) -> None:
    known, unknown = describe(TOPIC, "a", ["retention.ms"]).resources[0], describe(3, "x").resources[0]
    sides.same(DescribeConfigsRequest(resources=[known, unknown]), 4)
    sides.same(DescribeConfigsRequest(resources=[known, known]), 4)
    sides.same(DescribeConfigsRequest(resources=[]), 4)


def test_loggers_are_described_alike(sides: SideBySide) -> None:
    """Their names differ: they are those of the program."""
    for answer in sides.both(describe(BROKER_LOGGER, "1", ["root"]), 4):
        (root,) = answer.results[0].configs
        assert (root.name, root.config_source, root.read_only, root.is_sensitive) == ("root", 6, False, False)
        assert (root.config_type, root.synonyms) == (0, [])


# -- IncrementalAlterConfigs and AlterConfigs of topics ---------------------------------------------------------------


TOPIC_CHANGES: list[Change] = [
    ("retention.ms", SET, "5"),
    ("retention.ms", SET, "-2"),
    ("retention.ms", SET, "x"),
    ("retention.ms", SET, " 7 "),
    ("retention.ms", SET, None),
    ("retention.ms", DELETE, None),
    ("retention.ms", DELETE, "x"),
    ("retention.ms", APPEND, "1"),
    ("retention.ms", SUBTRACT, "1"),
    ("nope", SET, "1"),
    ("nope", DELETE, None),
    ("cleanup.policy", APPEND, "compact"),
    ("cleanup.policy", SUBTRACT, "delete"),
    ("cleanup.policy", APPEND, "nope"),
    ("cleanup.policy", SET, "compact,delete"),
    ("cleanup.policy", SET, "compact,compact"),
    ("cleanup.policy", SET, ""),
    ("cleanup.policy", SET, "compact,"),
    ("cleanup.policy", SUBTRACT, "compact,delete"),
    ("cleanup.policy", APPEND, "delete,delete"),
    ("cleanup.policy", APPEND, None),
    ("cleanup.policy", APPEND, ""),
    ("cleanup.policy", DELETE, None),
    ("segment.bytes", SET, "14"),
    ("segment.bytes", SET, "2000000"),
    ("segment.bytes", SET, "9999999999"),
    ("min.insync.replicas", SET, "0"),
    ("min.insync.replicas", SET, "2"),
    ("min.insync.replicas", DELETE, None),
    ("compression.type", SET, "nope"),
    ("compression.type", SET, "ZSTD"),
    ("compression.type", SET, "zstd"),
    ("message.timestamp.type", SET, "LogAppendTime"),
    ("message.timestamp.type", SET, "x"),
    ("max.compaction.lag.ms", SET, "0"),
    ("min.compaction.lag.ms", SET, "9223372036854775807"),
    ("min.compaction.lag.ms", SET, "9223372036854775808"),
    ("remote.storage.enable", SET, "true"),
    ("preallocate", SET, "yes"),
    ("preallocate", SET, "TRUE"),
    ("min.cleanable.dirty.ratio", SET, "1.5"),
    ("min.cleanable.dirty.ratio", SET, ".25"),
    ("leader.replication.throttled.replicas", SET, "0:1,1:1"),
    ("leader.replication.throttled.replicas", SET, "x"),
    ("leader.replication.throttled.replicas", APPEND, "*"),
    ("leader.replication.throttled.replicas", SET, "*"),
    ("unclean.leader.election.enable", SET, "true"),
    ("internal.segment.bytes", SET, "100"),
    ("message.format.version", SET, "3.0"),
]


def test_a_topic_is_changed_key_by_key(sides: SideBySide) -> None:
    sides.create_topic("changed")
    altered(sides, TOPIC, "changed", TOPIC_CHANGES)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("max.compaction.lag.ms", SET, "10"), ("min.compaction.lag.ms", SET, "11")],
        [("retention.ms", SET, "10"), ("retention.ms", SET, "11")],
        [("retention.ms", SET, "10"), ("nope", SET, "11")],
    ],
)
def test_changes_that_contradict_each_other_are_refused(sides: SideBySide, changes: list[Change], version: int) -> None:
    sides.same(incremental(TOPIC, "a", *changes), version)


def test_an_operation_that_does_not_exist_is_an_invalid_request(sides: SideBySide) -> None:
    """Apache Kafka stumbles, and says UNKNOWN_SERVER_ERROR."""
    kafka, trioka = sides.both(incremental(TOPIC, "a", ("retention.ms", 7, "1")), 1)
    assert (kafka.responses[0].error_code, trioka.responses[0].error_code) == (-1, 42)


@pytest.mark.parametrize("name", ["nobody", "", ".", "a b", "x" * 250])
def test_only_a_topic_that_is_there_can_be_changed(sides: SideBySide, name: str) -> None:
    for version in (0, 1):
        sides.same(incremental(TOPIC, name, ("retention.ms", SET, "5")), version)
        sides.same(incremental(TOPIC, name, ("nope", SET, "5")), version)
        sides.same(replacing(TOPIC, name, ("retention.ms", "5")), version)


@pytest.mark.parametrize("kind", [0, 1, 3, 64, -1])
def test_only_what_has_a_configuration_can_be_changed(sides: SideBySide, kind: int) -> None:
    for version in (0, 1):
        sides.same(incremental(kind, "x", ("a", SET, "b")), version)
        sides.same(replacing(kind, "x", ("a", "b")), version)


def test_each_resource_has_its_own_outcome(sides: SideBySide) -> None:
    good, bad = incremental(TOPIC, "a", ("retention.ms", SET, "5")), incremental(TOPIC, "b", ("retention.ms", SET, "5"))
    group = incremental(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    for version in (0, 1):
        for resources in ([], good.resources * 2, [*good.resources, *bad.resources, *group.resources]):
            request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
            sides.same(request, version)
    same_soon(sides, describe(TOPIC, "a", ["retention.ms"]), 4)


def test_alter_configs_replaces_all(sides: SideBySide) -> None:
    sides.create_topic("replaced", retention_ms=5, segment_ms=6)
    for pairs in (
        [("retention.ms", "77")],
        [("cleanup.policy", "compact"), ("retention.ms", "1")],
        [("retention.ms", None)],
        [("nope", "1")],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [],
    ):
        sides.same(replacing(TOPIC, "replaced", *pairs, validate_only=True), 1)
        for version in (0, 1, 2):
            sides.same(replacing(TOPIC, "replaced", *pairs), version)
        same_soon(sides, describe(TOPIC, "replaced", include_synonyms=True), 4, ignoring={WORDS}, order=BY_NAME)


# -- of groups, client metrics, brokers, loggers ----------------------------------------------------------------------


def test_a_group_is_changed(sides: SideBySide) -> None:
    changes: list[Change] = [
        ("consumer.session.timeout.ms", SET, "50000"),
        ("consumer.session.timeout.ms", SET, "1"),
        ("consumer.session.timeout.ms", SET, "99999999"),
        ("consumer.session.timeout.ms", APPEND, "1"),
        ("consumer.heartbeat.interval.ms", SET, "50001"),
        ("nope", SET, "1"),
        ("share.auto.offset.reset", SET, "earliest"),
        ("share.auto.offset.reset", SET, "by_duration:PT1H"),
        ("share.auto.offset.reset", SET, "x"),
        ("share.isolation.level", SET, "READ_COMMITTED"),
        ("consumer.session.timeout.ms", DELETE, None),
    ]
    altered(sides, GROUP, "g", changes)
    sides.same(replacing(GROUP, "g", ("streams.num.standby.replicas", "1")), 2)
    for request in (incremental(GROUP, "", changes[0]), replacing(GROUP, "", ("a", "b"))):
        sides.same(request, 1)
    same_soon(sides, describe(GROUP, "g", include_synonyms=True), 4, ignoring={WORDS}, order=BY_NAME)


def test_client_metrics_are_changed(sides: SideBySide) -> None:
    changes: list[Change] = [
        ("interval.ms", SET, "1000"),
        ("interval.ms", SET, "1"),
        ("interval.ms", SET, "x"),
        ("interval.ms", APPEND, "1"),
        ("metrics", SET, "a,b"),
        ("metrics", APPEND, "c"),
        ("metrics", SUBTRACT, "a"),
        ("match", SET, "client_id=x"),
        ("match", SET, "nope=x"),
        ("match", SET, "client_id"),
        ("match", SET, "client_id=["),
        ("nope", SET, "1"),
    ]
    altered(sides, CLIENT_METRICS, "m", changes)
    sides.same(incremental(CLIENT_METRICS, "", changes[0]), 1)
    sides.same(replacing(CLIENT_METRICS, "n", ("metrics", "*")), 2)


# What Apache Kafka would do to its Java classes is not done here: it is refused, or has no effect.
BROKER_CHANGES: list[Change] = [
    ("log.retention.ms", SET, "5"),
    ("log.retention.ms", SET, "0"),
    ("log.retention.ms", SET, "x"),
    ("log.retention.hours", SET, "1"),
    ("num.partitions", SET, "3"),
    ("num.partitions", DELETE, None),
    ("nope.nope", SET, "1"),
    ("nope.nope", APPEND, "a"),
    ("nope.nope", DELETE, None),
    ("num.io.threads", SET, "8"),
    ("num.io.threads", SET, "1"),
    ("num.io.threads", SET, "100"),
    ("num.io.threads", SET, "0"),
    ("num.io.threads", DELETE, None),
    ("log.cleanup.policy", APPEND, "compact"),
    ("log.cleanup.policy", SUBTRACT, "delete"),
    ("log.cleanup.policy", SET, "nope"),
    ("log.cleanup.policy", DELETE, None),
    ("max.connections", SET, "1000"),
    ("max.connections", SET, "-1"),
    ("max.connections", DELETE, None),
    ("max.connections", SET, None),
    ("min.insync.replicas", SET, "2"),
    ("min.insync.replicas", DELETE, None),
    ("min.insync.replicas", SET, "1"),
    ("unclean.leader.election.enable", SET, "true"),
    ("unclean.leader.election.enable", DELETE, None),
    ("ssl.keystore.location", SET, "/x"),
    ("listener.name.plaintext.max.connections", SET, "100"),
    ("listener.name.plaintext.max.connections", DELETE, None),
    ("listeners", SET, "x"),
    ("listeners", SET, "PLAINTEXT://:1"),
    ("advertised.listeners", SET, "PLAINTEXT://localhost:1"),
    ("log.segment.bytes", SET, "2000000"),
    ("log.segment.bytes", DELETE, None),
    ("message.max.bytes", SET, "70000"),
    ("message.max.bytes", SET, "-1"),
    ("message.max.bytes", DELETE, None),
    ("log.message.timestamp.type", SET, "LogAppendTime"),
    ("log.message.timestamp.type", DELETE, None),
    ("max.connections.per.ip.overrides", SET, "127.0.0.1:x"),
    ("broker.rack", SET, "r"),
    ("node.id", SET, "1"),
    ("log.dirs", SET, "/x"),
    ("follower.replication.throttled.rate", SET, "1000"),
    ("follower.replication.throttled.rate", DELETE, None),
    ("log.retention.ms", DELETE, None),
    ("log.retention.hours", DELETE, None),
]
BROKER_KEYS = sorted({name for name, _, _ in BROKER_CHANGES} - {"log.dirs", "listeners", "ssl.keystore.location"})


@pytest.mark.parametrize("name", ["", "1"])
def test_a_broker_is_changed_while_it_runs(sides: SideBySide, name: str) -> None:
    for change in BROKER_CHANGES:
        sides.same(incremental(BROKER, name, change), 1)
        for described in ("", "1"):
            requested = describe(BROKER, described, BROKER_KEYS, include_synonyms=True)
            same_soon(sides, requested, 4, ignoring={WORDS}, order=BY_NAME)
    same_soon(sides, describe(TOPIC, "a", include_synonyms=True), 4, ignoring={WORDS}, order=BY_NAME)


def listening_at(side: Side) -> str:
    value: str = side.ask(describe(BROKER, "1", ["listeners"]), 4).results[0].configs[0].value
    return value


def is_open(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=PATIENCE_S):
            return True
    except ConnectionError:
        return False


def until_it_is(port: int, is_wanted_open: bool) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while is_open(port) is not is_wanted_open:
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def test_a_listener_comes_and_goes(apache_kafka: None) -> None:
    """It goes here only: Kafka takes a listener that it opened for one that clients were told of, and keeps it."""
    with side_by_side(**SETTINGS) as sides:
        come_and_go(sides)


def come_and_go(sides: SideBySide) -> None:
    both = (sides.kafka, sides.trioka)
    ports = dict(zip(both, _free_ports(2), strict=True))
    before = {side: listening_at(side) for side in both}
    more = {side: f"{text},MORE://{HOST}:{ports[side]}" for side, text in before.items()}
    without = {side: text.replace("PLAINTEXT://", "MORE://") for side, text in before.items()}
    protocols: Change = (PROTOCOLS, SET, "MORE:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT")
    sides.same(lambda side: incremental(BROKER, "1", ("listeners", SET, more[side])), 1)  # who says what it speaks?
    sides.same(lambda side: incremental(BROKER, "1", ("listeners", SET, without[side]), protocols), 1)
    sides.same(incremental(BROKER, "1", (PROTOCOLS, SET, "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT")), 1)
    assert not any(map(is_open, ports.values()))
    sides.same(lambda side: incremental(BROKER, "1", ("listeners", SET, more[side]), protocols), 1)
    for side in both:
        until_it_is(ports[side], True)
        assert listening_at(side) == more[side]
    kafka, trioka = sides.both(incremental(BROKER, "1", ("listeners", DELETE, None), (PROTOCOLS, DELETE, None)), 1)
    assert [answer.responses[0].error_code for answer in (kafka, trioka)] == [INVALID_REQUEST, NONE]
    until_it_is(ports[sides.trioka], False)
    assert listening_at(sides.trioka) == before[sides.trioka]


@pytest.mark.parametrize("name", ["2", "x", "-1", "01", " 1", "99999999999"])
def test_a_broker_changes_itself_and_no_other(sides: SideBySide, name: str) -> None:
    for version in (0, 1):
        sides.same(incremental(BROKER, name, ("max.connections", SET, "1000")), version)
        sides.same(replacing(BROKER, name, ("max.connections", "1000")), version)
    sides.same(replacing(BROKER, "1"), 1)


@pytest.mark.parametrize("pairs", [[("max.connections", "99"), ("nope.nope", "1")], [("num.partitions", "1")], []])
def test_a_broker_is_changed_whole(sides: SideBySide, pairs: list[tuple[str, str | None]]) -> None:
    sides.same(replacing(BROKER, "1", *pairs, validate_only=True), 1)
    sides.same(replacing(BROKER, "1", *pairs), 1)
    requested = describe(BROKER, "1", ["max.connections", "nope.nope"], include_synonyms=True)
    same_soon(sides, requested, 4, ignoring={WORDS}, order=BY_NAME)


@pytest.mark.parametrize("name", ["1", "2", "", "x"])
def test_the_level_of_a_logger_is_changed(sides: SideBySide, name: str) -> None:
    changes: list[Change] = [
        ("root", SET, "WARN"),
        ("root", SET, "nope"),
        ("root", SET, "warn"),
        ("root", DELETE, None),
        ("root", APPEND, "INFO"),
        ("root", SET, None),
        ("nobody", SET, "INFO"),
        ("nobody", DELETE, None),
        ("root", SET, "ERROR"),
        ("root", SET, "WARN"),
    ]
    for change in changes:
        for validate_only in (True, False):
            sides.same(incremental(BROKER_LOGGER, name, change, validate_only=validate_only), 1)
        sides.same(describe(BROKER_LOGGER, name, ["root"]), 4)
    sides.same(incremental(BROKER_LOGGER, name, changes[-1], changes[-1]), 1)
    sides.same(replacing(BROKER_LOGGER, name, ("root", "WARN")), 1)


# -- ListConfigResources -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kinds"),
    [(0, []), (1, []), *((1, [kind]) for kind in (2, 4, 8, 16, 32, 0, 1, 64)), (1, [8, 4, 4]), (1, [2, 64])],
)
def test_what_has_a_configuration_is_listed(sides: SideBySide, version: int, kinds: list[int]) -> None:
    order: Order = {"config_resources": lambda each: (each["resource_type"], each["resource_name"])}
    same_soon(sides, ListConfigResourcesRequest(resource_types=kinds), version, order=order)
