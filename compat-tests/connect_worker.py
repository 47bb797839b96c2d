"""A worker of Kafka Connect, unmodified, in a process of its own, controlled through its REST interface.

with Worker(folder, bootstrap, "connect") as worker:
    worker.wait_until(worker.is_up)
    worker.connect("source", "FileStreamSource", file=source, topic=TOPIC)
    worker.wait_until(lambda: worker.runs("source"))
    worker.kill()
    worker.start()
"""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jars
import psutil
from java_program import JavaProgram
from toolchains import unavailable

from trioka.pipeline.installation.cache import Unavailable

MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"
ANSWER_TIMEOUT_SECONDS = 90
# What it answers while its group rebalances, or while it is not yet a member of it, or when that took too long.
BUSY = (404, 409, 500, 503)


def worker_properties(bootstrap: str, name: str) -> dict[str, object]:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{name}-workers",
        "key.converter": converter,
        "value.converter": converter,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 500,
        "listeners": "http://127.0.0.1:0",  # a port that is chosen for it may be another's before it comes to take it
        # Sessions end soon, so that the next worker and its sink may begin soon after this one was killed.
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "consumer.session.timeout.ms": 6000,
        "consumer.heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 0,
        "offset.storage.partitions": 2,
        "status.storage.partitions": 2,
    }
    for kind, kept in (("config", "configs"), ("offset", "offsets"), ("status", "status")):
        settings |= {f"{kind}.storage.topic": f"{name}-{kept}", f"{kind}.storage.replication.factor": 1}
    return settings


class Worker(JavaProgram):
    """`name` is that of its group, and of the three topics in which such workers keep what they agree on."""

    def __init__(self, folder: Path, bootstrap: str, name: str, settings: Mapping[str, object] | None = None) -> None:
        """`settings` are added to, or replace, those of `worker_properties`."""
        settings = {**worker_properties(bootstrap, name), **(settings or {})}
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        try:
            class_path = jars.class_path_with("connect_jars.txt")
        except Unavailable as missing:
            unavailable(missing)
        super().__init__(folder, class_path, MAIN_CLASS, properties)

    def ask(self, path: str, body: Mapping[str, object] | None = None, method: str | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port()}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS) as answer:
            return json.load(answer)

    def _port(self) -> int:
        """Where it listens."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(self.pid).net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN:
                    return int(each.laddr.port)
        raise ConnectionRefusedError("it does not listen yet")

    def is_up(self) -> bool:
        try:
            self.ask("connectors")
        except OSError:  # the server does not listen yet, or reports that it is not ready
            return False
        return True

    def connect(self, name: str, kind: str, **config: object) -> None:
        """Returns when the worker has accepted it; while it is busy with its group, the request is repeated. `kind` is
        one of the connectors for files, or the name of a class."""
        wanted = {key.replace("_", "."): str(value) for key, value in config.items()}
        named = kind if "." in kind else f"org.apache.kafka.connect.file.{kind}Connector"
        wanted |= {"connector.class": named, "tasks.max": "1"}
        self.wait_until(lambda: self._takes(name, wanted))

    def _takes(self, name: str, config: Mapping[str, object]) -> bool:
        try:
            self.ask(f"connectors/{name}/config", config, "PUT")
        except urllib.error.HTTPError as refusal:
            if refusal.code not in BUSY:
                refusal.add_note(refusal.read().decode(errors="replace"))
                raise
            return False
        except OSError:
            return False
        return True

    def runs(self, name: str) -> bool:
        try:
            status = self.ask(f"connectors/{name}/status")
        except OSError:
            return False
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        assert "FAILED" not in states, status
        return states == ["RUNNING", "RUNNING"]

    def restart_failed(self, name: str) -> None:
        """Restarts failed tasks, which Connect does not do by itself."""
        with contextlib.suppress(OSError, json.JSONDecodeError):  # the answer may be empty
            self.ask(f"connectors/{name}/restart?includeTasks=true&onlyFailed=true", {}, "POST")
