"""A broker neither starts with a TLS or SASL listener that it cannot secure, nor changes to one, rather than serve it
with less: without a certificate, or without mechanisms for logins."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio.testing
from mutants.plant import assert_noticed, planted
from support.serving import SETTINGS, ask, on_trio, running_broker

from trioka.broker.config import listeners as listeners_module
from trioka.broker.config import server as server_module
from trioka.broker.config import validation as validation_module
from trioka.broker.config.layers import Config, ConfigError
from trioka.broker.config.server import load
from trioka.broker.security.tls import listener_check, peer_security
from trioka.cluster.image.configs import ConfigResourceType
from trioka.protocol.errors import InvalidRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

MAP = "listener.security.protocol.map"
SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
HERE = "127.0.0.1"
REFUSED = r"sasl.enabled.mechanisms is not set|SASL between nodes is not implemented yet"


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
        {  # not advertised
            "listeners": f"{clients},OUT://:0,{controllers}",
            "advertised.listeners": f"PLAINTEXT://{HERE}:9092",
            MAP: f"{open_map},OUT:{protocol}",
        },
        {MAP: f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}"},
        {"process.roles": "controller", "listeners": controllers, MAP: f"CONTROLLER:{protocol}"},
    ]


@pytest.fixture
def validation() -> ModuleType:
    return validation_module


def node_with(changed: dict[str, str]) -> None:
    """What a start does before it opens anything."""
    loaded = load({**SETTINGS, **changed})
    listener_check.check_security(loaded.config, loaded.node)


def test_no_listener_is_less_than_it_says() -> None:
    for protocol in SECURED:
        for changed in settings(protocol):
            with pytest.raises(ConfigError):
                node_with(changed)
    for changed in settings("PLAINTEXT"):
        node_with(changed)


def test_a_broker_does_not_ask_controllers_with_less_than_is_configured() -> None:
    only_controllers = {
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{HERE}:0",
        "controller.quorum.voters": f"2@{HERE}:9093",
        "ssl.truststore.location": "/nowhere/trusted.pem",
    }
    for protocol in SECURED:
        with pytest.raises(ConfigError):
            node_with({**only_controllers, MAP: f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}"})


def test_what_listeners_without_security_do_not_use_may_be_set() -> None:
    """As with Kafka: many a file has settings of TLS for listeners that it does not have."""
    loaded = load(
        {
            **SETTINGS,
            "ssl.client.auth": "required",
            "sasl.mechanism.controller.protocol": "PLAIN",
            MAP: "SSL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )
    assert loaded.node.listeners


def test_classes_that_refuse_something_are_not_left_out(validation: ModuleType) -> None:
    for name in ("create.topic.policy.class.name", "alter.config.policy.class.name", "principal.builder.class"):
        with pytest.raises(ConfigError, match=f"^{name} is 'org.example.Strict', but must not be set"):
            validation.validate_broker(Config({**SETTINGS, name: "org.example.Strict"}))
    default = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    validation.validate_broker(Config({**SETTINGS, "principal.builder.class": default}))


def set_configs(broker_id: int, **configs: str) -> IncrementalAlterConfigsRequest:
    wanted = IncrementalAlterConfigsRequest.Resource
    changes = [wanted.Config(name=key, config_operation=0, value=value) for key, value in configs.items()]
    resource = wanted(resource_type=ConfigResourceType.BROKER, resource_name=str(broker_id), configs=changes)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


@on_trio
async def test_a_running_broker_is_not_changed_to_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for protocol in SECURED:
            wanted: dict[str, Any] = {
                "listeners": f"{SETTINGS['listeners']},OUT://{HERE}:0",
                MAP: f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUT:{protocol}",
            }
            (result,) = (await ask(broker, set_configs(broker.node_id, **wanted), 1)).responses
            if protocol == "SSL":  # only the broker itself can see that the listener has no certificate
                continue
            assert result.error_code == InvalidRequest.code and "sasl.enabled.mechanisms" in result.error_message
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert set(broker.addresses) == {"PLAINTEXT"}


MISTAKES = [
    (listeners_module, "node_of", "if endpoint.protocol.sasl:", "if False:"),
    (
        listener_check,
        "check_security",
        "[endpoint for endpoint in node.listeners if endpoint.protocol.tls]",
        "[endpoint for endpoint in node.listeners if False]",
    ),
    (peer_security, "peer_security", "if protocol.tls:", "if False:"),
    (peer_security, "peer_security", "if protocol.sasl:", "if False:"),
]


@pytest.mark.parametrize(("module", "name", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    module: ModuleType, name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = getattr(planted(module, right, wrong), name)
    for user in (server_module, listener_check, peer_security):
        if hasattr(user, name):
            monkeypatch.setattr(user, name, mistaken)
    for rule in (
        test_no_listener_is_less_than_it_says,
        test_a_broker_does_not_ask_controllers_with_less_than_is_configured,
    ):
        try:
            rule()
        except pytest.fail.Exception:
            return
    pytest.fail(f"{wrong} was not noticed")


def test_a_forgotten_judge_is_noticed() -> None:
    rule = test_classes_that_refuse_something_are_not_left_out
    for judge in ("CREATE_TOPIC_POLICY_CLASS_NAME", "ALTER_CONFIG_POLICY_CLASS_NAME"):
        assert_noticed(validation_module, f"    node.{judge},\n", "", rule)
    assert_noticed(validation_module, "    security.PRINCIPAL_BUILDER_CLASS,\n", "", rule)
