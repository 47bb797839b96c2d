"""SASL with unmodified clients, and JAAS texts as Apache Kafka reads them."""

import asyncio
import itertools
import re
import ssl
import subprocess
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from oracle import OracleFailed, run_program, run_tool
from shared_directory import VOTERS_IN_THE_LOG, SharedDirectory
from support.certificates import authority, signed
from support.jaas_texts import JAAS_TEXTS
from support.sasl import upsertion
from toolchains import CLIENTS, go_program, kafkajs, kcat, unavailable
from trioka_process import TriokaProcess

from trioka.cli.client.connection import Connection, free_ports
from trioka.cli.client.login import Login
from trioka.cli.terminal.failure import Failure
from trioka.pipeline.installation.cache import Unavailable
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from trioka.protocol.sasl.scram import LIBRDKAFKA_ADVICE

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "a,l=ice s3cret"
TOOL_PASSWORD = "scram-s3cret"  # a comma would separate the parts of a credential on the tool's command line
SESSION_MS, SESSIONS = 3000, 5
CONFIGS, TOPICS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.TopicCommand"


class Listener(NamedTuple):
    protocol: str  # SASL_PLAINTEXT or SASL_SSL
    address: str
    authority: Path  # PEM file, for SASL_SSL
    log: Path

    @property
    def ca(self) -> list[str]:
        """The last argument of our client programs."""
        return [str(self.authority)] if self.protocol == "SASL_SSL" else []

    def topic(self, client: str, mechanism: str) -> str:
        return f"{client}-{mechanism}-{self.protocol}"


@pytest.fixture(scope="module")
def listeners(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Listener]]:
    """The SCRAM users were made by Kafka's own tool, after a login by PLAIN."""
    folder = tmp_path_factory.mktemp("sasl")
    plain, secure, nodes = free_ports("127.0.0.1", 3)
    trusted = authority()
    signed(trusted).write(folder / "server.pem")
    (folder / "authority.pem").write_text(trusted.chain_pem)
    clients = f"SASL_PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure},NODES://127.0.0.1:{nodes}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{clients},CONTROLLER://127.0.0.1:0",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,NODES:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "NODES",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.pem",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
        "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "connections.max.reauth.ms": 15_000,
    }
    with TriokaProcess(folder, settings) as process:
        ports = {"SASL_PLAINTEXT": plain, "SASL_SSL": secure}
        found = {
            protocol: Listener(protocol, f"127.0.0.1:{port}", folder / "authority.pem", process.log)
            for protocol, port in ports.items()
        }
        config = command_config(folder, found["SASL_PLAINTEXT"], "PLAIN", PASSWORD)
        for mechanism in MECHANISMS[1:]:
            added = f"{mechanism}=[iterations=4096,password={TOOL_PASSWORD}]"
            of_user = ("--entity-type", "users", "--entity-name", USER)
            connected = ("--bootstrap-server", found["SASL_PLAINTEXT"].address, "--command-config", config)
            run_tool(CONFIGS, *connected, "--alter", "--add-config", added, *of_user)
        yield found
    assert "Traceback" not in process.log.read_text()


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def secured(request: pytest.FixtureRequest, listeners: dict[str, Listener]) -> Listener:
    return listeners[request.param]


def password_of(mechanism: str) -> str:
    return PASSWORD if mechanism == "PLAIN" else TOOL_PASSWORD


def command_config(folder: Path, listener: Listener, mechanism: str, password: str) -> Path:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    file = folder / f"{mechanism}.properties"
    lines = [
        f"security.protocol={listener.protocol}",
        f"sasl.mechanism={mechanism}",
        f'sasl.jaas.config={module} required username="{USER}" password="{password}";',
    ]
    if listener.ca:
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={listener.authority}"]
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(secured: Listener, mechanism: str) -> None:
    login: dict[str, Any] = {
        "bootstrap_servers": secured.address,
        "security_protocol": secured.protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password_of(mechanism),
    }
    if secured.ca:
        login["ssl_cafile"] = str(secured.authority)
    producer = kafka.KafkaProducer(**login)
    topic = secured.topic("kafka-python", mechanism)
    assert producer.send(topic, b"value").get(30).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **login)
    assert next(iter(consumer)).value == b"value"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in(secured: Listener, mechanism: str) -> None:
    login: dict[str, Any] = {
        "bootstrap.servers": secured.address,
        "security.protocol": secured.protocol,
        "ssl.ca.location": str(secured.authority),
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password_of(mechanism),
    }
    producer = Producer(login)
    topic = secured.topic("confluent", mechanism)
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    consumer = Consumer({**login, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None and message.error() is None and message.value() == b"value"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(secured: Listener, mechanism: str) -> None:
    login: dict[str, Any] = {
        "bootstrap_servers": secured.address,
        "security_protocol": secured.protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password_of(mechanism),
    }
    if secured.ca:
        login["ssl_context"] = ssl.create_default_context(cafile=str(secured.authority))
    topic = secured.topic("aiokafka", mechanism)

    async def round_trip() -> bytes | None:
        async with AIOKafkaProducer(**login) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **login) as consumer:
            async with asyncio.timeout(30):
                value: bytes | None = (await consumer.getone()).value
                return value

    assert asyncio.run(round_trip()) == b"value"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in(secured: Listener, mechanism: str, tmp_path: Path) -> None:
    right = command_config(tmp_path, secured, mechanism, password_of(mechanism))
    connected = ("--bootstrap-server", secured.address, "--command-config", right)
    run_tool(TOPICS, *connected, "--create", "--topic", secured.topic("java", mechanism))
    response = run_tool(CONFIGS, *connected, "--describe", "--entity-type", "users")
    assert f"SCRAM credential configs for user-principal '{USER}' are SCRAM-SHA-256=iterations=4096" in response
    wrong = command_config(tmp_path, secured, mechanism, "wrong")
    with pytest.raises(OracleFailed, match=r"(?i)authentication failed"):
        run_tool(TOPICS, "--bootstrap-server", secured.address, "--command-config", wrong, "--list")


def by_confluent(address: str, topic: str, is_over: Callable[[], bool]) -> int:
    errors: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    sent = 0
    while not is_over():
        producer.produce(topic, b"%d" % sent, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0.001)
        sent += 1
    assert producer.flush(30) == 0
    assert errors == [None] * sent
    return sent


def by_kafka_python(address: str, topic: str, is_over: Callable[[], bool]) -> int:
    producer = kafka.KafkaProducer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
        retries=0,
    )
    sent: list[Any] = []
    while not is_over():
        sent.append(producer.send(topic, b"%d" % len(sent)))
        time.sleep(0.001)
    producer.flush(30)
    assert all(each.succeeded() for each in sent)
    producer.close()
    return len(sent)


@pytest.mark.nightly
@pytest.mark.parametrize("produce", [by_confluent, by_kafka_python], ids=lambda client: str(client.__name__))
def test_a_client_logs_in_again_while_it_writes(tmp_path: Path, produce: Callable[..., int]) -> None:
    port, nodes = free_ports("127.0.0.1", 2)
    address = f"127.0.0.1:{port}"
    listeners = f"CLIENTS://{address},NODES://127.0.0.1:{nodes}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:0",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,NODES:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "NODES",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
        "connections.max.reauth.ms": SESSION_MS,
    }
    with TriokaProcess(tmp_path, settings) as process:
        until = time.monotonic() + SESSIONS * SESSION_MS / 1000
        sent = produce(address, "relogin", lambda: time.monotonic() > until)
    assert sent > 100
    text = process.log.read_text()
    assert "Traceback" not in text and "expired" not in text


def run_client(command: list[str | Path], listener: Listener, mechanism: str, topic: str, password: str) -> Any:
    whole = [*command, listener.address, mechanism, USER, topic, *listener.ca]
    return subprocess.run(whole, input=password, capture_output=True, text=True, timeout=120, check=False)


def go_login(client: str) -> list[str | Path]:
    try:
        return [*go_program("login"), client]
    except Unavailable as missing:
        unavailable(missing)


def kafkajs_login() -> list[str | Path]:
    try:
        (node, *_), environment = kafkajs()
    except Unavailable as missing:
        unavailable(missing)
    return ["env", f"NODE_PATH={environment['NODE_PATH']}", node, CLIENTS / "kafkajs" / "login.js"]


PROGRAMS: Mapping[str, Callable[[], list[str | Path]]] = {
    "franz-go": lambda: go_login("franz"),
    "sarama": lambda: go_login("sarama"),
    "sarama-v0": lambda: go_login("sarama-v0"),  # SaslHandshake 0, and messages without headers
    "kafkajs": kafkajs_login,  # its connections after the first begin with SaslHandshake
}


# The test of franz-go takes half a minute, so one mechanism is enough each time.
NIGHTLY = [("franz-go", mechanism) for mechanism in MECHANISMS[:-1]]


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [
        pytest.param(*each, marks=pytest.mark.nightly) if each in NIGHTLY else each
        for each in itertools.product(PROGRAMS, MECHANISMS)
    ],
)
def test_clients_of_other_languages_log_in(secured: Listener, client: str, mechanism: str) -> None:
    command, topic = PROGRAMS[client](), secured.topic(client, mechanism)
    done = run_client(command, secured, mechanism, topic, password_of(mechanism))
    assert done.stdout.strip() == "value", done.stderr
    refused = run_client(command, secured, mechanism, topic, "wrong")
    assert refused.returncode == 1 and "value" not in refused.stdout


def run_kcat(listener: Listener, mechanism: str) -> "subprocess.CompletedProcess[str]":
    settings = {
        "security.protocol": listener.protocol,
        "ssl.ca.location": listener.authority,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password_of(mechanism),
    }
    login = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
    command: list[str | Path] = [kcat(), "-b", listener.address, *login, "-L", "-m", "10"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_kcat_logs_in_by_plain(secured: Listener) -> None:
    response = run_kcat(secured, "PLAIN")
    assert "1 brokers" in response.stdout, response.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_kcat_with_an_old_librdkafka_fails_by_scram_and_the_log_says_why(secured: Listener, mechanism: str) -> None:
    version = re.search(r"librdkafka ([0-9]+)\.([0-9]+)\.([0-9]+)", subprocess.getoutput(f"{kcat()} -V"))
    assert version is not None
    before = secured.log.read_text().count(LIBRDKAFKA_ADVICE)
    response = run_kcat(secured, mechanism)
    if tuple(map(int, version.groups())) >= (2, 6, 1):
        assert "1 brokers" in response.stdout, response.stderr
    else:
        assert response.returncode and "1 brokers" not in response.stdout
        assert secured.log.read_text().count(LIBRDKAFKA_ADVICE) > before


def test_jaas_texts_are_read_as_kafka_reads_them(apache_kafka: None) -> None:
    lines = "".join(b64encode(text.encode()).decode() + "\n" for text in JAAS_TEXTS)
    answers = run_program("Jaas", stdin=lines).splitlines()
    for (text, options), answer in zip(JAAS_TEXTS.items(), answers, strict=True):
        if options is None:
            assert answer == "refused", text
            continue
        pairs = [part.split("=") for part in answer.removeprefix("options").split()]
        assert {_decoded(name): _decoded(value) for name, value in pairs} == options, text


def _decoded(text: str) -> str:
    encoded = text[1:-1]
    return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()


def test_apache_kafka_knows_the_users_that_trioka_made(apache_kafka: None, tmp_path: Path) -> None:
    """And trioka logs in to it as one of them, with the exchange that brokers use among themselves."""
    home = SharedDirectory(tmp_path, VOTERS_IN_THE_LOG)
    home.format()
    wanted = [upsertion(USER, mechanism, TOOL_PASSWORD) for mechanism in MECHANISMS[1:]]
    for each in wanted:
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[each])
        (result,) = home.trioka(lambda client, request=request: client.ask(request, 0).results)  # type: ignore[misc]
        assert result.error_code == 0
    (port,) = free_ports("127.0.0.1", 1)
    home._settings |= {
        "listeners": f"{home._settings['listeners']},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS[1:]),
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    with home.kafka():
        for mechanism in MECHANISMS[1:]:
            login = Login(mechanism=mechanism, username=USER, password=TOOL_PASSWORD)
            with closing(Connection("127.0.0.1", port, timeout_s=30, log_in=login)) as connection:
                connection.open()
                assert connection.ask(ApiVersionsRequest(), 0).error_code == 0
            wrong = Login(mechanism=mechanism, username=USER, password="wrong")
            refused = pytest.raises(Failure, match="does not let")
            with closing(Connection("127.0.0.1", port, timeout_s=30, log_in=wrong)) as connection, refused:
                connection.open()
