"""The configuration of SASL listeners: what is used, and what stops the start."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import assert_noticed
from support.sasl import SASL_SETTINGS
from support.serving import SETTINGS

from trioka.broker.config import sasl as sasl_module
from trioka.broker.config.layers import Config, ConfigError
from trioka.broker.config.network_keys import CONNECTIONS_MAX_REAUTH_MS
from trioka.broker.config.server import load
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE

PLAIN_KEY = "listener.name.sasl.plain.sasl.jaas.config"
ENABLED = "sasl.enabled.mechanisms"
SECRET = "s3cret"
SECTIONS = {"KafkaServer": "user_a", "sasl.KafkaServer": "user_b"}


@pytest.fixture
def sasl() -> ModuleType:
    return sasl_module


def settings(**changes: str | None) -> dict[str, str]:
    """None removes a key; a double underscore stands for a dot."""
    changed = {**SETTINGS, **SASL_SETTINGS, **{key.replace("__", "."): value for key, value in changes.items()}}
    return {key: value for key, value in changed.items() if value is not None}


def refusal(module: ModuleType, **changes: str | None) -> str:
    with pytest.raises(ConfigError) as refused:
        module.sasl_of(Config(settings(**changes)), "SASL")
    return str(refused.value)


def test_what_cannot_be_served_stops_the_start_with_a_sentence_that_names_the_key(sasl: ModuleType) -> None:
    plain: dict[str, str | None] = {"listener.name.sasl.plain.sasl.jaas.config": None}
    cases: list[tuple[dict[str, str | None], str]] = [
        ({ENABLED: None}, f"{ENABLED} is not set"),
        ({ENABLED: ""}, f"{ENABLED} is empty"),
        ({ENABLED: "PLAIN,GSSAPI"}, f"{ENABLED} has GSSAPI"),
        ({ENABLED: "PLAIN,DIGEST-MD5"}, f"{ENABLED} has 'DIGEST-MD5'"),
        ({ENABLED: "plain"}, f"{ENABLED} has 'plain'"),
        ({"listener.name.sasl.sasl.enabled.mechanisms": "FOO"}, "listener.name.sasl.sasl.enabled.mechanisms has 'FOO'"),
        (plain, f"{PLAIN_KEY} is not set"),
        ({**plain, "sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "sasl.jaas.config has no effect on a broker"),
        ({PLAIN_KEY: f'{PLAIN_MODULE} required user_a="{SECRET}"'}, f"{PLAIN_KEY} must end"),
        ({PLAIN_KEY: f'{SCRAM_MODULE} required user_a="{SECRET}";'}, f"{PLAIN_KEY} has the login module"),
        ({PLAIN_KEY: f'com.sun.JndiLoginModule required a="{SECRET}";'}, f"{PLAIN_KEY} has the login module com.sun"),
        ({PLAIN_KEY: f'{PLAIN_MODULE} required user_="{SECRET}";'}, "without a name"),
        ({PLAIN_KEY: f'{PLAIN_MODULE} required user_a="";'}, "or a password"),
    ]
    for changes, sentence in cases:
        result = refusal(sasl, **changes)
        assert sentence in result and SECRET not in result, result
        with pytest.raises(ConfigError):
            load(settings(**changes))


def test_keys_of_the_listener_come_first(sasl: ModuleType) -> None:
    config = Config(
        settings(
            **{
                "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
                "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_other="x";',
                "connections.max.reauth.ms": "1",
                "listener.name.sasl.connections.max.reauth.ms": "2",
                "listener.name.sasl.plain.connections.max.reauth.ms": "3",
            }
        )
    )
    found = sasl.sasl_of(config, "SASL")
    assert found.mechanisms == ("PLAIN",)
    assert "user_alice" in found.modules["PLAIN"].options
    for mechanism, reauth_ms in (("PLAIN", 3), ("SCRAM-SHA-256", 2)):
        assert sasl.of_mechanism(config, "SASL", mechanism, CONNECTIONS_MAX_REAUTH_MS) == reauth_ms
    shared = Config(settings(**{PLAIN_KEY: None, "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_o="x";'}))
    assert "user_o" in sasl.sasl_of(shared, "SASL").modules["PLAIN"].options


def test_a_jaas_file_serves_what_no_key_does(sasl: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    changes: dict[str, str | None] = {PLAIN_KEY: None, "trioka.jaas.file": str(file)}
    assert "trioka.jaas.file cannot be read" in refusal(sasl, **changes)
    file.write_text(f'KafkaServer {{ {PLAIN_MODULE} required user_a="x"; {SCRAM_MODULE} required; }};')
    assert "user_a" in sasl.sasl_of(Config(settings(**changes)), "SASL").modules["PLAIN"].options
    sections = [f'{name} {{ {PLAIN_MODULE} required {user}="x"; }};' for name, user in SECTIONS.items()]
    file.write_text("\n".join(sections))
    assert "user_b" in sasl.sasl_of(Config(settings(**changes)), "SASL").modules["PLAIN"].options
    file.write_text(f'KafkaServer {{ com.sun.Krb5LoginModule required a="{SECRET}"; }};')
    assert "com.sun.Krb5LoginModule" in refusal(sasl, **changes)
    file.write_text(f"KafkaServer {{ {SCRAM_MODULE} required; }};")
    assert "once, for PLAIN" in refusal(sasl, **changes)
    file.write_text(f'KafkaServer {{ {PLAIN_MODULE} required user_a="{SECRET}" }};')
    assert SECRET not in refusal(sasl, **changes)


def test_a_valid_configuration_starts() -> None:
    loaded = load(settings())
    assert {each.name: each.protocol.name for each in loaded.node.listeners}["SASL"] == "SASL_PLAINTEXT"
    assert not loaded.warnings


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    (
        "        if mechanism not in SERVED:",
        "        if False:",
        test_what_cannot_be_served_stops_the_start_with_a_sentence_that_names_the_key,
    ),
    (
        "    if module.name != MODULE_OF[mechanism]:",
        "    if False:",
        test_what_cannot_be_served_stops_the_start_with_a_sentence_that_names_the_key,
    ),
    (
        "        if not name or not password:",
        "        if False:",
        test_what_cannot_be_served_stops_the_start_with_a_sentence_that_names_the_key,
    ),
    ("_names(listener, mechanism, key.name)[:1]", "()", test_keys_of_the_listener_come_first),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(sasl_module, right, wrong, rule)
