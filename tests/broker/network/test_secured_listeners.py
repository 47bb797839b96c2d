"""TLS and SASL are not there yet: what a configuration says is secured is not served in plaintext. It is not started
with, and not changed to."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed
from support.serving import SETTINGS, ask, on_trio, running_broker

from trioka.broker.config import listeners as listeners_module
from trioka.broker.config import validation as validation_module
from trioka.broker.config.layers import Config, ConfigError
from trioka.broker.config.server import load, with_node_id
from trioka.cluster.configs import Resource, ResourceType
from trioka.protocol.errors import InvalidRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

MAP = "listener.security.protocol.map"
SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
HERE = "127.0.0.1"


def settings(protocol: str) -> list[dict[str, str]]:
    """Each way to ask for a protocol."""
    clients, controllers = f"PLAINTEXT://{HERE}:0", f"CONTROLLER://{HERE}:0"
    open_map = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    return [
        {  # the listener has the protocol's own name
            "listeners": f"{protocol}://{HERE}:0,{controllers}",
            MAP: f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
            "security.inter.broker.protocol": protocol,
        },
        {MAP: f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT"},
        {MAP: f"plaintext:{protocol.lower()},controller:plaintext"},
        {"listeners": f"{clients},OUT://:0,{controllers}", MAP: f"{open_map},OUT:{protocol}"},
        {  # nobody is told of it
            "listeners": f"{clients},OUT://:0,{controllers}",
            "advertised.listeners": f"PLAINTEXT://{HERE}:9092",
            MAP: f"{open_map},OUT:{protocol}",
        },
        {MAP: f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}"},
        {  # a broker that would ask controllers in plaintext
            "process.roles": "broker",
            "listeners": clients,
            "controller.quorum.voters": f"2@{HERE}:9093",
            MAP: f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}",
        },
        {"process.roles": "controller", "listeners": controllers, MAP: f"CONTROLLER:{protocol}"},
    ]


@pytest.fixture
def listeners() -> ModuleType:
    return listeners_module


@pytest.fixture
def validation() -> ModuleType:
    return validation_module


def test_no_listener_is_less_than_it_says(listeners: ModuleType) -> None:
    for protocol in SECURED:
        for changed in settings(protocol):
            config = Config(with_node_id({**SETTINGS, **changed}))
            with pytest.raises(ConfigError, match=rf"whose protocol is {protocol}, and TLS and SASL are not there yet"):
                listeners.node_of(config)
    for changed in settings("PLAINTEXT"):
        listeners.node_of(Config(with_node_id({**SETTINGS, **changed})))


def test_a_node_does_not_load_such_a_configuration() -> None:
    for changed in settings("SASL_SSL"):
        with pytest.raises(ConfigError, match="not there yet"):
            load({**SETTINGS, **changed})


def test_what_listeners_without_security_do_not_use_may_be_set() -> None:
    """As with Kafka: many a file has settings of TLS for listeners that it does not have."""
    loaded = load(
        {
            **SETTINGS,
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            MAP: "SSL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )
    assert any("ssl.client.auth" in note for note in loaded.notes)


def test_classes_that_refuse_something_are_not_left_out(validation: ModuleType) -> None:
    for name in ("create.topic.policy.class.name", "alter.config.policy.class.name", "principal.builder.class"):
        with pytest.raises(ConfigError, match=f"^{name} is 'org.example.Strict', and must not be set"):
            validation.validate_broker(Config({**SETTINGS, name: "org.example.Strict"}))
    default = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    validation.validate_broker(Config({**SETTINGS, "principal.builder.class": default}))


def set_configs(broker_id: int, **configs: str) -> IncrementalAlterConfigsRequest:
    wanted = IncrementalAlterConfigsRequest.Resource
    changes = [wanted.Config(name=key, config_operation=0, value=value) for key, value in configs.items()]
    resource = wanted(resource_type=ResourceType.BROKER, resource_name=str(broker_id), configs=changes)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


@on_trio
async def test_a_running_broker_is_not_changed_to_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for protocol in SECURED:
            wanted: dict[str, Any] = {
                "listeners": f"{SETTINGS['listeners']},OUT://{HERE}:0",
                MAP: f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUT:{protocol}",
            }
            (told,) = (await ask(broker, set_configs(broker.node_id, **wanted), 1)).responses
            assert told.error_code == InvalidRequest.code and "not there yet" in told.error_message
        assert not broker.metadata.configs.get(Resource(ResourceType.BROKER, str(broker.node_id)))
        assert set(broker.addresses) == {"PLAINTEXT"}


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("    _check_protocols(described, protocols)\n    return", "    return", test_no_listener_is_less_than_it_says),
    (
        '    used += [(f"controller.listener.names has {name}", name) for name in described.controller_names]\n',
        "",
        test_no_listener_is_less_than_it_says,
    ),
    (
        "for endpoint in described.listeners]\n    used",
        "for endpoint in described.advertised]\n    used",
        test_no_listener_is_less_than_it_says,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(listeners_module, right, wrong, rule)


def test_a_forgotten_judge_is_noticed() -> None:
    rule = test_classes_that_refuse_something_are_not_left_out
    for judge in ("CREATE_TOPIC_POLICY_CLASS_NAME", "ALTER_CONFIG_POLICY_CLASS_NAME"):
        assert_noticed(validation_module, f"    node.{judge},\n", "", rule)
    assert_noticed(validation_module, "    security.PRINCIPAL_BUILDER_CLASS,\n", "", rule)
