"""What the controller may ask of the declared keys."""

from collections.abc import Mapping
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.serving import SETTINGS

from trioka.broker.config import controller_rules as config_rules
from trioka.broker.config.layers import Config
from trioka.cluster.image.configs import ALL_BROKERS, ConfigResource, ConfigResourceType, topic_resource
from trioka.protocol.errors import InvalidConfig, InvalidRequest, KafkaError

THIS = ConfigResource(ConfigResourceType.BROKER, "1")
ORDERS = topic_resource("orders")
NOWHERE = "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"


@pytest.fixture
def broker() -> ModuleType:
    return config_rules


def refused(broker: ModuleType, resource: ConfigResource, configs: Mapping[str, str], **static: str) -> type | None:
    config = Config({**SETTINGS, "log.dirs": "/logs", **{key.replace("_", "."): text for key, text in static.items()}})
    try:
        broker.DeclaredRules(lambda: config).validate(resource, configs, {})
    except KafkaError as error:
        return type(error)
    return None


def test_a_topics_configuration_is_looked_at_whole_and_beside_the_brokers(broker: ModuleType) -> None:
    assert refused(broker, ORDERS, {"retention.ms": "5"}) is None
    assert refused(broker, ORDERS, {"retention.mss": "5"}) is InvalidConfig
    lag = {"min.compaction.lag.ms": "10"}
    assert refused(broker, ORDERS, lag) is None
    assert refused(broker, ORDERS, {**lag, "max.compaction.lag.ms": "5"}) is InvalidConfig
    assert refused(broker, ORDERS, lag, log_cleaner_max_compaction_lag_ms="5") is InvalidConfig


def test_a_running_broker_keeps_the_listeners_that_nodes_need(broker: ModuleType) -> None:
    one_more = f"{SETTINGS['listeners']},MORE://127.0.0.1:3"
    protocols = "MORE:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert refused(broker, THIS, {"max.connections": "5"}) is None
    assert refused(broker, THIS, {"listeners": SETTINGS["listeners"]}) is None
    assert refused(broker, THIS, {"listeners": NOWHERE}) is None  # with the next start
    assert refused(broker, THIS, {"listeners": "nowhere"}) is InvalidRequest
    assert refused(broker, THIS, {"listeners": one_more}) is InvalidRequest  # without a protocol of its listener
    assert refused(broker, THIS, {"listeners": one_more, "listener.security.protocol.map": protocols}) is None
    others = {"listeners": NOWHERE.replace("PLAINTEXT:", "MORE:"), "listener.security.protocol.map": protocols}
    assert refused(broker, THIS, others) is InvalidRequest
    secure = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}
    assert refused(broker, THIS, secure) is InvalidRequest
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):  # what cannot be served is not taken for the next start
        later = {
            "listeners": one_more,
            "listener.security.protocol.map": protocols.replace("MORE:PLAINTEXT", f"MORE:{protocol}"),
        }
        assert refused(broker, THIS, later) is InvalidRequest


def test_lists_are_those_that_kafkas_controller_knows(broker: ModuleType) -> None:
    rules = broker.DeclaredRules(Config)
    assert rules.is_list(ConfigResourceType.TOPIC, "cleanup.policy")
    assert rules.default(ConfigResourceType.TOPIC, "cleanup.policy") == "delete"
    assert rules.is_list(ConfigResourceType.BROKER, "log.cleanup.policy")
    assert not rules.is_list(ConfigResourceType.TOPIC, "retention.ms")
    assert not rules.is_list(ConfigResourceType.TOPIC, "nope")
    assert not rules.is_list(ConfigResourceType.CLIENT_METRICS, "metrics")
    assert rules.default(ConfigResourceType.CLIENT_METRICS, "metrics") is None


def test_what_holds_for_all_brokers_names_no_single_one(broker: ModuleType) -> None:
    assert refused(broker, ALL_BROKERS, {"log.retention.ms": "5"}) is None
    assert refused(broker, ALL_BROKERS, {"num.partitions": "5"}) is InvalidRequest
    assert refused(broker, ALL_BROKERS, {"listeners": NOWHERE}) is InvalidRequest


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "            _check_listeners(config, configs)\n",
        "            pass\n",
        test_a_running_broker_keeps_the_listeners_that_nodes_need,
    ),
    (
        "check(keys.Resource(resource.type), resource.name, config, configs, before=before)",
        "check(keys.Resource(resource.type), resource.name, config, dict(list(configs.items())[:1]), before=before)",
        test_a_topics_configuration_is_looked_at_whole_and_beside_the_brokers,
    ),
    ("declared.is_list", "True", test_lists_are_those_that_kafkas_controller_knows),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(config_rules, right, wrong, rule)
