"""OAUTHBEARER with unmodified clients: they log in to trioka with a token of an issuer on loopback, with and without
TLS, and not with a forged one.
"""

import asyncio
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
import jars
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from oracle import LOG_WARNINGS, OracleFailed, run_java
from security.tokens import AUDIENCE, ISSUER, claims, key_set, other_rsa_key, signed
from support.certificates import authority
from support.certificates import signed as signed_by
from toolchains import CLIENTS, go_program, kafkajs, rust_program, unavailable
from trioka_process import TriokaProcess

from trioka.cli.client.connection import free_ports
from trioka.pipeline.installation.cache import Unavailable

HOST: Final = "127.0.0.1"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ALLOWED: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
TIMEOUT_S: Final = 20.0
NIGHTLY: Final = pytest.mark.nightly

LogIn = Callable[["Place", str, Path], None]
"""Logs in with a token, in a folder for files. It raises if the login fails."""


class Place(NamedTuple):
    protocol: str  # SASL_PLAINTEXT or SASL_SSL
    address: str
    authority: Path
    log: Path

    @property
    def has_tls(self) -> bool:
        return self.protocol == "SASL_SSL"


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
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    server = ThreadingHTTPServer((HOST, 0), KeySet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://{HOST}:{server.server_address[1]}/keys"
    folder = tmp_path_factory.mktemp("trioka")
    trusted = authority()
    signed_by(trusted).write(folder / "server.pem")
    (folder / "authority.pem").write_text(trusted.chain_pem)
    open_port, secure, nodes = free_ports(HOST, 3)
    listeners = f"OPEN://{HOST}:{open_port},SECURE://{HOST}:{secure},NODES://{HOST}:{nodes}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:0",
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "NODES",
        "listener.security.protocol.map": "OPEN:SASL_PLAINTEXT,SECURE:SASL_SSL,NODES:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.pem",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "trioka.oauth.allowed.urls": url,
    }
    with TriokaProcess(folder, settings) as process:
        ports = {"SASL_PLAINTEXT": open_port, "SASL_SSL": secure}
        yield {
            protocol: Place(protocol, f"{HOST}:{port}", folder / "authority.pem", process.log)
            for protocol, port in ports.items()
        }
    server.shutdown()
    server.server_close()


def fresh(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    return claims(**{"iat": now, "exp": now + 600, **changed})


def by_confluent(place: Place, token: str, folder: Path) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": place.address,
        "security.protocol": place.protocol,
        "ssl.ca.location": str(place.authority),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 300),
    }
    client = AdminClient(settings)
    client.poll(1.0)  # the callback is called here
    assert client.list_topics(timeout=TIMEOUT_S).brokers


def by_kafka_python(place: Place, token: str, folder: Path) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    client = KafkaAdminClient(
        bootstrap_servers=place.address,
        security_protocol=place.protocol,
        ssl_cafile=str(place.authority),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        request_timeout_ms=int(TIMEOUT_S * 1000),
        bootstrap_timeout_ms=int(TIMEOUT_S * 1000),
    )
    with closing(client):
        client.list_topics()


def by_aiokafka(place: Place, token: str, folder: Path) -> None:
    class Provider(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token

    async def round_trip() -> bytes | None:
        login: dict[str, Any] = {
            "bootstrap_servers": place.address,
            "security_protocol": place.protocol,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
            "ssl_context": ssl.create_default_context(cafile=place.authority) if place.has_tls else None,
        }
        topic = f"aiokafka-{place.protocol}"
        async with AIOKafkaProducer(**login) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **login) as consumer:
            async with asyncio.timeout(TIMEOUT_S):
                value: bytes | None = (await consumer.getone()).value
                return value

    assert asyncio.run(round_trip()) == b"value"


def by_java(place: Place, token: str, folder: Path) -> None:
    file = folder / "token"
    file.write_text(token)
    config = folder / "client.properties"
    config.write_text(
        f"security.protocol={place.protocol}\nsasl.mechanism=OAUTHBEARER\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={place.authority}\n"
        f"sasl.login.callback.handler.class={LOGIN_HANDLER}\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n"
        "sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.FileJwtRetriever\n"
        f"sasl.jaas.config={MODULE} required;\n"
    )
    run_java(
        *LOG_WARNINGS,
        f"{ALLOWED}.files={file}",
        f"{ALLOWED}.urls=file://{file}",
        "-cp",
        jars.class_path(),
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        place.address,
        "--command-config",
        config,
        "--list",
    )


def by_trioka(place: Place, token: str, folder: Path) -> None:
    """Our own commands, with the keys of Kafka's tools."""
    file = folder / "token"
    file.write_text(token)
    config = folder / "client.properties"
    config.write_text(
        f"security.protocol={place.protocol}\nsasl.mechanism=OAUTHBEARER\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={place.authority}\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n"
    )
    run([sys.executable, "-m", "trioka", "topics", "list", "-b", place.address, "--command-config", config], "")


def by_program(command: Callable[[], list[str | Path]]) -> LogIn:
    """A program of another language, which writes a record and reads it again."""

    def log_in(place: Place, token: str, folder: Path) -> None:
        try:
            program = command()
        except Unavailable as missing:
            unavailable(missing)
        topic = f"{command.__name__}-{place.protocol}"
        trusted = [place.authority] if place.has_tls else []
        assert run([*program, place.address, "OAUTHBEARER", "ann", topic, *trusted], token).strip() == "value"

    return log_in


def run(command: list[str | Path], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def franz_go() -> list[str | Path]:
    return [*go_program("login"), "franz"]


def sarama() -> list[str | Path]:
    return [*go_program("login"), "sarama"]


def kafka_js() -> list[str | Path]:
    (node, *_), environment = kafkajs()
    return ["env", f"NODE_PATH={environment['NODE_PATH']}", node, CLIENTS / "kafkajs" / "login.js"]


def rskafka() -> list[str | Path]:
    return rust_program("login")


LOGINS: Final[Mapping[str, LogIn]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "java": by_java,
    "trioka": by_trioka,
    "franz-go": by_program(franz_go),
    "sarama": by_program(sarama),
    "kafkajs": by_program(kafka_js),
    "rskafka": by_program(rskafka),
}
# The others take seconds for each login, or minutes to compile.
QUICK: Final = {
    ("confluent-kafka", "SASL_PLAINTEXT"),
    ("confluent-kafka", "SASL_SSL"),
    ("kafka-python", "SASL_SSL"),
    ("aiokafka", "SASL_SSL"),
    ("java", "SASL_SSL"),
    ("sarama", "SASL_SSL"),
    ("trioka", "SASL_SSL"),
}
CASES: Final = [(client, protocol) for client in LOGINS for protocol in ("SASL_PLAINTEXT", "SASL_SSL")]
CLIENTS_AND_PROTOCOLS: Final = [pytest.param(*case, marks=[] if case in QUICK else NIGHTLY) for case in CASES]


@pytest.mark.parametrize(("client", "protocol"), CLIENTS_AND_PROTOCOLS)
def test_a_client_logs_in_with_a_token(places: dict[str, Place], tmp_path: Path, client: str, protocol: str) -> None:
    for alg in ("RS256", "PS512", "ES256", "EdDSA") if client == "confluent-kafka" else ("RS256",):
        LOGINS[client](places[protocol], signed(fresh(), alg=alg), tmp_path)


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "trioka", pytest.param("java", marks=NIGHTLY)])
def test_a_client_with_a_forged_token_is_refused(places: dict[str, Place], tmp_path: Path, client: str) -> None:
    place = places["SASL_PLAINTEXT"]
    with pytest.raises((confluent_kafka.KafkaException, OracleFailed, Exception)):
        LOGINS[client](place, signed(fresh(), key=other_rsa_key()), tmp_path)
    assert "the signature does not fit" in place.log.read_text()
