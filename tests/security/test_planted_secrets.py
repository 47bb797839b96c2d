"""Attack 59: thirty planted secrets, and a real process that gets every request; no output contains one of them."""

import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from support.certificates import authority, signed
from support.sasl import PLAIN_JAAS, upsertion

from trioka.cli.client.connection import Connection, free_ports
from trioka.cli.client.login import Login
from trioka.cli.terminal.failure import Failure
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from trioka.protocol.sasl.scram import SCRAM_MECHANISMS, salted_password, scram_keys
from trioka.protocol.schema import Request

HOST: Final = "127.0.0.1"
NODE, LOGGERS = 4, 8
TIMEOUT_S: Final = 60.0
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS: Final = ("alice", "bob", "root")
LEAST_SECRETS: Final = 30


class Planted:
    """Secrets by name."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def new(self, name: str) -> str:
        self.texts[name] = f"planted-{name}-s3cret"
        return self.texts[name]

    def hidden(self, name: str, data: bytes) -> None:
        """Bytes, in any spelling that a log could have."""
        for kind, text in (
            ("hex", data.hex()),
            ("base64", b64encode(data).decode()),
            ("base64url", urlsafe_b64encode(data).decode()),
            ("repr", repr(data)[2:-1]),
        ):
            self.texts[f"{name} in {kind}"] = text

    def found_in(self, text: str) -> list[str]:
        return [name for name, secret in self.texts.items() if secret in text]


def stores(directory: Path, planted: Planted) -> dict[str, str]:
    """A listener whose key is in the properties, encrypted, and one with PKCS12 files."""
    trusted = authority()
    server = signed(trusted)
    pem = server.key_pem(planted.new("key-password"))
    body = [line for line in pem.splitlines() if not line.startswith("-")]
    planted.texts |= {f"line {number} of the key": line for number, line in enumerate(body) if len(line) > 40}
    planted.texts["line of the key as it is stored"] = "\\n".join(body)[:60]
    clear = [line for line in server.key_pem().splitlines() if not line.startswith("-")]
    planted.texts["the clear key"] = clear[0]
    own, trust = directory / "own.p12", directory / "trust.p12"
    own_password, trust_password = planted.new("keystore"), planted.new("truststore")
    own.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"own", server.key, server.certificate, None, BestAvailableEncryption(own_password.encode())
        )
    )
    trust.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(trusted.certificate, b"trusted")],
            BestAvailableEncryption(trust_password.encode()),
        )
    )
    for file in (own, trust):
        file.chmod(0o600)
    return {
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.key": pem.replace("\n", "\\n"),
        "listener.name.secure.ssl.keystore.certificate.chain": server.chain_pem.replace("\n", "\\n"),
        "listener.name.secure.ssl.key.password": planted.texts["key-password"],
        "listener.name.store.ssl.keystore.type": "PKCS12",
        "listener.name.store.ssl.keystore.location": str(own),
        "listener.name.store.ssl.keystore.password": own_password,
        "listener.name.store.ssl.truststore.type": "PKCS12",
        "listener.name.store.ssl.truststore.location": str(trust),
        "listener.name.store.ssl.truststore.password": trust_password,
    }


def jaas(planted: Planted, listener: str) -> str:
    users = " ".join(f'user_{name}="{planted.new(f"{listener}-{name}")}"' for name in USERS)
    return f"{PLAIN_MODULE} required {users};"


class AttackedProcess:
    """`trioka serve` at DEBUG, and everything that it says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.planted = Planted()
        self.ports = dict(zip(("OPEN", "PLAIN", "SECURE", "STORE", "http"), free_ports(HOST, 5), strict=True))
        self.properties = directory / "server.properties"
        self.said: dict[str, str] = {}
        self._write_properties()

    def _write_properties(self) -> None:
        planted, ports = self.planted, self.ports
        (self.directory / "secrets").write_text(f"jaas-file={planted.new('from-file')}\n")
        listeners = ",".join(f"{name}://{HOST}:{ports[name]}" for name in ("OPEN", "PLAIN", "SECURE", "STORE"))
        scram = {f"{each.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;" for each in MECHANISMS}
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{HOST}:9093",
            "log.dirs": str(self.directory / "data"),
            "listeners": f"{listeners},CONTROLLER://{HOST}:0",
            "listener.security.protocol.map": "OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAIN:SASL_PLAINTEXT,"
            "SECURE:SASL_SSL,STORE:SSL",
            "inter.broker.listener.name": "OPEN",
            "trioka.http.listeners": f"{HOST}:{ports['http']}",
            "sasl.enabled.mechanisms": f"PLAIN,{','.join(MECHANISMS)}",
            "listener.name.plain.plain.sasl.jaas.config": jaas(planted, "plain"),
            "listener.name.secure.plain.sasl.jaas.config": jaas(planted, "secure"),
            **scram,
            **stores(self.directory, planted),
            "delegation.token.secret.key": planted.new("token-key"),
            "sasl.oauthbearer.client.credentials.client.secret": planted.new("client-secret"),
            "sasl.oauthbearer.assertion.private.key.passphrase": planted.new("passphrase"),
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
            "listener.name.open.ssl.key.password": f"${{file:{self.directory / 'secrets'}:jaas-file}}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:root",
        }
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.properties.chmod(0o600)

    def run(self, name: str, *arguments: str | Path) -> str:
        """A command of ours that ends."""
        command = [sys.executable, "-m", "trioka", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        self.said[name] = done.stdout + done.stderr
        return self.said[name]

    def format(self) -> None:
        users = []
        for mechanism in MECHANISMS:
            password = self.planted.new(f"formatted-{mechanism}")
            users += ["--add-scram", f"{mechanism}=[name=ann,password={password}]"]
        reply = self.run("format", "storage", "format", "-t", "cluster0000000000000w", "-c", self.properties, *users)
        assert "ormat" in reply, reply

    def connection(self, listener: str, login: Login | None = None) -> Connection:
        return Connection(HOST, self.ports[listener], timeout_s=TIMEOUT_S, log_in=login)

    def ask(self, request: Request, version: int) -> Any:
        with closing(self.connection("OPEN")) as connection:
            answer = connection.ask(request, version)
            self.said[f"{type(request).__name__} {len(self.said)}"] = repr(answer)
            return answer


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[AttackedProcess]:
    found = AttackedProcess(tmp_path)
    found.format()
    log, output = tmp_path / "log", tmp_path / "output"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "trioka", "serve", str(found.properties), "--log-level", "debug"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert "ready in" in first, first + log.read_text()
        for name in ("cmdline", "environ"):
            found.said[name] = Path(f"/proc/{process.pid}/{name}").read_text(errors="replace")
        yield found
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=TIMEOUT_S)
    output.write_text(first + rest)
    for name, file in (("log", log), ("stdout", output)):
        found.said[name] = file.read_text()
    assert '"trioka.audit"' in found.said["log"] and '"level": "debug"' in found.said["log"]
    hits = {name: secrets for name, text in found.said.items() if (secrets := found.planted.found_in(text))}
    assert not hits, hits
    assert len(found.planted.texts) >= LEAST_SECRETS and "Traceback" not in found.said["log"]


def test_attack_59_no_planted_secret_is_told(attacked: AttackedProcess) -> None:
    planted = attacked.planted
    log_in_and_fail(attacked)
    make_users(attacked)
    make_tokens(attacked)
    alter_configs(attacked)
    describe(attacked)
    for path in ("metrics", "readyz", "healthz", "config", "no-such-page"):
        request = urllib.request.Request(f"http://{HOST}:{attacked.ports['http']}/{path}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                attacked.said[path] = answer.read().decode()
        except urllib.error.HTTPError as error:
            attacked.said[path] = error.read().decode()
    assert "trioka_" in attacked.said["metrics"]
    bootstrap = ("-b", f"{HOST}:{attacked.ports['OPEN']}")
    shown = attacked.run("config show", "config", "show", "--broker", "1", "--all", *bootstrap)
    assert "keystore" in shown and not planted.found_in(shown)
    for name, command in (
        ("lint", ("config", "lint", str(attacked.properties))),
        ("check", ("serve", str(attacked.properties), "--check", "--log-level", "debug")),
        ("doctor", ("doctor", *bootstrap)),
        ("users", ("user", "list", *bootstrap)),
        ("tokens", ("token", "list", *bootstrap)),
    ):
        attacked.run(name, *command)


def log_in_and_fail(attacked: AttackedProcess) -> None:
    planted = attacked.planted
    for name in USERS:
        right = Login(mechanism="PLAIN", username=name, password=planted.texts[f"plain-{name}"])
        with closing(attacked.connection("PLAIN", right)) as connection:
            connection.open()
    for mechanism in ("PLAIN", *MECHANISMS):
        typed = Login(mechanism=mechanism, username="alice", password=planted.new(f"typed-{mechanism}"))
        with closing(attacked.connection("PLAIN", typed)) as connection, pytest.raises(Failure) as refused:
            connection.open()
        attacked.said[f"refused {mechanism}"] = repr(refused.value) + str(refused.value)


def make_users(attacked: AttackedProcess) -> None:
    planted = attacked.planted
    for name in MECHANISMS:
        mechanism, password = SCRAM_MECHANISMS[name], planted.new(f"scram-{name}")
        wanted = upsertion("carol", name, password)
        salted = salted_password(mechanism, password, bytes(wanted.salt), wanted.iterations)
        keys = scram_keys(mechanism, salted)
        for kind, secret in (("salted", salted), ("stored", keys.stored_key), ("server", keys.server_key)):
            planted.hidden(f"{kind} key of {name}", secret)
        bad = upsertion("dave", name, password, iterations=1)
        attacked.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted, bad]), 0)
        right = Login(mechanism=name, username="carol", password=password)
        with closing(attacked.connection("PLAIN", right)) as connection:
            connection.open()
    attacked.ask(DescribeUserScramCredentialsRequest(users=None), 0)


def make_tokens(attacked: AttackedProcess) -> None:
    planted = attacked.planted
    login = Login(mechanism="PLAIN", username="root", password=planted.texts["plain-root"])
    for number in range(2):
        with closing(attacked.connection("PLAIN", login)) as connection:
            token = connection.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert token.error_code == 0
        planted.hidden(f"HMAC {number}", bytes(token.hmac))


def alter_configs(attacked: AttackedProcess) -> None:
    """Values that are taken, and values that are refused."""
    planted = attacked.planted
    changes = {
        "listener.name.plain.plain.sasl.jaas.config": f'{PLAIN_JAAS} user_new="{planted.new("altered")}";',
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN_JAAS} user_new="{planted.new("unfinished")}"',
        "listener.name.secure.ssl.key.password": planted.new("wrong-key-password"),
        "listener.name.store.ssl.keystore.password": planted.new("wrong-keystore"),
        "listener.name.secure.ssl.keystore.key": f"-----BEGIN PRIVATE KEY----- {planted.new('no-key')}",
    }
    resource = IncrementalAlterConfigsRequest.Resource
    for key, value in changes.items():
        config = resource.Config(name=key, config_operation=0, value=value)
        wanted = resource(resource_type=NODE, resource_name="1", configs=[config])
        attacked.ask(IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False), 1)


def describe(attacked: AttackedProcess) -> None:
    resources = [
        DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((NODE, "1"), (NODE, ""), (LOGGERS, "1"))
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    response = attacked.ask(request, 4)
    named = {config.name for result in response.results for config in result.configs}
    assert {"delegation.token.secret.key", "listener.name.plain.plain.sasl.jaas.config"} <= named


def test_the_search_finds_what_is_told() -> None:
    planted = Planted()
    planted.new("a")
    planted.hidden("b", b"\x01\xff" * 16)
    assert planted.found_in(f"x {planted.texts['a']} y {'01ff' * 16} z") == ["a", "b in hex"]
