"""Unmodified clients over TLS, with and without a certificate of their own: produce, consume, and be known by name."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import toolchains
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from kafka import KafkaConsumer, KafkaProducer
from oracle import run_tool
from support.certificates import authority, signed
from support.serving import broker_in_thread
from support.tls_broker import SECURE, tls_settings

from trioka.broker.broker import Broker
from trioka.pipeline.installation.cache import Unavailable

COUNT = 20
PATIENCE_MS = 60_000
PASSWORD = "s3cret-pw"
AUTHORITY = authority()
SERVER = signed(AUTHORITY)
ANN = signed(AUTHORITY, "CN=ann,O=Example")


class Place(NamedTuple):
    broker: Broker
    bootstrap: str
    trusted: Path
    own: Path | None

    @property
    def principals(self) -> set[str]:
        return {each.principal for each in self.broker.network.connections if each.listener == SECURE}

    def saw_only(self, principals: set[str]) -> None:
        assert principals == {"User:ANONYMOUS" if self.own is None else "User:CN=ann,O=Example"}


@pytest.fixture(params=["none", "required"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, ssl_client_auth=request.param)
    own = ANN.write(tmp_path / "ann.pem") if request.param == "required" else None
    with broker_in_thread(tmp_path / "data", **settings) as broker:
        host, port = broker.addresses[SECURE]
        yield Place(broker, f"{host}:{port}", tmp_path / "authority.pem", own)


VALUES = [b"%d" % number * 1000 for number in range(COUNT)]


def test_kafka_python(place: Place) -> None:
    security = {"security_protocol": "SSL", "ssl_cafile": str(place.trusted)}
    if place.own is not None:
        security |= {"ssl_certfile": str(place.own), "ssl_keyfile": str(place.own)}
    producer = KafkaProducer(bootstrap_servers=place.bootstrap, **security)
    for value in VALUES:
        producer.send("greetings", value)
    producer.flush()
    place.saw_only(place.principals)
    producer.close()
    consumer = KafkaConsumer(
        "greetings",
        bootstrap_servers=place.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_MS,
        **security,
    )
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


def test_confluent_kafka(place: Place) -> None:
    security: dict[str, str | int | float | bool] = {
        "bootstrap.servers": place.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(place.trusted),
    }
    if place.own is not None:
        security |= {"ssl.certificate.location": str(place.own), "ssl.key.location": str(place.own)}
    producer = ConfluentProducer(dict(security))
    for value in VALUES:
        producer.produce("greetings", value)
    assert producer.flush(PATIENCE_MS / 1000) == 0
    place.saw_only(place.principals)
    consumer = ConfluentConsumer({**security, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["greetings"])
    found = [consumer.poll(PATIENCE_MS / 1000) for _ in VALUES]
    assert [message.value() for message in found if message is not None] == VALUES
    consumer.close()


def test_aiokafka(place: Place) -> None:
    context = ssl.create_default_context(cafile=place.trusted)
    if place.own is not None:
        context.load_cert_chain(place.own)

    async def round_trip() -> list[bytes | None]:
        security = {"bootstrap_servers": place.bootstrap, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**security) as producer:
            for value in VALUES:
                await producer.send_and_wait("greetings", value)
        async with AIOKafkaConsumer("greetings", auto_offset_reset="earliest", **security) as consumer:
            async with asyncio.timeout(PATIENCE_MS / 1000):
                found = [(await consumer.getone()).value for _ in VALUES]
            place.saw_only(place.principals)
            return found

    assert asyncio.run(round_trip()) == VALUES


LINES = "".join(f"{number}\n" for number in range(COUNT))


def test_kcat(place: Place) -> None:
    try:
        program = toolchains.kcat()
    except Unavailable as missing:
        toolchains.unavailable(missing)
    security: list[str | Path] = [program, "-b", place.bootstrap, "-t", "greetings", "-X", "security.protocol=ssl"]
    security += ["-X", f"ssl.ca.location={place.trusted}"]
    if place.own is not None:
        security += ["-X", f"ssl.certificate.location={place.own}", "-X", f"ssl.key.location={place.own}"]
    subprocess.run([*security, "-P"], input=LINES, text=True, check=True, timeout=PATIENCE_MS / 1000)
    done = subprocess.run(
        [*security, "-C", "-e", "-q"], capture_output=True, text=True, check=True, timeout=PATIENCE_MS / 1000
    )
    assert done.stdout == LINES


def test_franz_go(place: Place) -> None:
    try:
        command = toolchains.go_program("tls")
    except Unavailable as missing:
        toolchains.unavailable(missing)
    files = [place.trusted] if place.own is None else [place.trusted, place.own]
    done = subprocess.run(
        [*command, place.bootstrap, "greetings", *files],
        input=LINES,
        capture_output=True,
        text=True,
        check=True,
        timeout=2 * PATIENCE_MS / 1000,
    )
    assert done.stdout == LINES


def sarama() -> list[str | Path]:
    return [*toolchains.go_program("login"), "sarama"]


def kafka_go() -> list[str | Path]:
    return [*toolchains.go_program("login"), "kafka-go"]


def rskafka() -> list[str | Path]:
    return toolchains.rust_program("login")


def kafkajs() -> list[str | Path]:
    (node, *_), environment = toolchains.kafkajs()
    return ["env", f"NODE_PATH={environment['NODE_PATH']}", node, toolchains.CLIENTS / "kafkajs" / "login.js"]


IN_RUST = pytest.param(rskafka, marks=pytest.mark.nightly)  # a minute to compile


@pytest.mark.parametrize(
    "client", [sarama, kafka_go, kafkajs, IN_RUST], ids=lambda client: str(getattr(client, "__name__", client))
)
def test_clients_of_other_languages(place: Place, client: Callable[[], list[str | Path]]) -> None:
    try:
        command = client()
    except Unavailable as missing:
        toolchains.unavailable(missing)
    files = [place.trusted] if place.own is None else [place.trusted, place.own]
    whole = [*command, place.bootstrap, "TLS", "nobody", "greetings", *files]
    done = subprocess.run(whole, input="", capture_output=True, text=True, timeout=2 * PATIENCE_MS / 1000, check=False)
    assert done.stdout.strip() == "value", done.stderr


def java_stores(place: Place, kind: str, folder: Path) -> list[str]:
    """The stores of a Java client. `keytool` writes JKS."""
    if kind == "PEM":
        lines = ["ssl.truststore.type=PEM", f"ssl.truststore.location={place.trusted}"]
        return lines + (["ssl.keystore.type=PEM", f"ssl.keystore.location={place.own}"] if place.own else [])
    keytool = shutil.which("keytool")
    assert keytool is not None, "a Java installation has keytool"
    trusted, own = folder / "trusted", folder / "own"
    kept: list[str | Path] = ["-keystore", trusted, "-storepass", PASSWORD, "-storetype", kind]
    subprocess.run(
        [keytool, "-importcert", "-noprompt", "-file", place.trusted, *kept], check=True, capture_output=True
    )
    lines = [f"ssl.truststore.type={kind}", f"ssl.truststore.location={trusted}", f"ssl.truststore.password={PASSWORD}"]
    if place.own is None:
        return lines
    encrypted = BestAvailableEncryption(PASSWORD.encode())
    made = pkcs12.serialize_key_and_certificates(b"ann", ANN.key, ANN.certificate, ANN.issuers, encrypted)
    (folder / "own.p12").write_bytes(made)
    source: list[str | Path] = [
        "-srckeystore",
        folder / "own.p12",
        "-srcstoretype",
        "PKCS12",
        "-srcstorepass",
        PASSWORD,
    ]
    target: list[str | Path] = ["-destkeystore", own, "-deststoretype", kind, "-deststorepass", PASSWORD]
    subprocess.run([keytool, "-importkeystore", "-noprompt", *source, *target], check=True, capture_output=True)
    lines += [f"ssl.keystore.type={kind}", f"ssl.keystore.location={own}", f"ssl.keystore.password={PASSWORD}"]
    return [*lines, f"ssl.key.password={PASSWORD}"]


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_kafkas_own_tools(place: Place, kind: str, tmp_path: Path) -> None:
    lines = ["security.protocol=SSL", *java_stores(place, kind, tmp_path)]
    properties = tmp_path / "client.properties"
    properties.write_text("\n".join(lines))
    common = ("--bootstrap-server", place.bootstrap, "--topic", "greetings")
    run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *common,
        *("--command-config", properties),
        stdin="".join(f"{number}\n" for number in range(COUNT)),
    )
    text = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *common,
        *("--command-config", properties, "--from-beginning", "--max-messages", str(COUNT)),
        *("--timeout-ms", str(PATIENCE_MS)),
    )
    assert text.split() == [str(number) for number in range(COUNT)]
