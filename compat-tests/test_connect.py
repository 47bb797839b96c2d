"""Kafka Connect, unmodified: a distributed worker copies a file into a topic, and the topic into another file.

Its workers are a group of a kind of their own ("connect", not "consumer"); what they agree on is kept in three
compacted topics that they make; and the sink is a consumer group. The worker is killed once, and another goes on.
"""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jars
import pytest
from broker_under_test import Node
from clients.catalogue import Catalogue
from clients.client import LATEST
from java_program import JavaProgram
from toolchains import unavailable

from trioka.pipeline.cache import Unavailable

pytest_plugins = ["broker_under_test"]
pytestmark = pytest.mark.usefixtures("apache_kafka")

WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
TOPIC = "connect-lines"
KEPT = {"connect-configs", "connect-offsets", "connect-status"}
ANSWER_TIMEOUT_SECONDS = 90


def worker_properties(bootstrap: str, port: int) -> str:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect-workers",
        "key.converter": converter,
        "value.converter": converter,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 500,
        "listeners": f"http://127.0.0.1:{port}",
        # Sessions end soon, so that the next worker and its sink may begin soon after this one was killed.
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "consumer.session.timeout.ms": 6000,
        "consumer.heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 0,
        "offset.storage.partitions": 2,
        "status.storage.partitions": 2,
    }
    for kind in ("config", "offset", "status"):
        name = {"config": "configs", "offset": "offsets"}.get(kind, kind)
        settings |= {f"{kind}.storage.topic": f"connect-{name}", f"{kind}.storage.replication.factor": 1}
    return "".join(f"{key}={value}\n" for key, value in settings.items())


class Worker(JavaProgram):
    """A worker, which is told by its web server what to do."""

    def __init__(self, folder: Path, class_path: str, bootstrap: str) -> None:
        self._port = free_port()
        properties = folder / "worker.properties"
        properties.write_text(worker_properties(bootstrap, self._port))
        super().__init__(folder, class_path, WORKER, properties)

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS) as answer:
            return json.load(answer)

    def is_up(self) -> bool:
        try:
            self.ask("connectors")
        except OSError:  # nobody listens yet, or it says that it is not ready
            return False
        return True

    def connect(self, name: str, **config: object) -> None:
        kind = "FileStreamSource" if name == "source" else "FileStreamSink"
        config |= {"connector.class": f"org.apache.kafka.connect.file.{kind}Connector", "tasks.max": 1}
        self.ask("connectors", {"name": name, "config": {key: str(value) for key, value in config.items()}})

    def runs(self, name: str) -> bool:
        try:
            status = self.ask(f"connectors/{name}/status")
        except urllib.error.HTTPError:
            return False
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        assert "FAILED" not in states, status
        return states == ["RUNNING", "RUNNING"]


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


def test_lines_of_a_file_go_through_a_topic_into_another_file(node: Node, catalogue: Catalogue, tmp_path: Path) -> None:
    try:
        class_path = jars.class_path_with("connect_jars.txt")
    except Unavailable as missing:
        unavailable(missing)
    client = catalogue["confluent-kafka"]
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\n")
    with Worker(tmp_path, class_path, node.bootstrap) as worker:
        worker.wait_until(worker.is_up)
        worker.connect("source", file=source, topic=TOPIC)
        worker.connect("sink", file=sink, topics=TOPIC)
        worker.wait_until(lambda: worker.runs("source") and worker.runs("sink"))
        worker.wait_until(lambda: sink.exists() and sink.read_text() == "one\ntwo\n")
        worker.kill()
        with source.open("a") as file:
            file.write("three\n")
        worker.start()
        worker.wait_until(lambda: sink.read_text().endswith("three\n"))
    # A worker that is killed may have sent more than it noted; it never leaves anything out.
    assert list(dict.fromkeys(sink.read_text().splitlines())) == ["one", "two", "three"]
    assert client.offset_at(TOPIC, LATEST) >= 3
    assert client.topics() >= KEPT
    for topic in KEPT:
        assert client.topic_config(topic)["cleanup.policy"] == "compact"
