"""References in configuration values: what they become, and that a reference without a value stops the start."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import assert_noticed

from trioka.broker.config import providers as providers_module
from trioka.broker.config.exposed_files import exposed_files
from trioka.broker.config.layers import ConfigError
from trioka.broker.config.server import load

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}
PACKAGE = "org.apache.kafka.common.config.provider."
DECLARED = {
    "config.providers": "file, env,dir",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
}
JAAS = 'a required username="admin" password="%s";'


@pytest.fixture
def providers() -> ModuleType:
    return providers_module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`secrets/kafka` is a properties file, `secrets/password` a text; `outside` is beside the folder."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "kafka").write_text("password=from a file\na\\:b=colon\nempty=\n")
    (secrets / "password").write_text("from a folder\n")
    (tmp_path / "outside").write_text("password=outside\n")
    (secrets / "link").symlink_to(tmp_path / "outside")
    return tmp_path


def resolve(providers: ModuleType, texts: Mapping[str, str], **variables: str) -> str:
    """The value of the key `x`."""
    try:
        found: str = providers.resolve_references({**DECLARED, **texts}, environment=variables)["x"]
    except ConfigError as error:
        return f"refused: {error}"
    return found


def test_references_become_the_values_that_they_name(providers: ModuleType, folder: Path) -> None:
    secrets = folder / "secrets"
    for text, value in (
        (f"${{file:{secrets}/kafka:password}}", "from a file"),
        (f"${{file:{secrets}/kafka:a:b}}", "colon"),
        (f"${{file:{secrets}/kafka:empty}}", ""),
        (f"${{dir:{secrets}:password}}", "from a folder\n"),
        ("${env:SECRET}", "from a variable"),
        (JAAS % "${env:SECRET}", JAAS % "from a variable"),
        ("${env:SECRET}, ${env:OTHER}", "from a variable, ${env:SECRET}"),  # a value is not looked through again
        ("${other:x}", "${other:x}"),
        ("$env:SECRET ${SECRET}", "$env:SECRET ${SECRET}"),
    ):
        assert resolve(providers, {"x": text}, SECRET="from a variable", OTHER="${env:SECRET}") == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:SECRET}", "x refers to ${env:SECRET}, and this environment variable is not set."),
        ("${env:/etc:SECRET}", "must be the name of a variable without a path"),
        ("${file:/no/such/file:password}", "/no/such/file cannot be read: No such file or directory."),
        ("${file:FOLDER/secrets/kafka:passwort}", "has no key 'passwort'"),
        ("${file:password}", "must name a path and a key"),
        ("${dir:FOLDER/secrets:../outside}", "'../outside' is not the name of a file in that folder"),
        ("${dir:FOLDER:secrets}", "cannot be read: Is a directory"),
    ],
)
def test_a_reference_without_a_value_is_refused_with_a_reason(folder: Path, text: str, reason: str) -> None:
    refused = resolve(providers_module, {"x": text.replace("FOLDER", str(folder))})
    assert refused.startswith("refused: x refers to ${") and reason in refused, refused


def test_a_path_outside_of_the_allowed_ones_is_refused(providers: ModuleType, folder: Path) -> None:
    allowed = {f"config.providers.{name}.param.allowed.paths": f"{folder}/secrets" for name in ("file", "dir")}
    assert resolve(providers, {**allowed, "x": f"${{file:{folder}/secrets/kafka:password}}"}) == "from a file"
    for path in (f"{folder}/outside", f"{folder}/secrets/../outside", f"{folder}/secrets/link", f"{folder}/secrets2"):
        refused = resolve(providers, {**allowed, "x": f"${{file:{path}:password}}"})
        assert "config.providers.file.param.allowed.paths does not allow this path" in refused, path
    refused = resolve(providers, {**allowed, "x": f"${{dir:{folder}:outside}}"})
    assert "config.providers.dir.param.allowed.paths does not allow this path" in refused


def test_a_variable_must_match_the_whole_pattern(providers: ModuleType) -> None:
    only = {"config.providers.env.param.allowlist.pattern": "KAFKA_.*"}
    assert resolve(providers, {**only, "x": "${env:KAFKA_A}"}, KAFKA_A="a") == "a"
    refused = resolve(providers, {**only, "x": "${env:NO_KAFKA_A}"}, NO_KAFKA_A="a")
    assert "config.providers.env.param.allowlist.pattern does not allow this variable" in refused


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"config.providers.file.class": "com.example.VaultProvider"}, "class is 'com.example.VaultProvider'; it must"),
        ({"config.providers.file.class": ""}, "config.providers.file.class is not set; it must be one of"),
        ({"config.providers.file.param.allowed.path": "/"}, "param.allowed.path is unknown; the parameters of"),
        ({"config.providers.file.param.allowed.paths": "secrets"}, "'secrets', which must be an absolute path"),
        ({"config.providers.dir.param.allowed.paths": "/no/such"}, "'/no/such', which must be an absolute path"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "which is not a valid regular expression"),
    ],
)
def test_a_provider_that_is_declared_wrongly_is_refused(changed: Mapping[str, str], reason: str) -> None:
    refused = resolve(providers_module, {**changed, "x": "1"})
    assert reason in refused and refused.startswith("refused: config.providers."), refused


def test_a_known_provider_that_is_not_declared_is_refused_and_the_message_says_how_to_declare_it() -> None:
    with pytest.raises(ConfigError, match=r"set config.providers=env and config.providers.env.class=") as result:
        load({**NODE, "ssl.key.password": "${env:SECRET}"})
    assert str(result.value).startswith("ssl.key.password refers to ${env:SECRET}")


def test_a_node_starts_with_what_the_references_name(folder: Path) -> None:
    (folder / "parts").write_text("n=7\n")
    loaded = load({**NODE, **DECLARED, "num.partitions": f"${{file:{folder}/parts:n}}"})
    assert loaded.config.static["num.partitions"] == "7"
    assert loaded.warnings == () and "config.providers" not in " ".join(loaded.notes)


def test_no_message_quotes_a_secret_file(folder: Path) -> None:
    (folder / "broken").write_text("hunter2=\\uZZZZhunter2\n")
    refused = resolve(providers_module, {"x": f"${{file:{folder}/broken:password}}"})
    assert "is not a valid properties file" in refused and "hunter2" not in refused and "ZZZZ" not in refused


def test_files_with_secrets_that_every_user_may_read_are_named() -> None:
    texts = {
        "listener.name.secure.plain.sasl.jaas.config": "a required;",
        "ssl.key.password": "${env:PASSWORD}",
        "ssl.keystore.location": "/etc/kafka/key.pem",
        "listener.name.other.ssl.keystore.location": "/etc/kafka/other.pem",
    }
    modes = {"server.properties": 0o644, "/etc/kafka/key.pem": 0o604, "/etc/kafka/other.pem": 0o640}
    properties, store = exposed_files("server.properties", texts, mode_of=modes.get)
    assert "contains listener.name.secure.plain.sasl.jaas.config and is readable" in properties
    assert store.startswith("The key store /etc/kafka/key.pem is readable by every user")
    private = dict.fromkeys(modes, 0o600)
    assert list(exposed_files("server.properties", texts, mode_of=private.get)) == []
    assert list(exposed_files("server.properties", {"num.partitions": "1"}, mode_of=modes.get)) == []


MISTAKES: list[tuple[str, str, Callable[..., None]]] = [
    ("real = real_path(path)", "real = path", test_a_path_outside_of_the_allowed_ones_is_refused),
    ("re2.fullmatch", "re2.search", test_a_variable_must_match_the_whole_pattern),
    (
        "os.path.commonpath([real, allowed]) == allowed",
        "real.startswith(allowed)",
        test_a_path_outside_of_the_allowed_ones_is_refused,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[..., None], folder: Path) -> None:
    def check(module: ModuleType) -> None:
        if rule is test_a_variable_must_match_the_whole_pattern:
            rule(module)
        else:
            rule(module, folder)

    assert_noticed(providers_module, right, wrong, check)
