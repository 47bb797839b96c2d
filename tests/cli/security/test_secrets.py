"""Secrets of a broker and of a client appear in no output, log, error, process list or answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import command, home

from trioka.cli.client.settings import find_settings
from trioka.cli.node.certificates import make_certificates
from trioka.cli.terminal.failure import Exit
from trioka.testing import Broker

__all__ = ["home"]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def planted(name: str) -> str:
    return f"planted-{name}-secret"


def test_no_secret_of_a_server_properties_is_printed_when_it_is_checked(home: Path) -> None:
    """Keys of each kind, a value from a file, and a mistake in another key."""
    (home / "secrets").write_text(f"password={planted('file')}\n")
    properties = home / "server.properties"
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        "controller.listener.names=CONTROLLER",
        "controller.quorum.voters=1@localhost:9093",
        f"log.dirs={home / 'data'}",
        "config.providers=file",
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
        f"ssl.key.password=${{file:{home / 'secrets'}:password}}",
        f"ssl.keystore.password={planted('keystore')}",
        f"ssl.keystore.key=-----BEGIN PRIVATE KEY----- {planted('key')} -----END PRIVATE KEY-----",
        f"ssl.truststore.password={planted('truststore')}",
        f"delegation.token.secret.key={planted('token')}",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.security.protocol.map=OUT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name=OUT",
        "listeners=OUT://localhost:9092,CONTROLLER://localhost:9093",
    ]
    jaas = "listener.name.out.plain.sasl.jaas.config"
    for text in (
        f'{jaas}={PLAIN} user_ann="{planted("jaas")}";',
        f'{jaas}={PLAIN} user_ann="{planted("jaas")}"',  # the semicolon is missing
        f'{jaas}=com.example.Module required user_ann="{planted("jaas")}";',
        f'sasl.jaas.config={PLAIN} user_ann="{planted("jaas")}";',
        f'{jaas}={PLAIN} user_ann="{planted("jaas")}";\nnum.partitions=-7',
    ):
        properties.write_text("\n".join([*lines, text]) + "\n")
        lint = command("config", "lint", str(properties))
        check = subprocess.run(
            [sys.executable, "-m", "trioka", "serve", str(properties), "--check", "--log-level", "debug"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        message = lint.out + lint.stderr + check.stdout + check.stderr
        assert message.strip() and "Traceback" not in message
        assert "planted-" not in message, message


def test_no_secret_of_a_running_broker_is_returned(home: Path) -> None:
    with Broker(tls=True, sasl=True, ssl_key_password=planted("key")) as broker:
        java = broker.client_config("java")
        password = broker.client_config("kafka-python")["sasl_plain_password"]
        config = home / "client.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in java.items()))
        at = broker.bootstrap_servers
        result = []
        for line in ("config show --broker 1 --all -o json", "doctor -o json", "user list -o json", "cluster brokers"):
            ended = command(*line.split(), "--command-config", str(config), at=at)
            assert ended.code in (Exit.OK, Exit.UNHEALTHY), ended
            result.append(ended.out + ended.stderr)
        result.append(broker.describe())
        for secret in (password, planted("key")):
            assert secret not in "".join(result)


def test_a_login_that_fails_tells_no_password(home: Path) -> None:
    with Broker(sasl=True) as broker:
        config = home / "client.properties"
        for mechanism, module in (("PLAIN", PLAIN), ("SCRAM-SHA-512", PLAIN.replace("plain.Plain", "scram.Scram"))):
            config.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
                f'sasl.jaas.config={module} username="admin" password="{planted("login")}";\n'
            )
            ended = command("topics", "list", "--command-config", str(config), at=broker.bootstrap_servers)
            assert ended.code == Exit.UNAUTHORISED and "TRK-1058" in ended.stderr, ended
            assert "Check user name and password" in ended.stderr
            assert planted("login") not in ended.out + ended.stderr + broker.describe()


def test_settings_and_certificates_do_not_show_what_they_hold(home: Path) -> None:
    config = home / "client.properties"
    config.write_text(
        f'security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={PLAIN} username="a" password="{planted("repr")}";\n'
    )
    settings = find_settings(bootstrap_server="localhost:9092", command_config=str(config), context=None)
    assert "planted-" not in repr(settings) + repr(settings.login())
    assert "PRIVATE KEY" not in repr(make_certificates())


def test_a_context_keeps_the_name_of_the_file_and_no_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = home / "client.properties"
    config.write_text(f"ssl.key.password={planted('context')}\n")
    monkeypatch.chdir(home)
    set_up = ("context", "set", "here", "-b", "localhost:1", "--command-config", "client.properties")
    assert command(*set_up).code == Exit.OK
    stored = (home / "config" / "trioka" / "contexts.json").read_text()
    assert planted("context") not in stored and os.path.abspath("client.properties") in stored
    monkeypatch.chdir("/")
    assert command("topics", "list").code == Exit.UNREACHABLE  # the file is found from another folder
    assert command("context", "set", "there", "-b", "localhost:1", "--command-config", "no-such").code == Exit.NOT_FOUND


def test_a_client_properties_takes_references(home: Path) -> None:
    config = home / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nconfig.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        f'sasl.jaas.config={PLAIN} username="admin" password="${{env:KAFKA_PASSWORD}}";\n'
    )
    with Broker(sasl=True) as broker:
        password = broker.client_config("kafka-python")["sasl_plain_password"]
        line = ("topics", "list", "--command-config", str(config))
        let_in = command(*line, at=broker.bootstrap_servers, environment={"KAFKA_PASSWORD": password})
        assert let_in.code == Exit.OK, let_in
        unset = command(*line, at=broker.bootstrap_servers)
        assert (
            unset.code == Exit.USAGE
            and "${env:KAFKA_PASSWORD}, and this environment variable is not set" in unset.stderr
        )
