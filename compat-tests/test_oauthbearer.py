"""OAUTHBEARER with unmodified clients: they log in to trioka with a token of an issuer on loopback, and not with a
forged one.
"""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import jars
import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from oracle import LOG_WARNINGS, OracleFailed, run_java
from security.tokens import AUDIENCE, ISSUER, claims, key_set, other_rsa_key, signed
from toolchains import go_program, unavailable
from trioka_process import TriokaProcess

from trioka.cli.client.connection import free_ports
from trioka.pipeline.installation.cache import Unavailable

HOST: Final = "127.0.0.1"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ALLOWED: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
TIMEOUT_S: Final = 20.0
TOPIC: Final = "greetings"

LogIn = Callable[[str, str, Path], set[str]]
"""Lists the topics: bootstrap address, token, a folder for files. It raises if the login fails."""


class KeySet(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = key_set()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TriokaProcess]:
    server = ThreadingHTTPServer((HOST, 0), KeySet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://{HOST}:{server.server_address[1]}/keys"
    clients, nodes = free_ports(HOST, 2)
    listeners = f"PLAINTEXT://{HOST}:{clients},NODES://{HOST}:{nodes}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:0",
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "NODES",
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,NODES:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "trioka.oauth.allowed.urls": url,
        "num.partitions": 2,
    }
    with TriokaProcess(tmp_path_factory.mktemp("trioka"), settings) as process:
        yield process
    server.shutdown()
    server.server_close()


def fresh(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    return claims(**{"iat": now, "exp": now + 600, **changed})


def by_confluent(bootstrap: str, token: str, folder: Path) -> set[str]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 300),
    }
    client = AdminClient(settings)
    client.poll(1.0)  # the callback is called here
    return set(client.list_topics(timeout=TIMEOUT_S).topics)


def by_kafka_python(bootstrap: str, token: str, folder: Path) -> set[str]:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    client = KafkaAdminClient(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        request_timeout_ms=int(TIMEOUT_S * 1000),
        bootstrap_timeout_ms=int(TIMEOUT_S * 1000),
    )
    with closing(client):
        return set(client.list_topics())


def by_java(bootstrap: str, token: str, folder: Path) -> set[str]:
    file = folder / "token"
    file.write_text(token)
    config = folder / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={LOGIN_HANDLER}\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n"
        "sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.FileJwtRetriever\n"
        f"sasl.jaas.config={MODULE} required;\n"
    )
    text = run_java(
        *LOG_WARNINGS,
        f"{ALLOWED}.files={file}",
        f"{ALLOWED}.urls=file://{file}",
        "-cp",
        jars.class_path(),
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        bootstrap,
        "--command-config",
        config,
        "--list",
    )
    return set(text.split())


def by_franz_go(bootstrap: str, token: str, folder: Path) -> set[str]:
    try:
        command = go_program("oauth")
    except Unavailable as missing:
        unavailable(missing)
    done = subprocess.run([*command, bootstrap], input=token, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


CLIENTS: Final = (by_confluent, by_kafka_python, by_java, by_franz_go)


@pytest.mark.parametrize("log_in", CLIENTS)
def test_a_client_logs_in_with_a_token(broker: TriokaProcess, tmp_path: Path, log_in: LogIn) -> None:
    for alg in ("RS256", "PS512", "ES256", "EdDSA") if log_in is not by_java else ("RS256",):
        assert log_in(broker.bootstrap, signed(fresh(), alg=alg), tmp_path) == set()


@pytest.mark.parametrize("log_in", CLIENTS)
def test_a_client_with_a_forged_token_is_refused(broker: TriokaProcess, tmp_path: Path, log_in: LogIn) -> None:
    with pytest.raises((confluent_kafka.KafkaException, OracleFailed, Exception)) as refused:
        log_in(broker.bootstrap, signed(fresh(), key=other_rsa_key()), tmp_path)
    assert refused.type is not AssertionError
    log = json.dumps(broker.log.read_text())
    assert "the signature does not fit" in log
