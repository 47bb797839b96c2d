"""Three nodes of one broker, each a process that is broker and controller, which can be killed, stopped and started.

    with TriokaNodes(folder) as nodes:
        nodes.create("orders", partitions=3)
        nodes.kill(nodes.leader("orders", 0))

Both brokers have the same server.properties except for folders and ports, so the same timeouts, and are formatted by
the same command. Requests use the command line's connection, which is the same for both.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from nodes import KAFKA_JVM, OTHER_TREE, CannotStart, reclaim

from trioka.cli.client.connection import Connection, ConnectionClosed, free_ports
from trioka.cli.terminal.failure import Failure
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.schema import Request

HOST: Final = "127.0.0.1"
NUMBERS: Final = (1, 2, 3)
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
SESSION_S: Final = 4.0
SETTINGS: Final[Mapping[str, object]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # Kafka's 9 s and 2 s would only make the run longer. The quorum's timeouts are Kafka's defaults.
    "broker.session.timeout.ms": int(SESSION_S * 1000),
    "broker.heartbeat.interval.ms": 500,
}
# As Kafka's start script runs it, with half of its heap, because there are three of them.
JVM: Final = ("-Xmx512m", "-Xms512m", *(option for option in KAFKA_JVM if not option.startswith("-Xm")))

ANSWER_S: Final = 5.0
HEALTHY_S: Final = 120.0
STOP_S: Final = 90.0
LOOK_S: Final = 0.05
LOG_TAIL_CHARS: Final = 2000
MOST_BEHIND: Final = 2  # metadata records: an idle controller writes one twice a second
ISSUE_S: Final = 60.0
TIMED_OUT: Final = 7  # an error code
UNREACHABLE: Final = (Failure, ConnectionClosed, OSError)


class NotInTime(Exception):
    """A condition was not reached in time; the sentence names it."""


class ThreeNodes(ABC):
    name: str

    def __init__(self, parent: Path) -> None:
        self.folder = parent / f"{self.name.replace(' ', '-').lower()}-{time.monotonic_ns()}"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.ports: dict[int, int] = {}

    @abstractmethod
    def command(self, properties: Path) -> Sequence[str | Path]:
        """The command that runs a node."""

    # -- start and stop ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._write_properties()
            self._format()
            for number in NUMBERS:
                self.start(number)
            self.wait_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _write_properties(self) -> None:
        ports = free_ports(HOST, 2 * len(NUMBERS))
        self.ports = dict(zip(NUMBERS, ports, strict=False))
        inner = dict(zip(NUMBERS, ports[len(NUMBERS) :], strict=True))
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in inner.items())
        for number in NUMBERS:
            folder = self.folder / f"node-{number}"
            folder.mkdir(parents=True)
            settings = {
                **SETTINGS,
                "node.id": number,
                "listeners": f"PLAINTEXT://{HOST}:{self.ports[number]},CONTROLLER://{HOST}:{inner[number]}",
                "controller.quorum.voters": voters,
                "log.dirs": folder / "data",
            }
            self._properties(number).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _properties(self, number: int) -> Path:
        return self.folder / f"node-{number}" / "server.properties"

    def _format(self) -> None:
        words = [sys.executable, "-m", "trioka", "storage", "format", "-t", CLUSTER_ID, "-c"]
        for number in NUMBERS:
            subprocess.run([*words, self._properties(number)], check=True, stdout=subprocess.DEVNULL, timeout=ISSUE_S)

    def start(self, number: int) -> None:
        """Start nodes without waiting; `wait_healthy` waits."""
        from oracle import die_with_parent

        folder = self.folder / f"node-{number}"
        with (folder / "log.txt").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                list(map(str, self.command(self._properties(number)))),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                preexec_fn=die_with_parent(),
            )

    def kill(self, number: int) -> float:
        """Kill a node, as a crash would; returns the time of the kill."""
        process = self._processes.pop(number)
        process.kill()
        killed = time.perf_counter()
        process.wait()
        return killed

    def stop(self, number: int) -> float:
        """Stop a node cleanly; returns the time until its process ended."""
        process = self._processes.pop(number)
        began = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NotInTime(f"node {number} of {self.name} had not stopped after {STOP_S:.0f} s") from None
        return time.perf_counter() - began

    def close(self) -> None:
        for number in list(self._processes):
            self.kill(number)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> list[int]:
        return sorted(self._processes)

    @property
    def pids(self) -> list[int]:
        return [self._processes[number].pid for number in self.running]

    def address(self, number: int) -> str:
        return f"{HOST}:{self.ports[number]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, NUMBERS))

    def log_tail(self) -> str:
        message = []
        for number in NUMBERS:
            with contextlib.suppress(OSError):
                text = (self.folder / f"node-{number}" / "log.txt").read_text(errors="replace")
                message.append(f"== node {number}\n{text[-LOG_TAIL_CHARS:].strip()}")
        return "\n".join(message)

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, number: int, request: Request, *, timeout_s: float = ANSWER_S, at_most: int | None = None) -> Any:
        connection = Connection(HOST, self.ports[number], timeout_s=timeout_s)
        try:
            return connection.ask(request, at_most=at_most)
        finally:
            connection.close()

    def ask_any(self, request: Request, **options: Any) -> Any:
        problem: BaseException = NotInTime(f"no node of {self.name} runs")
        for number in self.running:
            try:
                return self.ask(number, request, **options)
            except UNREACHABLE as unreachable:
                problem = unreachable
        raise problem

    def controller(self) -> int:
        """The active controller, from the quorum, because the metadata of brokers may name any of them."""
        found: list[int] = []

        def is_known() -> bool:
            with contextlib.suppress(*UNREACHABLE, NotInTime, IndexError):
                result = self.ask_any(QUORUM).topics[0].partitions[0]
                if result.error_code == 0 and result.leader_id in self._processes:
                    found.append(result.leader_id)
            return bool(found)

        self.until(is_known, "the metadata quorum has a leader")
        return found[0]

    def leader(self, topic: str, partition: int) -> int:
        found: dict[int, int] = {}

        def is_known() -> bool:
            with contextlib.suppress(*UNREACHABLE, NotInTime):
                result = self.ask_any(_about([topic])).topics[0].partitions
                found.update({each.partition_index: each.leader_id for each in result})
            return found.get(partition, -1) in self._processes

        self.until(is_known, f"{topic}-{partition} has a leader that runs")
        return found[partition]

    def create(
        self, topic: str, *, partitions: int = 1, assignments: Sequence[Sequence[int]] = (), timeout_s: float = ISSUE_S
    ) -> None:
        """Create a topic and wait until all replicas are in sync. A thousand partitions may take longer than a request
        timeout.
        """
        result = self.ask_any(creation(topic, partitions, assignments), timeout_s=timeout_s).topics[0]
        if result.error_code not in (0, TIMED_OUT):
            raise NotInTime(f"{topic} could not be created: error {result.error_code} {result.error_message or ''}")
        count = len(assignments) or partitions

        def is_there() -> bool:
            with contextlib.suppress(*UNREACHABLE):
                return len(self.ask_any(_about([topic])).topics[0].partitions) == count
            return False

        self.until(is_there, f"{topic} is there")
        self.wait_healthy()

    def delete(self, topic: str) -> None:
        wanted = DeleteTopicsRequest(topic_names=[topic], timeout_ms=int(ISSUE_S * 1000))
        self.ask_any(wanted, timeout_s=ISSUE_S, at_most=5)

    def reclaim(self, topic: str) -> None:
        """Truncate the files of a deleted topic on all nodes, after its folders were renamed for deletion."""
        for number in NUMBERS:
            reclaim(self.folder / f"node-{number}" / "data", topic)

    def end_of(self, topic: str, partitions: int) -> int:
        """The sum of the partitions' end offsets."""
        requested = ListOffsetsRequest.Topic.Partition
        total = 0
        for index in range(partitions):
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    ListOffsetsRequest.Topic(name=topic, partitions=[requested(partition_index=index, timestamp=-1)])
                ],
            )
            result = self.ask(self.leader(topic, index), request, at_most=5).topics[0].partitions[0]
            if result.error_code:
                raise NotInTime(f"the end of {topic}-{index} is not known: error {result.error_code}")
            total += result.offset
        return total

    # -- waiting -------------------------------------------------------------------------------------------------------

    def wait_healthy(self) -> None:
        """Wait until every node serves requests, knows all others, and sees all replicas of all topics in sync; and
        until the quorum's nodes have the whole log. A node serves only after its registration, so its earlier
        registration does not count.
        """
        self.until(self._is_healthy, "all nodes are there and in sync")

    def _is_healthy(self) -> bool:
        with contextlib.suppress(*UNREACHABLE, IndexError):
            return all(map(self._sees_all, NUMBERS)) and self._has_whole_quorum()
        return False

    def _sees_all(self, number: int) -> bool:
        response = self.ask(number, _about(None))
        partitions = [each for topic in response.topics for each in topic.partitions]
        return len(response.brokers) == len(NUMBERS) and all(
            each.leader_id > 0 and len(each.isr_nodes) == len(each.replica_nodes) for each in partitions
        )

    def _has_whole_quorum(self) -> bool:
        result = self.ask_any(QUORUM).topics[0].partitions[0]
        return result.error_code == 0 and all(
            result.high_watermark - voter.log_end_offset <= MOST_BEHIND for voter in result.current_voters
        )

    def until(self, is_so: Callable[[], bool], what: str, timeout_s: float = HEALTHY_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            ended = [number for number, process in self._processes.items() if process.poll() is not None]
            if ended:
                raise CannotStart(f"node {ended[0]} of {self.name} ended by itself:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise NotInTime(f"{self.name}: it never came true that {what}\n{self.log_tail()}")
            time.sleep(LOOK_S)


class KafkaNodes(ThreeNodes):
    name = "Apache Kafka"

    def command(self, properties: Path) -> Sequence[str | Path]:
        import jars
        from java import java

        return [java(), *JVM, "-cp", jars.class_path(), "kafka.Kafka", properties]


class TriokaNodes(ThreeNodes):
    name = "trioka"

    def __init__(self, parent: Path, command: Sequence[str] = (), tree: Path | None = None) -> None:
        """`tree`: the sources of another trioka version, run by this Python."""
        super().__init__(parent)
        self._command = list(command) or [str(Path(sys.executable).with_name("trioka"))]
        if tree is not None:
            self._command = [sys.executable, "-c", OTHER_TREE.format(tree=str(tree))]

    def command(self, properties: Path) -> Sequence[str | Path]:
        return [*self._command, "serve", properties]


def creation(topic: str, partitions: int, assignments: Sequence[Sequence[int]] = ()) -> CreateTopicsRequest:
    """The creation of a topic with default settings: three replicas. The first of each of the `assignments` is the
    leader.
    """
    wanted = CreateTopicsRequest.Topic
    return CreateTopicsRequest(
        topics=[
            wanted(
                name=topic,
                num_partitions=-1 if assignments else partitions,
                replication_factor=-1,
                assignments=[
                    wanted.Assignment(partition_index=index, broker_ids=list(replicas))
                    for index, replicas in enumerate(assignments)
                ],
                configs=[],
            )
        ],
        timeout_ms=int(ISSUE_S * 1000),
    )


def _about(topics: Iterable[str] | None) -> MetadataRequest:
    requested = None if topics is None else [MetadataRequest.Topic(name=topic) for topic in topics]
    return MetadataRequest(topics=requested, allow_auto_topic_creation=False)


QUORUM: Final = DescribeQuorumRequest(
    topics=[
        DescribeQuorumRequest.Topic(
            topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.Topic.Partition(partition_index=0)]
        )
    ]
)


def disk_bytes(folder: Path) -> int:
    """Disk usage in blocks, because the size of preallocated index files is larger than their content."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(where, name).lstat().st_blocks * 512
    return total
