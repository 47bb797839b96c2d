"""A server.properties is read, a node starts, listens and refuses to start, as with Apache Kafka."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from oracle import run_program

from trioka.broker.config.layers import ConfigError
from trioka.broker.config.properties import PropertiesError, parse_properties
from trioka.broker.config.server import load
from trioka.broker.security.tls.listener_check import check_security

Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("apache_kafka")


def ask(*questions: Json) -> list[Any]:
    lines = run_program("Configs", stdin="".join(json.dumps(question) + "\n" for question in questions)).splitlines()
    return [json.loads(line) for line in lines]


# Whole configurations.

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
MERE_BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
MERE_CONTROLLER = {"process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"}
MAP = "listener.security.protocol.map"
VOTERS = "controller.quorum.voters"
NODES: list[Mapping[str, str | None]] = [
    {},
    {"node.id": None},
    {"node.id": None, "broker.id": "7"},
    {"broker.id": "2"},
    {"node.id": "-1"},
    {"process.roles": None},
    {"process.roles": "broker,zookeeper"},
    {"controller.listener.names": None},
    {"controller.listener.names": "OTHER"},
    {"controller.listener.names": "CONTROLLER,OTHER"},
    {"controller.listener.names": "PLAINTEXT,CONTROLLER"},
    {"controller.quorum.bootstrap.servers": None},
    {"controller.quorum.bootstrap.servers": None, VOTERS: "1@localhost:9093"},
    {"controller.quorum.bootstrap.servers": None, VOTERS: "2@localhost:9093"},
    {"controller.quorum.bootstrap.servers": "localhost"},
    {VOTERS: "1-localhost:9093"},
    {VOTERS: "x@localhost:9093"},
    MERE_BROKER,
    {**MERE_BROKER, VOTERS: "1@localhost:9093"},
    {**MERE_BROKER, VOTERS: "2@localhost:9093"},
    {**MERE_BROKER, "listeners": NODE["listeners"]},
    {**MERE_BROKER, MAP: "PLAINTEXT:PLAINTEXT"},
    MERE_CONTROLLER,
    {**MERE_CONTROLLER, "listeners": NODE["listeners"]},
    {**MERE_CONTROLLER, VOTERS: "2@localhost:9093"},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "advertised.listeners": "PLAINTEXT://kafka.example:19092"},
    {"listeners": "plaintext://localhost:9092,controller://localhost:9093"},
    {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092"},
    {"listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"},
    {"listeners": "PLAINTEXT://localhost:9092,PLAINTEXT://localhost:9094,CONTROLLER://localhost:9093"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093"},
    {"listeners": "PLAINTEXT://localhost,CONTROLLER://localhost:9093"},
    {"listeners": "localhost:9092,CONTROLLER://localhost:9093"},
    {"listeners": "PLAINTEXT://localhost:x,CONTROLLER://localhost:9093"},
    {"listeners": "INTERNAL://localhost:9092,CONTROLLER://localhost:9093"},
    {"listeners": "INTERNAL://localhost:9092,CONTROLLER://localhost:9093", "inter.broker.listener.name": "INTERNAL"},
    {"listeners": "CONTROLLER://localhost:9093"},
    {"listeners": "SSL://localhost:9092,CONTROLLER://localhost:9093"},
    {
        "listeners": "IN://localhost:9092,OUT://localhost:9094,CONTROLLER://localhost:9093",
        MAP: "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "in",
    },
    {
        "listeners": "IN://localhost:9092,OUT://localhost:9094,CONTROLLER://localhost:9093",
        MAP: "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": "OUT://example.org:9094",
        "inter.broker.listener.name": "IN",
    },
    {
        "listeners": "IN://localhost:9092,CONTROLLER://localhost:9093",
        MAP: "IN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": "IN://example.org:9094,OTHER://example.org:1",
        "inter.broker.listener.name": "IN",
    },
    {MAP: "PLAINTEXT:PLAINTEXT"},
    {MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:TLS"},
    {MAP: "PLAINTEXT"},
    {MAP: "plaintext:plaintext,controller:plaintext"},
    {"inter.broker.listener.name": "OTHER"},
    {"inter.broker.listener.name": "CONTROLLER"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"security.inter.broker.protocol": "PLAINTEXT"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"},
    {"advertised.listeners": "CONTROLLER://localhost:9093"},
    {"log.dirs": "/data/a, /data/b"},
    {"log.dir": "/data/c"},
    {"log.dirs": ""},
    {"log.retention.ms": "0"},
    {"log.retention.ms": "-2"},
    {"log.retention.hours": "0"},
    {"log.retention.minutes": "-1", "log.retention.hours": "0"},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.segment.bytes": "14"},
    {"log.cleaner.threads": "4", "log.cleaner.dedupe.buffer.size": str(4 << 20)},
    {"log.cleaner.threads": "4", "log.cleaner.dedupe.buffer.size": str((4 << 20) + 4)},
    {"replica.fetch.wait.max.ms": "40000"},
    {"replica.fetch.wait.max.ms": "30001", "replica.socket.timeout.ms": "40000"},
    {"queued.max.request.bytes": "1000"},
    {"queued.max.request.bytes": "-5"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"max.connections.per.ip.overrides": "127.0.0.1"},
    {"group.consumer.session.timeout.ms": "70000"},
    {"group.consumer.min.session.timeout.ms": "50000"},
    {"group.consumer.heartbeat.interval.ms": "15001"},
    {"group.consumer.heartbeat.interval.ms": "45000", "group.consumer.max.heartbeat.interval.ms": "50000"},
    {"group.consumer.assignment.interval.ms": "15001"},
    {"group.share.session.timeout.ms": "70000"},
    {"group.share.record.lock.duration.ms": "14000"},
    {"group.share.delivery.count.limit": "10"},
    {"group.share.min.delivery.count.limit": "5", "group.share.delivery.count.limit": "4"},
    {"group.share.partition.max.record.locks": "4001"},
    {"group.streams.session.timeout.ms": "70000"},
    {"group.streams.num.standby.replicas": "3"},
    {"num.partitions": "x"},
    {"no.such.key": "x"},
    {"zookeeper.connect": "localhost:2181"},
    {"listener.name.plaintext.max.connections": "5"},
    {MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL", "ssl.client.auth": "required"},
]
# What Apache Kafka secures, or lets a class of Java judge, is not started here: that cannot be done yet.
FAIL_CLOSED: list[Mapping[str, str | None]] = [
    {MAP: "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"},
    {MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"},
    {
        "listeners": "PLAINTEXT://localhost:9092,OUT://localhost:9094,CONTROLLER://localhost:9093",
        MAP: "PLAINTEXT:PLAINTEXT,OUT:SASL_SSL,CONTROLLER:PLAINTEXT",
    },
]


def test_nodes_start_listen_and_refuse_as_apache_kafka() -> None:
    questions = []
    for changes in NODES:
        questions.append({name: text for name, text in {**NODE, **changes}.items() if text is not None})
    wrong = []
    for settings, answer in zip(questions, ask(*({"server": settings} for settings in questions)), strict=True):
        try:
            loaded = load(settings)
        except ConfigError as error:
            if "error" not in answer:
                wrong.append(f"{settings}: Kafka starts with {answer}, we say {error}")
            continue
        node = loaded.node
        ours: Json = {
            "listeners": [f"{e.name} {e.protocol.name} {e.host or 'null'} {e.port}" for e in node.listeners],
            "advertised": [f"{e.name} {e.protocol.name} {e.host or 'null'} {e.port}" for e in node.advertised],
            "log_dirs": list(node.log_dirs),
        }
        if node.is_broker:
            ours["inter_broker"] = node.inter_broker
        if not node.is_broker:
            answer.pop("advertised", None)
            del ours["advertised"]
        if ours != answer:
            wrong.append(f"{settings}: Kafka says {answer}, we say {ours}")
    assert not wrong, "\n".join(wrong)


def test_a_node_that_cannot_be_secured_is_started_by_apache_kafka_only() -> None:
    questions = [{**NODE, **changes} for changes in FAIL_CLOSED]
    for settings, answer in zip(questions, ask(*({"server": settings} for settings in questions)), strict=True):
        assert "error" not in answer, f"{settings}: {answer}"
        with pytest.raises(ConfigError, match=r"has no certificate|sasl\.enabled\.mechanisms is not set|by GSSAPI"):
            start_checks({name: text for name, text in settings.items() if text is not None})


def start_checks(settings: dict[str, str]) -> None:
    """What a start does before it opens anything."""
    loaded = load(settings)
    check_security(loaded.config, loaded.node)


# Properties files.


def test_properties_files_are_read_as_by_java() -> None:
    random = Random(4)
    alphabet = [*"ab=: \t\f\\\n\r#!é.", "\r\n", "\\u0041", "\\n", "\\\\"]
    files = ["".join(random.choices(alphabet, k=random.randrange(24))).encode("latin-1") for _ in range(4000)]
    files += [rb"\u12", rb"a=\ud83d\ude00", b"", b"\\", b"a\\", b"a=b\\\n", b"a=b\\\n  c\\\n\n#d", rb"\uD800"]
    wrong = []
    for data, answer in zip(files, ask(*({"properties": data.hex()} for data in files)), strict=True):
        answer.pop("", None)  # Java makes an empty key of a backslash at the end of a file; we make nothing of it
        try:
            ours = parse_properties(data)
            ours.pop("", None)
        except PropertiesError:
            ours = {"error": ""}
            answer = {"error": ""} if set(answer) == {"error"} else answer
        if ours != answer and b"\\uD800" not in data:  # half a character is text in Java, and none in Python
            wrong.append(f"{data!r}: Java reads {answer}, we read {ours}")
    assert not wrong, "\n".join(wrong)
