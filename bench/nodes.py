"""The two brokers of a comparison, each as a node that starts on an empty folder and reports its resource usage.

    with KafkaNode(folder) as node:
        node.address, node.pid, node.ready_seconds, node.rss_bytes()

Apache Kafka runs as its own start script runs it (G1, 1 GB of heap) with default settings, except those that a single
node requires. "Ready" is the time from the spawn of the process to its first answers: ApiVersions without an error, and
Metadata with a broker in it. A log line does not count. Formatting Kafka's folder is not counted.

A deleted topic's files are emptied from outside as soon as the broker has renamed them: both brokers keep them for a
minute, and at a gigabyte per second that is more disk than a benchmark should use.
"""

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compat-tests"))

from oracle import SETTINGS, ApacheKafka, OracleFailed, _free_ports, die_with_parent

READY_TIMEOUT_SECONDS = 120.0
READY_POLL_SECONDS = 0.002
STOP_TIMEOUT_SECONDS = 10.0
DELETE_TIMEOUT_SECONDS = 10.0
DELETE_POLL_SECONDS = 0.02
ANSWER_SIZE_LIMIT_BYTES = 1 << 20
LOG_TAIL_CHARS = 2000
DELETED_SUFFIX = "-delete"
OTHER_TREE = "import sys; sys.path.insert(0, {tree!r}); from trioka.__main__ import main; main()"

# The arguments that bin/kafka-server-start.sh and bin/kafka-run-class.sh pass to the JVM by default.
KAFKA_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# The compat tests use small settings for Kafka. Any single node needs only these of them; the others are removed.
NEEDED = (
    "process.roles",
    "node.id",
    "controller.listener.names",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)

API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 2, -1, 0)  # version 1, about no topic


class CannotStart(Exception):
    """One sentence about a broker that failed to start."""


class Node(ABC):
    """A broker for the length of a `with`."""

    name: str
    data_dir: Path
    pid: int
    port: int
    ready_seconds: float

    @abstractmethod
    def start(self) -> None:
        """Start again after a `stop`, on the same folder, and perhaps another port."""

    @abstractmethod
    def stop(self) -> None:
        """Stop cleanly; the folder stays."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def rss_bytes(self) -> int:
        """Resident memory of the process and its descendants."""
        return sum(rss_of(pid) for pid in family(self.pid))

    def log_tail(self) -> str:
        """The end of its log."""
        return ""

    def exit_report(self) -> str:
        """Why it has ended, if it has, to be appended to the error of a load."""
        return "" if rss_of(self.pid) else f"; the broker has ended: {error_line(self.log_tail())}"

    def disk_bytes(self) -> int:
        """Disk usage of the data folder in blocks, because preallocated index files are larger than their content."""
        return sum(_blocks(Path(where, name)) for where, _, names in os.walk(self.data_dir) for name in names)

    def reclaim(self, topic: str) -> None:
        """Truncate the files of a deleted topic."""
        reclaim(self.data_dir, topic)


class KafkaNode(Node):
    """Apache Kafka, as one node with default settings."""

    name = "Apache Kafka"

    def __init__(self, parent: Path) -> None:
        self._kafka = _TimedKafka(jvm_options=KAFKA_JVM, parent=parent)
        self.data_dir = self._kafka.data_dir

    def start(self) -> None:
        try:
            self._kafka.start()
        except OracleFailed as failed:
            raise CannotStart(str(failed)) from failed
        self.pid, self.port, self.ready_seconds = self._kafka.pid, self._kafka.port, self._kafka.ready_seconds

    def log_tail(self) -> str:
        return self._kafka.log_tail()

    def stop(self) -> None:
        self._kafka.stop()

    def close(self) -> None:
        self._kafka.close()


class _TimedKafka(ApacheKafka):
    """The compat tests' Kafka without their settings, and with time measurement."""

    spawned = ready_seconds = 0.0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _configure(self) -> Path:
        configuration = super()._configure()
        lines = configuration.read_text().splitlines(keepends=True)
        dropped = SETTINGS.keys() - set(NEEDED)
        configuration.write_text("".join(line for line in lines if line.partition("=")[0] not in dropped))
        return configuration

    def _launch(self, configuration: Path) -> None:
        self.spawned = time.perf_counter()
        super()._launch(configuration)

    def _wait_until_ready(self) -> bool:
        assert self._process is not None
        if wait_for_answers(self.port, self._process):
            self.ready_seconds = time.perf_counter() - self.spawned
            return True
        return super()._wait_until_ready()  # this one knows why the process ended


class TriokaNode(Node):
    """trioka, as `trioka dev` starts it; its data is in a folder beside Kafka's."""

    name = "trioka"

    def __init__(self, parent: Path, command: Sequence[str] = (), tree: Path | None = None) -> None:
        """`tree`: the sources of another trioka version, run by this Python."""
        self._command = list(command) or [str(Path(sys.executable).with_name("trioka"))]
        self._folder = parent / f"trioka-{time.monotonic_ns()}"
        self.data_dir = self._folder / "data"
        self._log = self._folder / "trioka.log"
        # An installed broker is compiled already. Here the first start of a run compiles it, and the best round counts.
        self._environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(parent / "bytecode")}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if tree is not None:
            self._command = [sys.executable, "-c", OTHER_TREE.format(tree=str(tree))]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.port,) = _free_ports(1)
        command = [*self._command, "dev", "--port", str(self.port), "--data", str(self.data_dir)]
        spawned = time.perf_counter()
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    preexec_fn=die_with_parent(),
                )
        except OSError as error:
            raise CannotStart(f"{command[0]} cannot be started: {error.strerror}.") from error
        if not wait_for_answers(self.port, self._process):
            words = self.log_tail().strip()
            raise CannotStart(f"trioka ended or was silent while it started: {words or '(no output)'}")
        self.ready_seconds = time.perf_counter() - spawned
        self.pid = self._process.pid

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARS:] if self._log.exists() else ""

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def reclaim(data_dir: Path, topic: str) -> None:
    """Truncate the files of a deleted topic, after its folders were renamed for deletion, or are gone."""
    deadline = time.monotonic() + DELETE_TIMEOUT_SECONDS
    partition = re.compile(rf"{re.escape(topic)}-\d+")
    while any(map(partition.fullmatch, os.listdir(data_dir))) and time.monotonic() < deadline:
        time.sleep(DELETE_POLL_SECONDS)
    for log in data_dir.glob(f"{topic}-*{DELETED_SUFFIX}/*.log"):
        with contextlib.suppress(FileNotFoundError):
            os.truncate(log, 0)


def error_line(words: str) -> str:
    """The last line with an error, without its decoration; otherwise the last line."""
    lines = [line.strip(" |+-") for line in words.splitlines()]
    lines = [line for line in lines if line]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "(no output)")


def wait_for_answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """True once the broker has responded; False if its process ended or the time is over."""
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, struct.error):
            if _answers(port, deadline - time.monotonic()):
                return True
        time.sleep(READY_POLL_SECONDS)
    return False


def _answers(port: int, timeout: float) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        (error,) = struct.unpack_from(">h", _ask(connection, API_VERSIONS_REQUEST))
        (brokers,) = struct.unpack_from(">i", _ask(connection, METADATA_REQUEST))
    return bool(error == 0 and brokers > 0)


def _ask(connection: socket.socket, request: bytes) -> bytes:
    """The response, from after its correlation id."""
    connection.sendall(request)
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        return stream.read(min(size, ANSWER_SIZE_LIMIT_BYTES))[4:]


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def rss_of(pid: int) -> int:
    """VmRSS in bytes; 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its descendants, including waited-for children."""
    ticks = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def allow_many_files() -> None:
    """Raise the limit of descriptors: a thousand connections need them on both ends; children inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def end_in_order() -> None:
    """Let SIGTERM end the harness as Ctrl-C does, so that brokers stop and folders are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
