"""Kafka Connect, unmodified: a distributed worker copies a file into a topic, and the topic into another file.

Its workers are a group of a kind of their own ("connect", not "consumer"); what they agree on is kept in three
compacted topics that they make; and the sink is a consumer group. The worker is killed once, and another goes on.
"""

from pathlib import Path

import pytest
from broker_under_test import Node
from clients.catalogue import Catalogue
from clients.client import LATEST
from connect_worker import Worker

pytest_plugins = ["broker_under_test"]
pytestmark = pytest.mark.usefixtures("apache_kafka")

TOPIC = "connect-lines"
KEPT = {"connect-configs", "connect-offsets", "connect-status"}


def test_lines_of_a_file_go_through_a_topic_into_another_file(node: Node, catalogue: Catalogue, tmp_path: Path) -> None:
    client = catalogue["confluent-kafka"]
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\n")
    with Worker(tmp_path, node.bootstrap, "connect") as worker:
        worker.wait_until(worker.is_up)
        worker.connect("source", "FileStreamSource", file=source, topic=TOPIC)
        worker.connect("sink", "FileStreamSink", file=sink, topics=TOPIC)
        worker.wait_until(lambda: worker.runs("source") and worker.runs("sink"))
        worker.wait_until(lambda: lines_of(sink) == ["one", "two"])
        worker.kill()
        with source.open("a") as file:
            file.write("three\n")
        worker.start()
        worker.wait_until(lambda: lines_of(sink) == ["one", "two", "three"])
    assert client.offset_at(TOPIC, LATEST) >= 3
    assert client.topics() >= KEPT
    for topic in KEPT:
        assert client.topic_config(topic)["cleanup.policy"] == "compact"


def lines_of(sink: Path) -> list[str]:
    """Each once: a worker that is killed may have sent more than it noted. It never leaves anything out."""
    return list(dict.fromkeys(sink.read_text().splitlines())) if sink.exists() else []
