"""Layers of a configuration, their descriptions, and their valid changes."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster

from trioka.broker.config import alteration, topic_keys, validation
from trioka.broker.config import coordinator_keys as coordinator
from trioka.broker.config import layers as effective
from trioka.broker.config import log_keys as log
from trioka.broker.config import network_keys as network
from trioka.broker.config.alteration import Change
from trioka.broker.config.controller_rules import DeclaredRules
from trioka.broker.config.description import (
    describe_all_brokers,
    describe_broker,
    describe_created_topic,
    describe_loggers,
    describe_topic,
)
from trioka.broker.config.group_keys import CONSUMER_SESSION_TIMEOUT_MS
from trioka.broker.config.key import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigSource,
    ConfigSynonym,
    Key,
    Resource,
)
from trioka.broker.config.layers import Config, ConfigError, log_config
from trioka.broker.config.reference import reference
from trioka.broker.config.topic_keys import CLEANUP_POLICY, FLUSH_MS, RETENTION_MS, SEGMENT_BYTES
from trioka.cluster.config_changes import ConfigReply
from trioka.cluster.configs import ConfigOperation, topic_resource
from trioka.cluster.decision import Decision
from trioka.cluster.metadata_log import MAX_RECORDS_PER_BATCH
from trioka.protocol.compression import Codec
from trioka.protocol.errors import InvalidConfig, InvalidRequest, KafkaError, PolicyViolation
from trioka.protocol.messages.alter_configs import AlterConfigsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.storage.log_config import LogConfig

ROOT = Path(__file__).resolve().parents[3]
HOUR_MS = 3_600_000
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.fixture
def module() -> ModuleType:
    return effective


# Layers.


def test_each_layer_of_a_broker_is_stronger_than_the_one_before(module: ModuleType) -> None:
    layers: dict[str, dict[str, str]] = {}
    config = module.Config({}, **layers)
    assert config[network.MAX_CONNECTIONS] == 2**31 - 1 and not config.is_set(network.MAX_CONNECTIONS)
    config = module.Config({"max.connections": "1"})
    assert config[network.MAX_CONNECTIONS] == 1
    config = config.changed(cluster={"max.connections": "2"})
    assert config[network.MAX_CONNECTIONS] == 2
    config = config.changed(broker={"max.connections": "3"})
    assert config[network.MAX_CONNECTIONS] == 3
    assert config.changed(broker={}, cluster={})[network.MAX_CONNECTIONS] == 1


def test_a_topic_takes_the_first_of_the_brokers_keys_that_is_set(module: ModuleType) -> None:
    assert module.Config().topic()[RETENTION_MS] == 7 * 24 * HOUR_MS
    assert module.Config({"log.retention.hours": "2"}).topic()[RETENTION_MS] == 2 * HOUR_MS
    minutes = {"log.retention.hours": "2", "log.retention.minutes": "3"}
    assert module.Config(minutes).topic()[RETENTION_MS] == 180_000
    assert module.Config({**minutes, "log.retention.ms": "4"}).topic()[RETENTION_MS] == 4
    assert module.Config(minutes).topic({"retention.ms": "5"})[RETENTION_MS] == 5


def test_a_key_that_is_set_at_run_time_puts_its_synonyms_out_of_force(module: ModuleType) -> None:
    config = module.Config({"log.retention.hours": "2"}, cluster={"log.retention.ms": "5"})
    assert config[log.LOG_RETENTION_HOURS] == 168  # as if it had never been set
    assert config.topic()[RETENTION_MS] == 5


def test_what_brokers_let_through_is_brought_into_the_topics_range(module: ModuleType) -> None:
    assert module.Config({"log.retention.hours": "-5"}).topic()[RETENTION_MS] == -1
    assert module.Config(cluster={"log.flush.interval.ms": "-1"}).topic()[FLUSH_MS] == 0


def test_a_text_of_the_metadata_log_that_makes_no_sense_is_passed_over() -> None:
    config = Config({}, cluster={"max.connections": "many"})
    assert config[network.MAX_CONNECTIONS] == 2**31 - 1
    assert config.rejected == ("Invalid value 'many' for configuration max.connections: it must be a 32-bit integer.",)
    assert Config().topic({"retention.ms": "x"})[RETENTION_MS] == 7 * 24 * HOUR_MS


def test_a_listener_has_its_own_value_or_that_of_all() -> None:
    config = Config({"max.connections": "9", "listener.name.internal.max.connections": "5"})
    assert config.of_listener("INTERNAL", network.MAX_CONNECTIONS) == 5
    assert config.of_listener("EXTERNAL", network.MAX_CONNECTIONS) == 9


def test_a_groups_value_counts_within_the_brokers_bounds() -> None:
    group = {"consumer.session.timeout.ms": "50000"}
    assert Config().group()[CONSUMER_SESSION_TIMEOUT_MS] == 45_000
    assert Config().group(group)[CONSUMER_SESSION_TIMEOUT_MS] == 50_000
    narrow = Config({coordinator.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS.name: "46000"})
    assert narrow.group(group)[CONSUMER_SESSION_TIMEOUT_MS] == 46_000


# Storage.


def test_storage_gets_kafkas_defaults_from_a_config_that_says_nothing() -> None:
    assert log_config(Config().topic()) == LogConfig()


def test_storage_gets_what_a_topic_says() -> None:
    texts = {
        "cleanup.policy": "compact",
        "compression.type": "zstd",
        "retention.bytes": "-7",
        "segment.bytes": "2000000",
    }
    made = log_config(Config().topic(texts))
    assert made.cleanup_policy == {"compact"} and made.compression_type is Codec.ZSTD
    assert made.retention_bytes == -1 and made.segment_bytes == 2_000_000
    assert log_config(Config().topic({**texts, "internal.segment.bytes": "99"})).segment_bytes == 99
    assert log_config(Config().topic({"cleanup.policy": ""})).cleanup_policy == frozenset()


def texts_of(key: Key[object]) -> st.SearchStrategy[str]:
    match key.type.name:
        case "boolean":
            return st.sampled_from(["true", "false"])
        case "double":
            return st.floats(0, 1).map(str)
        case "string":
            return st.sampled_from(key.type.valid().split(", "))
        case "list":
            return st.sampled_from(["", "delete", "compact", "compact,delete", "0:1", "*"])
        case _:
            return st.integers(-(2**63), 2**63 - 1).map(str) | st.integers(-3, 1_100_000).map(str)


@given(st.fixed_dictionaries({}, optional={name: texts_of(key) for name, key in TOPIC_KEYS.items()}))
def test_storage_takes_every_topic_that_validation_takes(texts: dict[str, str]) -> None:
    try:
        config = validation.validate_topic(texts)
    except InvalidConfig:
        return
    log_config(config)


BROKERS = {synonym.name: synonym for key in TOPIC_KEYS.values() for synonym in key.synonyms}


@given(st.fixed_dictionaries({}, optional={name: texts_of(key) for name, key in BROKERS.items()}))
def test_storage_takes_every_default_that_a_running_broker_takes(texts: dict[str, str]) -> None:
    dynamic = {name: text for name, text in texts.items() if BROKERS[name].mode is not BROKER_KEYS["node.id"].mode}
    try:
        config = alteration.check_broker(Config(), dynamic, per_broker=True)
    except InvalidRequest:
        return
    log_config(config.topic())


# What DescribeConfigs says.


def test_every_key_is_described_though_nothing_is_set() -> None:
    entries = {entry.name: entry for entry in describe_topic(Config().topic())}
    assert set(entries) == {name for name, key in TOPIC_KEYS.items() if not key.hidden}
    assert {entry.source for entry in entries.values()} == {ConfigSource.DEFAULT}
    assert entries["cleanup.policy"].value == "delete"
    brokers = {entry.name for entry in describe_broker(Config())}
    assert {"num.partitions", "default.replication.factor", "node.id"} <= brokers
    assert "unstable.api.versions.enable" not in brokers


def test_a_description_tells_every_layer_the_strongest_first() -> None:
    config = Config(
        {"log.retention.hours": "2"}, cluster={"log.retention.ms": "3"}, broker={"log.retention.ms": "4"}
    ).topic({"retention.ms": "5"})
    (entry,) = describe_topic(config, ["retention.ms"])
    assert (entry.value, entry.source, entry.read_only, entry.type) == ("5", ConfigSource.TOPIC, False, 5)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "5", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "4", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_describe_and_create_differ_about_a_value_in_other_units() -> None:
    config = Config({"log.retention.hours": "2"}).topic()
    (described,) = describe_topic(config, ["retention.ms"])
    assert (described.value, described.source, described.synonyms) == ("7200000", ConfigSource.DEFAULT, ())
    created = {entry.name: entry for entry in describe_created_topic(config)}["retention.ms"]
    assert (created.value, created.source) == ("7200000", ConfigSource.STATIC_BROKER)


def test_secrets_and_unknown_keys_are_listed_without_their_values() -> None:
    config = Config({"ssl.key.password": "hunter2", "my.plugin.token": "hunter2", "ssl.truststore.type": "PEM"})
    result = {entry.name: entry for entry in describe_broker(config)}
    assert "hunter2" not in repr(result)
    assert result["my.plugin.token"].sensitive and result["my.plugin.token"].type == 0
    assert result["ssl.key.password"].synonyms == (ConfigSynonym("ssl.key.password", None, ConfigSource.STATIC_BROKER),)
    assert result["ssl.truststore.type"].value == "PEM"
    assert "hunter2" not in repr(describe_all_brokers(Config(cluster={"my.plugin.token": "hunter2"})))


def test_loggers_are_reported_with_their_levels() -> None:
    (entry,) = describe_loggers({"root": "INFO", "trioka": "WARN"}, ["root"])
    assert (entry.name, entry.value, entry.source) == ("root", "INFO", ConfigSource.BROKER_LOGGER)


# What may be.


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ({"retention.mss": "1"}, "Unknown topic config name: retention.mss; did you mean retention.ms?"),
        ({"qqq": "1"}, "Unknown topic config name: qqq."),
        ({"retention.ms": "-2"}, "Invalid value '-2' for configuration retention.ms: it must be at least -1."),
        (
            {"cleanup.policy": "foo"},
            "Invalid value 'foo' for configuration cleanup.policy: it must only contain compact, delete.",
        ),
        ({"retention.ms": None}, "Topic configs must not be null, but retention.ms is."),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "min.compaction.lag.ms is 10, but must be at most max.compaction.lag.ms (5).",
        ),
        (
            {"remote.storage.enable": "true"},
            "remote.storage.enable requires remote.log.storage.system.enable, which is false on this broker.",
        ),
    ],
)
def test_a_topic_is_refused_with_one_sentence(configs: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        validation.validate_topic(configs)
    assert str(error.value) == sentence


def test_a_topic_is_judged_together_with_its_brokers_defaults() -> None:
    with pytest.raises(InvalidConfig, match=r"must be at most max\.compaction\.lag\.ms \(5\)"):
        validation.validate_topic({"min.compaction.lag.ms": "10"}, Config({"log.cleaner.max.compaction.lag.ms": "5"}))


def test_tiers_cannot_be_left_without_a_word_about_what_is_in_them() -> None:
    tiers = Config({"remote.log.storage.system.enable": "true"})
    on = {"remote.storage.enable": "true"}
    validation.validate_topic(on, tiers)
    with pytest.raises(InvalidConfig, match=r"remote\.log\.delete\.on\.disable"):
        validation.validate_topic({}, tiers, before=on)
    validation.validate_topic({"remote.log.delete.on.disable": "true"}, tiers, before=on)
    with pytest.raises(InvalidConfig, match="compact"):
        validation.validate_topic({**on, "cleanup.policy": "compact"}, tiers)
    with pytest.raises(InvalidConfig, match=r"local\.retention\.ms is 9, but must be at most retention\.ms \(5\)"):
        validation.validate_topic({**on, "local.retention.ms": "9", "retention.ms": "5"}, tiers)


# Changes.


def orders_with(configs: Mapping[str, str]) -> SmallCluster:
    """A topic whose keys are the declared ones."""
    cluster = SmallCluster(rules=DeclaredRules(Config))
    cluster.create("orders", configs=configs)
    return cluster


def configs_of(cluster: SmallCluster, decision: Decision[ConfigReply]) -> dict[str, str]:
    (reply,) = cluster.do(decision)
    if reply.outcome.error is not None:
        raise reply.outcome.error(reply.outcome.message)
    return dict(cluster.metadata.configs.get(topic_resource("orders")))


def changed(current: Mapping[str, str], *changes: Change) -> dict[str, str]:
    cluster = orders_with(current)
    wanted = IncrementalAlterConfigsRequest.Resource
    configs = [wanted.Config(name=name, config_operation=how, value=value) for name, how, value in changes]
    resource = wanted(resource_type=Resource.TOPIC, resource_name="orders", configs=configs)
    return configs_of(cluster, cluster.controller.incremental_alter_configs([resource]))


def test_set_and_delete_are_of_single_keys() -> None:
    before = {"retention.ms": "5", "segment.ms": "6"}
    assert changed(before, Change("retention.ms", SET, "7")) == {"retention.ms": "7", "segment.ms": "6"}
    assert changed(before, Change("retention.ms", DELETE, None)) == {"segment.ms": "6"}
    assert changed(before, Change("nonsense", DELETE, None)) == before


def test_append_and_subtract_start_from_the_keys_own_default() -> None:
    assert changed({}, Change("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert changed({}, Change("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": ""}
    assert changed({"cleanup.policy": "compact"}, Change("cleanup.policy", APPEND, "compact,delete")) == {
        "cleanup.policy": "compact,delete"
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Change("retention.ms", APPEND, "1"), InvalidConfig),
        (Change("nonsense", SUBTRACT, "1"), InvalidConfig),
        (Change("retention.ms", SET, None), InvalidRequest),
        (Change("retention.ms", 9, "1"), InvalidRequest),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: Change, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        changed({}, change)


def test_one_request_changes_a_key_once() -> None:
    with pytest.raises(InvalidRequest, match="more than once"):
        changed({}, Change("retention.ms", SET, "1"), Change("retention.ms", DELETE, None))


def test_one_request_changes_not_too_many_keys() -> None:
    cluster = SmallCluster(rules=DeclaredRules(Config))
    wanted = IncrementalAlterConfigsRequest.Resource
    many = [
        wanted.Config(name=f"k{number}", config_operation=SET, value="1") for number in range(MAX_RECORDS_PER_BATCH + 1)
    ]
    with pytest.raises(PolicyViolation):
        configs_of(
            cluster,
            cluster.controller.incremental_alter_configs(
                [wanted(resource_type=Resource.BROKER, resource_name="", configs=many)]
            ),
        )


def test_replacing_returns_what_is_not_named_to_its_default() -> None:
    cluster = orders_with({"retention.ms": "5", "segment.ms": "6"})
    wanted = AlterConfigsRequest.Resource
    configs = [wanted.Config(name="segment.ms", value="7")]
    resource = wanted(resource_type=Resource.TOPIC, resource_name="orders", configs=configs)
    assert configs_of(cluster, cluster.controller.alter_configs([resource])) == {"segment.ms": "7"}


@pytest.mark.parametrize(
    ("after", "for_all", "for_one"),
    [
        (
            {"num.partitions": "3"},
            "Cannot update these configs dynamically, they need a restart: num.partitions.",
            "Cannot update these",
        ),
        ({"listeners": "PLAINTEXT://:1"}, "one broker at a time", None),
        ({"ssl.keystore.type": "PEM"}, "one listener at a time", "one listener at a time"),
        ({"listener.name.a.ssl.keystore.type": "PEM"}, "one broker at a time", None),
        ({"listener.name.a.max.connections": "5"}, None, None),
        ({"log.retention.ms": "x"}, "64-bit integer", "64-bit integer"),
        ({"log.roll.ms": "0"}, "at least 1", "at least 1"),
        ({"unknown": "x"}, None, None),
        ({"num.io.threads": "17"}, "double or halve", "double or halve"),
    ],
)
def test_a_running_broker_refuses_with_the_code_of_a_bad_request(
    after: dict[str, str], for_all: str | None, for_one: str | None
) -> None:
    for per_broker, sentence in ((False, for_all), (True, for_one)):
        if sentence is None:
            alteration.check_broker(Config(), after, per_broker=per_broker)
            continue
        with pytest.raises(InvalidRequest, match=sentence):
            alteration.check_broker(Config(), after, per_broker=per_broker)


def test_levels_are_set_and_deleted_but_never_of_nothing() -> None:
    assert alteration.alter_loggers([Change("root", SET, "WARN"), Change("trioka", DELETE, None)]) == {
        "root": "WARN",
        "trioka": None,
    }
    for change, error in (
        (Change("root", SET, "warn"), InvalidConfig),
        (Change("kafka", SET, "WARN"), InvalidConfig),
        (Change("root", DELETE, None), InvalidRequest),
        (Change("root", APPEND, "WARN"), InvalidRequest),
    ):
        with pytest.raises(error):
            alteration.alter_loggers([change])


def test_a_broker_whose_keys_contradict_each_other_does_not_start() -> None:
    validation.validate_broker(Config())
    with pytest.raises(ConfigError, match=r"^group\.consumer\.heartbeat\.interval\.ms is 15001, but must be at most"):
        validation.validate_broker(Config({"group.consumer.heartbeat.interval.ms": "15001"}))
    assert validation.connections_per_address(Config({"max.connections.per.ip.overrides": "a:1, ::1:2"})) == {
        "a": 1,
        "::1": 2,
    }


# The declarations themselves.


def test_every_key_says_what_it_is_in_one_sentence_of_its_own_scope() -> None:
    for keys in (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS):
        for name, key in keys.items():
            assert key.name == name and key.doc.endswith(".") and key.doc[0].isupper(), key.doc
            assert "|" not in key.doc and not key.effect.endswith("."), name


def test_a_topics_default_is_that_of_the_brokers_key_behind_it() -> None:
    for key in (*TOPIC_KEYS.values(), *GROUP_KEYS.values()):
        if key.synonyms:
            last = key.synonyms[-1]
            assert key.default == (
                last.default if effective.unit_ms(last) == 1 else last.default * effective.unit_ms(last)
            ), key.name


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs" / "CONFIG.md").read_text(encoding="utf-8") == reference(), "run make docs"


MISTAKES = [
    ("value *= unit_ms(synonym)", "pass", test_a_topic_takes_the_first_of_the_brokers_keys_that_is_set),
    (
        "(_without_synonyms(static, cluster, broker), cluster, broker)",
        "(static, cluster, broker)",
        test_a_key_that_is_set_at_run_time_puts_its_synonyms_out_of_force,
    ),
    (
        "(_without_synonyms(static, cluster, broker), cluster, broker)",
        "(_without_synonyms(static, cluster, broker), broker, cluster)",
        test_each_layer_of_a_broker_is_stronger_than_the_one_before,
    ),
    ("max(value, key.type.min)", "value", test_what_brokers_let_through_is_brought_into_the_topics_range),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(effective, right, wrong, rule)


def test_declared_names_are_typed() -> None:
    config = Config().topic()
    retention_ms: int = config[RETENTION_MS]
    policies: tuple[str, ...] = config[CLEANUP_POLICY]
    internal: int | None = config[topic_keys.INTERNAL_SEGMENT_BYTES]
    assert (retention_ms, policies, internal) == (7 * 24 * HOUR_MS, ("delete",), None)
    assert config[SEGMENT_BYTES] == 2**30
