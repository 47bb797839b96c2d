"""kcat, the command that many a script is made of. It brings an older librdkafka along than confluent-kafka does."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toolchains
from broker_under_test import Node
from clients.catalogue import Catalogue
from clients.client import CODECS, LATEST, PATIENCE_SECONDS, Client
from clients.samples import FIRST_TIMESTAMP_MS, STEP_MS, few, incompressible
from stored import stored_batches

from trioka.pipeline.installation.cache import Unavailable

pytest_plugins = ["broker_under_test"]

LARGE_BYTES = 900_000
LINES = 10_000

Kcat = Callable[..., str]


@pytest.fixture
def run(node: Node) -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    """kcat against the broker under test, however it ends."""
    try:
        program = toolchains.kcat()
    except Unavailable as missing:
        toolchains.unavailable(missing)

    def run(*arguments: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        command = [program, "-b", node.bootstrap, "-m", str(PATIENCE_SECONDS), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=2 * PATIENCE_SECONDS)

    return run


@pytest.fixture
def kcat(run: Callable[..., "subprocess.CompletedProcess[bytes]"]) -> Kcat:
    """What kcat prints when all is well."""

    def kcat(*arguments: str | Path, stdin: bytes = b"") -> str:
        done = run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return kcat


@pytest.fixture
def writer(catalogue: Catalogue) -> Client:
    """Someone who makes topics, and writes to them with chosen timestamps."""
    return catalogue["confluent-kafka"]


def consumed(kcat: Kcat, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Everything up to the end of the partition, each record as kcat's JSON."""
    text = kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-J", *arguments)
    return [json.loads(line) for line in text.splitlines()]


def test_kcat_lists_the_cluster(kcat: Kcat, writer: Client, topic: str, node: Node) -> None:
    writer.create_topic(topic, partitions=2)
    result = json.loads(kcat("-L", "-J", "-t", topic))
    (broker,) = result["brokers"]
    assert broker["name"] == node.bootstrap
    assert result["controllerid"] == broker["id"]
    (listed,) = result["topics"]
    assert listed["topic"] == topic
    only = [{"id": broker["id"]}]
    assert [(p["partition"], p["leader"], p["replicas"], p["isrs"]) for p in listed["partitions"]] == [
        (index, broker["id"], only, only) for index in range(2)
    ]
    assert topic in {row["topic"] for row in json.loads(kcat("-L", "-J"))["topics"]}


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_it_wrote_with_every_codec(
    codec: str, kcat: Kcat, writer: Client, topic: str, node: Node
) -> None:
    writer.create_topic(topic)
    lines = [f"line {number} lorem ipsum lorem ipsum" for number in range(20)]
    kcat("-P", "-t", topic, "-p", "0", "-z", codec, stdin="\n".join(lines).encode())
    assert [record["payload"] for record in consumed(kcat, topic)] == lines
    assert {header.codec.name.lower() for header in stored_batches(node.bootstrap, topic)} == {codec}


def test_kcat_keeps_keys_headers_and_nulls(kcat: Kcat, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    kcat("-P", "-t", topic, "-p", "0", "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", stdin=b"key:value\nno value:\n")
    kcat("-P", "-t", topic, "-p", "0", stdin="no key, 🦊\n".encode())
    assert [(r["offset"], r["key"], r["payload"], r.get("headers")) for r in consumed(kcat, topic)] == [
        (0, "key", "value", ["a", "1", "b", "2"]),
        (1, "no value", None, ["a", "1", "b", "2"]),
        (2, None, "no key, 🦊", None),
    ]


@pytest.mark.parametrize("setting", ["acks=0", "acks=1", "acks=all", "enable.idempotence=true"])
def test_kcat_writes_whatever_is_acknowledged(setting: str, kcat: Kcat, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    kcat("-P", "-t", topic, "-p", "0", "-X", setting, stdin=b"a\nb\nc\n")
    text = kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "3", "-q")
    assert text == "a\nb\nc\n"


def test_kcat_starts_at_an_offset_from_the_end_and_at_a_time(kcat: Kcat, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    writer.produce(topic, few(10))
    for start, offset in {
        "beginning": 0,
        "4": 4,
        "-3": 7,
        f"s@{FIRST_TIMESTAMP_MS + 5 * STEP_MS}": 5,
        f"s@{FIRST_TIMESTAMP_MS + 5 * STEP_MS + 1}": 6,
    }.items():
        assert [record["offset"] for record in consumed(kcat, topic, "-o", start)] == list(range(offset, 10)), start


def test_kcat_asks_for_offsets(kcat: Kcat, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    writer.produce(topic, few(10))
    for time, offset in {-1: 10, -2: 0, FIRST_TIMESTAMP_MS + 5 * STEP_MS: 5}.items():
        assert kcat("-Q", "-t", f"{topic}:0:{time}") == f"{topic} [0] offset {offset}\n"


def test_kcat_sends_a_file_of_900_kilobytes_as_one_record(
    kcat: Kcat, writer: Client, topic: str, tmp_path: Path
) -> None:
    writer.create_topic(topic)
    file = tmp_path / "large"
    file.write_bytes(incompressible(LARGE_BYTES // 2).hex().encode())
    kcat("-P", "-t", topic, "-p", "0", file)
    (record,) = consumed(kcat, topic)
    assert record["payload"] == file.read_text()


def test_kcat_keeps_the_order_of_ten_thousand_lines(kcat: Kcat, writer: Client, topic: str) -> None:
    writer.create_topic(topic)
    lines = "".join(f"line {number}\n" for number in range(LINES))
    kcat("-P", "-t", topic, "-p", "0", "-z", "snappy", stdin=lines.encode())
    assert kcat("-C", "-t", topic, "-p", "0", "-e", "-q") == lines
    assert writer.offset_at(topic, LATEST) == LINES


def test_kcat_makes_the_topic_that_it_writes_to(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", stdin=b"first\n")
    assert kcat("-C", "-t", topic, "-p", "0", "-e", "-q") == "first\n"


def test_kcat_hears_of_unknown_topics_and_of_records_that_are_too_large(
    run: Callable[..., "subprocess.CompletedProcess[bytes]"], writer: Client, topic: str
) -> None:
    done = run("-C", "-t", topic, "-p", "0", "-e")
    assert done.returncode == 1 and b"Unknown topic" in done.stderr, done
    writer.create_topic(topic, config={"max.message.bytes": "10000"})
    done = run("-P", "-t", topic, "-p", "0", stdin=b"x" * 50_000)
    assert b"Message size too large" in done.stderr, done
