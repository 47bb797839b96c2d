"""Every config key is as Apache Kafka declares it, every value is judged as there, and DescribeConfigs says the same.

Three judges: Kafka's own declarations (a ConfigDef per kind of resource), its parsers and checks, asked one by one
through `programs/Configs.java`, and a running broker that is configured, changed and described over a plain socket.
Where we differ on purpose, it stands here with the reason.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from oracle import ApacheKafka, run_program
from support import serving
from support.small_cluster import SmallCluster

from trioka.broker.config import description
from trioka.broker.config import trioka_keys as own_keys
from trioka.broker.config.alteration import Change
from trioka.broker.config.controller_rules import DeclaredRules
from trioka.broker.config.key import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigEntry,
    ConfigSynonym,
    Key,
    Resource,
)
from trioka.broker.config.layers import Config
from trioka.broker.config.properties import parse_properties
from trioka.broker.config.server import UNDECLARED, with_node_id
from trioka.broker.config.validation import validate_topic
from trioka.cluster.configs import ConfigOperation
from trioka.cluster.configs import ConfigResource as ClusterResource
from trioka.protocol.errors import KafkaError, UnknownTopicOrPartition
from trioka.protocol.internal_records.metadata import ConfigRecord
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)

Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("apache_kafka")

SCOPES: Mapping[str, Mapping[str, Key[object]]] = {
    "broker": BROKER_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client_metrics": CLIENT_METRICS_KEYS,
}
# They are no part of Kafka's declaration of a broker: it knows them only as keys that are set at run time.
RATES = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
# Keys of Kafka's main line that 4.3.1 does not have yet.
NEWER = {"sasl.oauthbearer.allow.unverified.audience", "sasl.oauthbearer.allow.unverified.issuer"}
# Unknown to Apache Kafka 4.3.1: our own keys, those of Confluent's validation of schema ids, and those that Kafka
# passes on to its plugin for the metadata of remote segments.
FOREIGN_PREFIXES = (own_keys.PREFIX, "confluent.", "rlmm.config.")
OURS = {name for name in (*BROKER_KEYS, *TOPIC_KEYS) if name.startswith(FOREIGN_PREFIXES)} | NEWER


def ask(*questions: Json) -> list[Any]:
    lines = run_program("Configs", stdin="".join(json.dumps(question) + "\n" for question in questions)).splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def of_kafka() -> Json:
    (definitions,) = ask({"definitions": 1})
    assert isinstance(definitions, dict)
    return definitions


# The declarations.


def declared(key: Key[object]) -> Json:
    return {
        "type": key.type.name.upper(),
        "required": key.required,
        "default": key.default_text,
        "importance": key.importance.name,
        "internal": key.hidden,
    }


@pytest.mark.parametrize("scope", SCOPES)
def test_keys_have_the_type_default_and_importance_of_apache_kafka(scope: str, of_kafka: Json) -> None:
    theirs = {key.pop("name"): key for key in (dict(key) for key in of_kafka[scope])}
    for key in theirs.values():
        key.pop("valid")  # what it says is tried with values, below
    ours = {name: declared(key) for name, key in SCOPES[scope].items() if name not in OURS}
    if scope == "broker":
        for name in RATES:
            del ours[name]
        for name, reason in UNDECLARED.items():
            assert reason and theirs.pop(name)["internal"], f"{name} is seen by clients, and must be declared"
    assert ours == theirs


def test_broker_keys_change_as_in_apache_kafka(of_kafka: Json) -> None:
    ours = {name: key.mode.words for name, key in BROKER_KEYS.items() if name not in OURS}
    assert ours == dict.fromkeys(ours, "read-only") | of_kafka["modes"]


def test_topics_and_groups_inherit_from_the_broker_keys_of_apache_kafka(of_kafka: Json) -> None:
    behind = {name: [synonym.name for synonym in key.synonyms] for name, key in TOPIC_KEYS.items() if key.synonyms}
    assert behind == of_kafka["topic_synonyms"]
    of_groups = {name: key.synonyms[0].name if key.synonyms else None for name, key in GROUP_KEYS.items()}
    assert of_groups == of_kafka["group_synonyms"]


# Single values.

# fmt: off

TEXTS = {
    "boolean": ["true", "FALSE", " True ", "yes", "1", ""],
    "string": [
        "", "x", " padded ", "CreateTime", "createtime", "gzip", "GZIP", "latest", "earliest", "PLAINTEXT", "a b",
        "by_duration:PT1H", "by_duration:P1D", "by_duration:PT", "by_duration:P", "by_duration:-PT1S", "none",
        "by_duration:P1DT1.5S", "required", "RS256", "rs256", "upgrade", "UPGRADE", "read_committed",
    ],
    "password": ["", "secret", " padded "],
    "list": [
        "", " ", "a", "a,b", " a , b ", "a,a", "a,", ",a", "delete", "compact,delete", "delete , delete", "Delete",
        "broker", "broker,controller", "classic", "a:1", "h:65536", "1@h:1", "*", "0:1,1:2", "0:1,x", "[::1]:1",
    ],
    "double": [
        "0", "1", "0.5", "1.1", "-0.1", "1e-4", "12345678", "1e7", "0.5f", ".5", "5.", "+1", "", "x", "1_0", "NaN",
    ],
}
NUMBERS = [
    0, 1, 2, 9, 10, 17, 18, 22, 23, 25, 26, 100, 500, 501, 1000, 1001, 9999, 10000, 10001, 65536, 86401, 600000,
    2**15 - 1, 2**15, 2**20 - 1, 2**20, 2**23, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 3600000, 3600001,
]
WHOLE = [f"{sign}{number}" for number in NUMBERS for sign in ("", "-")]
WHOLE += ["+5", " 5 ", "5L", "0x5", "5.0", "", "x", "007"]

# fmt: on


def texts_for(key: Key[object]) -> list[str]:
    return WHOLE if key.type.name in ("int", "short", "long") else TEXTS.get(key.type.name, [])


def differs_on_purpose(scope: str, name: str, text: str) -> str | None:
    """Why we judge a value in another way than Kafka."""
    if scope == "topic" and name == "internal.segment.bytes":
        return "Kafka takes segments of no or negative size, and then fails when it writes one."
    if text == "NaN":
        return "Kafka takes it for a ratio between 0 and 1, and can compare nothing with it."
    return None


def test_values_are_taken_refused_and_shown_as_by_apache_kafka() -> None:
    query = [
        (scope, name, text)
        for scope, keys in SCOPES.items()
        for name, key in keys.items()
        if name not in RATES | OURS
        for text in texts_for(key)
    ]
    assert len(query) > 10_000
    wrong = []
    for (scope, name, text), answer in zip(query, ask(*({"value": question} for question in query)), strict=True):
        key = SCOPES[scope][name]
        try:
            ours = {"shown": key.type.show(key.parse(text)) if not key.sensitive else text.strip()}
        except ValueError as error:
            ours = {"error": str(error)}
        assert "shown" in ours or (name in ours["error"] and "must" in ours["error"]), ours
        same = ours.get("shown") == answer.get("shown")
        if not same and not differs_on_purpose(scope, name, text):
            wrong.append(f"{name}={text!r}: Kafka says {answer}, we say {ours}")
    assert not wrong, "\n".join(wrong)


# Whole topics.

TOPICS: list[dict[str, str]] = [
    {},
    {"retention.ms": "-1", "cleanup.policy": "compact,delete"},
    {"retention.ms": "-2"},
    {"nonsense": "1"},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    {"segment.ms": "10", "segment.jitter.ms": "50"},
    {"remote.log.copy.disable": "true"},
    {"local.retention.ms": "99999999999"},
    {"leader.replication.throttled.replicas": "*,0:1"},
    {"message.format.version": "3.0"},
    {"cleanup.policy": ""},
]


def test_topics_are_taken_and_refused_as_by_apache_kafka() -> None:
    for configs, answer in zip(TOPICS, ask(*({"topic": configs} for configs in TOPICS)), strict=True):
        try:
            validate_topic(dict(configs))
            refused = False
        except KafkaError:
            refused = True
        assert refused == ("error" in answer), (configs, answer)


# A running broker.


class Client(serving.Client):
    """What this file asks a broker."""

    def describe(self, resource: Resource, name: str, keys: list[str] | None = None) -> dict[str, ConfigEntry]:
        query = DescribeConfigsRequest.Resource(resource_type=resource, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=[query], include_synonyms=True, include_documentation=True)
        deadline = time.monotonic() + 10
        while True:
            (result,) = self.ask(request, 4).results
            if result.error_code != UnknownTopicOrPartition.code or time.monotonic() > deadline:
                break
            time.sleep(0.1)  # the topic is confirmed, but the broker has not heard of it yet
        assert result.error_code == 0, result
        return {
            response.name: ConfigEntry(
                response.name,
                response.value,
                response.config_source,
                response.is_sensitive,
                response.read_only,
                tuple(ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in response.synonyms),
                response.config_type,
                None,
            )
            for response in result.configs
        }

    def alter(self, resource: Resource, name: str, changes: list[Change], *, validate_only: bool = False) -> int:
        wanted = query(resource, name, changes)
        request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
        (response,) = self.ask(request, 1).responses
        code: int = response.error_code
        return code

    def create(self, name: str, configs: Mapping[str, str]) -> Any:
        Topic = CreateTopicsRequest.Topic
        topic = Topic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[Topic.Config(name=key, value=text) for key, text in configs.items()],
        )
        (created,) = self.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert created.error_code == 0, created
        return created


def query(resource: Resource, name: str, changes: Sequence[Change]) -> IncrementalAlterConfigsRequest.Resource:
    wanted = IncrementalAlterConfigsRequest.Resource
    return wanted(
        resource_type=resource,
        resource_name=name,
        configs=[wanted.Config(name=key, config_operation=how, value=value) for key, how, value in changes],
    )


def our_cluster(config: Config) -> SmallCluster:
    """Our controller, with the topic `changed`, and brokers that are configured so."""
    cluster = SmallCluster(rules=DeclaredRules(lambda: config))
    cluster.create("changed")
    for name, layer in (("", config.cluster), ("1", config.broker)):
        cluster.append(
            ConfigRecord(resource_type=Resource.BROKER, resource_name=name, name=key, value=value)
            for key, value in layer.items()
        )
    return cluster


class Judge:
    """A running Apache Kafka and the configuration that it must have, by our reckoning."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.client = Client("127.0.0.1", kafka.port)
        properties = parse_properties((kafka.folder / "server.properties").read_bytes())
        self.config = Config(with_node_id(properties))
        # A fresh cluster with eligible leader replicas has this from the start.
        self.config = self.config.changed(cluster={"min.insync.replicas": "1"})

    def alter(self, resource: Resource, name: str, *changes: Change) -> None:
        """Change something there, and in our reckoning if it is a broker; wait until the broker shows it."""
        assert self.client.alter(resource, name, list(changes)) == 0
        if resource is Resource.BROKER:
            cluster = our_cluster(self.config)
            (reply,) = cluster.do(cluster.controller.incremental_alter_configs([query(resource, name, changes)]))
            assert reply.outcome.error is None, reply
            after = dict(cluster.metadata.configs.get(ClusterResource(resource, name)))
            self.config = self.config.changed(broker=after) if name else self.config.changed(cluster=after)


def without_words(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    """By name, without the documentation, which is our own; each key has one, though."""
    for entry in entries:
        declared = entry.type != description.UNKNOWN_TYPE and not entry.name.startswith("listener.name.")
        assert not declared or entry.documentation
    return {entry.name: entry._replace(documentation=None) for entry in entries}


def shown_alike(ours: Callable[[], dict[str, ConfigEntry]], theirs: Callable[[], dict[str, ConfigEntry]]) -> None:
    """Kafka applies a change a moment after it has confirmed it."""
    deadline = time.monotonic() + 10
    while ours() != theirs() and time.monotonic() < deadline:
        time.sleep(0.1)
    expected, found = ours(), theirs()
    assert set(expected) == set(found)
    wrong = [f"Kafka {found[name]}\nwe    {expected[name]}" for name in found if found[name] != expected[name]]
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    settings = {
        "log.retention.hours": 100,
        "log.cleaner.min.cleanable.ratio": "0.30",
        "group.consumer.session.timeout.ms": 50000,
        "unknown.key": "a",
        "listener.name.plaintext.max.connections": 1000,
        "ssl.key.password": "secret",
    }
    with ApacheKafka(settings, parent=tmp_path_factory.mktemp("kafka")) as kafka:
        judge = Judge(kafka)
        yield judge
        judge.client.close()


def test_a_running_broker_is_described_as_by_apache_kafka(judge: Judge) -> None:
    SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND

    def broker() -> dict[str, ConfigEntry]:
        return without_words(description.describe_broker(judge.config))

    def all_brokers() -> dict[str, ConfigEntry]:
        return without_words(description.describe_all_brokers(judge.config))

    def check() -> None:
        shown_alike(broker, lambda: judge.client.describe(Resource.BROKER, "1"))
        shown_alike(all_brokers, lambda: judge.client.describe(Resource.BROKER, ""))

    check()
    judge.alter(
        Resource.BROKER,
        "",
        Change("log.cleanup.policy", APPEND, "compact"),
        Change("log.retention.ms", SET, "777"),
        Change("another.unknown.key", SET, "1"),
        Change("leader.replication.throttled.rate", SET, "5"),
    )
    judge.alter(
        Resource.BROKER,
        "1",
        Change("log.retention.ms", SET, " 888 "),
        Change("listener.name.plaintext.ssl.keystore.type", SET, "PEM"),
        Change("listener.name.plaintext.ssl.keystore.password", SET, "secret"),
        Change("log.roll.ms", SET, "5000"),
        Change("log.cleaner.min.cleanable.ratio", SET, "1e-4"),
    )
    check()
    created = judge.client.create("inherits", {"segment.ms": " 5 ", "preallocate": "TRUE"})
    ours = {
        e.name: e
        for e in description.describe_created_topic(judge.config.topic({"segment.ms": " 5 ", "preallocate": "TRUE"}))
    }
    assert {c.name: (c.value, c.config_source) for c in created.configs} == {
        name: (entry.value, entry.source) for name, entry in ours.items()
    }
    topic = judge.config.topic({"segment.ms": " 5 ", "preallocate": "TRUE"})
    shown_alike(
        lambda: without_words(description.describe_topic(topic)),
        lambda: judge.client.describe(Resource.TOPIC, "inherits"),
    )
    judge.alter(
        Resource.BROKER, "", Change("log.retention.ms", DELETE, None), Change("log.cleanup.policy", DELETE, None)
    )
    judge.alter(Resource.BROKER, "1", *(Change(name, DELETE, None) for name in sorted(judge.config.broker)))
    check()


def test_topics_are_described_as_by_apache_kafka(judge: Judge) -> None:
    configs = {
        "retention.ms": " +7 ",
        "cleanup.policy": "delete, delete",
        "min.cleanable.dirty.ratio": "1e-4",
        "internal.segment.bytes": "5000",
    }
    judge.client.create("described", configs)
    topic = judge.config.topic(configs)
    shown_alike(
        lambda: without_words(description.describe_topic(topic)),
        lambda: judge.client.describe(Resource.TOPIC, "described"),
    )
    few = ["retention.ms", "nonsense", "internal.segment.bytes"]
    assert without_words(description.describe_topic(topic, few)) == judge.client.describe(
        Resource.TOPIC, "described", few
    )


def test_groups_and_subscriptions_are_described_as_by_apache_kafka(judge: Judge) -> None:
    texts = {"consumer.session.timeout.ms": "46000", "share.auto.offset.reset": "by_duration:PT1H"}
    changes = [Change(name, ConfigOperation.SET, text) for name, text in texts.items()]
    for overrides in ({}, texts):
        if overrides:
            judge.alter(Resource.GROUP, "group", *changes)
        group = judge.config.group(overrides)
        shown_alike(
            lambda group=group: without_words(description.describe_group(group)),  # type: ignore[misc]
            lambda: judge.client.describe(Resource.GROUP, "group"),
        )
    metrics = {"interval.ms": "5000", "match": "client_id=a.* , client_id=b"}
    judge.alter(
        Resource.CLIENT_METRICS, "m", *(Change(name, ConfigOperation.SET, text) for name, text in metrics.items())
    )
    shown_alike(
        lambda: without_words(description.describe_client_metrics(metrics)),
        lambda: judge.client.describe(Resource.CLIENT_METRICS, "m"),
    )


# fmt: off

OF_TOPICS = [
    ("nonsense", "1"), ("retention.ms", "x"), ("retention.ms", "-2"), ("retention.ms", "5"), ("cleanup.policy", "foo"),
    ("cleanup.policy", "compact,"), ("remote.storage.enable", "true"), ("leader.replication.throttled.replicas", "x"),
    ("min.insync.replicas", "5"), ("retention.ms", None),
]
OF_BROKERS = [
    ("num.partitions", "3"), ("node.id", "1"), ("nonsense", "1"), ("log.retention.ms", "x"), ("log.retention.ms", "-2"),
    ("log.retention.ms", "0"), ("log.retention.hours", "5"), ("background.threads", "0"), ("background.threads", "50"),
    ("num.io.threads", "7"), ("num.io.threads", "1"), ("num.io.threads", "99"), ("log.cleaner.threads", "5"),
    ("ssl.keystore.location", "a"), ("ssl.truststore.password", "a"), ("advertised.listeners", "PLAINTEXT://h:1"),
    ("listener.name.plaintext.ssl.keystore.type", "PEM"), ("listener.name.plaintext.max.connections", "5"),
    ("listener.name.plaintext.max.connections", "x"), ("listener.name.plaintext.nonsense", "1"),
    ("max.connections", "5"), ("max.connections.per.ip.overrides", "1.2.3.4:5"),
    ("max.connections.per.ip.overrides", "bad"), ("sasl.enabled.mechanisms", "PLAIN"),
    ("leader.replication.throttled.rate", "-1"), ("follower.replication.throttled.rate", "100"),
    ("message.max.bytes", "-1"), ("compression.type", "foo"), ("log.cleanup.policy", "foo"),
    ("log.cleaner.min.compaction.lag.ms", "10"), ("min.insync.replicas", "2"), ("log.segment.bytes", "5"),
    ("log.roll.ms", "0"), ("log.flush.interval.ms", "-1"), ("unstable.api.versions.enable", "true"),
    ("group.consumer.assignment.interval.ms", "50000"), ("producer.id.expiration.ms", "100"),
    ("log.retention.ms", None),
]
OF_GROUPS = [
    ("nonsense", "1"), ("consumer.session.timeout.ms", "1"), ("consumer.session.timeout.ms", "x"),
    ("consumer.session.timeout.ms", "70000"), ("consumer.heartbeat.interval.ms", "15000"),
    ("consumer.heartbeat.interval.ms", "15001"), ("share.record.lock.duration.ms", "5"),
    ("share.record.lock.duration.ms", "14000"), ("share.delivery.count.limit", "30"),
    ("share.auto.offset.reset", "EARLIEST"), ("share.isolation.level", "x"), ("streams.num.standby.replicas", "5"),
    ("consumer.assignment.interval.ms", "50000"), ("share.partition.max.record.locks", "20000"),
]
OF_SUBSCRIPTIONS = [
    ("nonsense", "1"), ("interval.ms", "5"), ("interval.ms", "100"), ("interval.ms", "3600001"), ("interval.ms", "x"),
    ("metrics", "a.b,c"), ("match", "client_id=a.*"), ("match", "foo=b"), ("match", "client_id=["),
    ("match", "client_id"),
]
CHANGES: list[tuple[Resource, str, str, int, str | None]] = [
    *((Resource.TOPIC, "changed", name, ConfigOperation.SET, text) for name, text in OF_TOPICS),
    (Resource.TOPIC, "changed", "retention.ms", ConfigOperation.APPEND, "1"),
    (Resource.TOPIC, "changed", "nonsense", ConfigOperation.APPEND, "1"),
    (Resource.TOPIC, "changed", "nonsense", ConfigOperation.DELETE, None),
    (Resource.TOPIC, "changed", "cleanup.policy", ConfigOperation.APPEND, "compact"),
    (Resource.TOPIC, "changed", "cleanup.policy", ConfigOperation.APPEND, "foo"),
    (Resource.TOPIC, "changed", "cleanup.policy", ConfigOperation.SUBTRACT, "delete"),
    *((Resource.BROKER, "1", name, ConfigOperation.SET, text) for name, text in OF_BROKERS),
    *((Resource.BROKER, "", name, ConfigOperation.SET, text) for name, text in OF_BROKERS),
    (Resource.BROKER, "", "log.retention.ms", ConfigOperation.APPEND, "5"),
    (Resource.BROKER, "", "nonsense", ConfigOperation.APPEND, "5"),
    (Resource.BROKER, "", "num.partitions", ConfigOperation.DELETE, None),
    (Resource.BROKER, "", "min.insync.replicas", ConfigOperation.DELETE, None),
    (Resource.BROKER, "", "log.retention.ms", 9, "1"),
    *((Resource.GROUP, "changed", name, ConfigOperation.SET, text) for name, text in OF_GROUPS),
    *((Resource.CLIENT_METRICS, "changed", name, ConfigOperation.SET, text) for name, text in OF_SUBSCRIPTIONS),
    (Resource.CLIENT_METRICS, "changed", "metrics", ConfigOperation.APPEND, "a"),
]

# fmt: on


def test_changes_are_taken_and_refused_with_the_codes_of_apache_kafka(judge: Judge) -> None:
    judge.client.create("changed", {})
    cluster = our_cluster(judge.config)
    wrong = []
    for resource, name, key, operation, value in CHANGES:
        change = Change(key, operation, value)
        code = judge.client.alter(resource, name, [change], validate_only=True)
        decision = cluster.controller.incremental_alter_configs([query(resource, name, [change])], validate_only=True)
        (reply,) = decision.replies
        if (ours := reply.outcome.code) != code:
            wrong.append(f"{resource.name} {name} {change}: Kafka answers {code}, we {ours}")
    assert not wrong, "\n".join(wrong)
