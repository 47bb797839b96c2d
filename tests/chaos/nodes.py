"""The nodes of a chaos run: `trioka serve`, three times, each with a network and a disk of its own.

    with Nodes(folder, network, has_mounts=True) as nodes:
        nodes.start()
        nodes.kill(2)
        nodes.spawn(2)
        nodes.trouble()      # what keeps the cluster from being whole

A disk is a small file system in memory where mounts are allowed, and can be filled to the last byte. Elsewhere a node
is forbidden to write (RLIMIT_FSIZE), which fails where a full disk would.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from chaos.network import LISTENERS, Network
from chaos.security import ADMIN, PLAINTEXT, Access, Security

from trioka.cli.client.connection import Connection, ConnectionClosed
from trioka.cli.terminal.failure import Failure
from trioka.protocol.errors import NONE
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from trioka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from trioka.protocol.primitives import uuid_text

NUMBERS: Final = (1, 2, 3)
DISK_MB: Final = 1024  # a long run has some hundred megabytes; unused space costs nothing
STOP_S: Final = 60.0
RESPONSE_TIMEOUT_S: Final = 3.0
FETCHED_MS: Final = 3_000  # so long ago a node of the quorum has fetched, at most, if it follows
METADATA_TOPIC: Final = "__cluster_metadata"
NODE_PROGRAM: Final = Path(__file__).with_name("node.py")
DIED_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
BALLAST: Final = 1 << 20

QuorumPart = DescribeQuorumResponse.Topic.Partition

SETTINGS: Final[Mapping[str, object]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "REPLICATION",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 2,
    "log.segment.bytes": 1 << 20,
    # A run waits for each of these after every second fault. Those of the quorum are as usual: a machine that is busy
    # with something else lets a node wait for seconds, and a quorum that is too hasty elects for ever then.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 3000,
    "replica.socket.timeout.ms": 5000,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 3000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    # The topic that is created again and again is compacted while it lives.
    "log.cleaner.backoff.ms": 300,
    "log.segment.delete.delay.ms": 500,  # and others are moved without end: each leaves a copy behind for so long
}


class NodeEnded(Exception):
    """A node has ended without a fault of the run."""


class Nodes:
    def __init__(
        self,
        folder: Path,
        network: Network,
        *,
        has_mounts: bool,
        is_plain: bool = True,
        mistake: str | None = None,
        security: str = PLAINTEXT,
    ) -> None:
        """`is_plain`: nodes run without namespaces of their own, and their disks cannot be made slow."""
        self.folder = folder
        self.network = network
        self.security = Security(security, folder / "stores", network.hosts)
        self._admin = self.access(ADMIN)
        self._has_mounts = has_mounts
        self._is_plain = is_plain and mistake is None
        self._mistake = mistake
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.paused: set[int] = set()
        self._is_full: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    # -- files ---------------------------------------------------------------------------------------------------------

    def folder_of(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def data_of(self, node: int) -> Path:
        return self.folder_of(node) / "disk" / "data"

    def log_of(self, node: int) -> Path:
        return self.folder_of(node) / "log.txt"

    def _file_of(self, node: int) -> Path:
        return self.folder_of(node) / "server.properties"

    def _properties(self, node: int) -> dict[str, object]:
        network = self.network
        voters = [f"{each}@{network.advertised(each, 'CONTROLLER')}" for each in NUMBERS]
        listeners = [f"{name}://{network.bound(node, name)}" for name in LISTENERS]
        result = [f"{name}://{network.advertised(node, name)}" for name in LISTENERS if name != "CONTROLLER"]
        return {
            **SETTINGS,
            **self.security.properties(LISTENERS),
            "node.id": node,
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(result),
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": self.data_of(node),
        }

    def _found(self) -> None:
        cluster_id = "0" + uuid_text(os.urandom(16))[1:]  # it must not look like a flag
        for node in NUMBERS:
            disk = self.data_of(node).parent
            disk.mkdir(parents=True)
            if self._has_mounts:
                size = ["-o", f"size={DISK_MB}m,mode=700"]
                subprocess.run(["mount", "-t", "tmpfs", *size, f"chaos-{node}", str(disk)], check=True)
            lines = [f"{key}={value}" for key, value in self._properties(node).items()]
            self._file_of(node).write_text("\n".join(lines) + "\n")
            self._file_of(node).chmod(0o600)  # it may have passwords
        words = [sys.executable, "-m", "trioka", "storage", "format", "-t", cluster_id]
        words += [*self.security.format_words(), "-c"]
        formats = [subprocess.Popen([*words, str(self._file_of(node))], stdout=subprocess.DEVNULL) for node in NUMBERS]
        codes = [each.wait() for each in formats]
        if any(codes):
            raise OSError("a node's folder could not be formatted")

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._found()
        for node in NUMBERS:
            self.spawn(node)

    def spawn(self, node: int) -> None:
        program = ["-m", "trioka"] if self._is_plain else [str(NODE_PROGRAM)]
        mistake = [] if self._mistake is None else ["--mistake", self._mistake]
        words = [sys.executable, *program, *mistake, "serve", str(self._file_of(node)), "--log-level", "info"]
        with self.log_of(node).open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [*self.network.enter(node), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for the harness
                preexec_fn=_die_with_parent,
            )

    def is_running(self, node: int) -> bool:
        return node in self._processes and self._processes[node].poll() is None

    def kill(self, node: int) -> None:
        """SIGKILL, also for a paused node."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()
        self.paused.discard(node)

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)
        self.paused.add(node)

    def resume(self, node: int) -> None:
        self.paused.discard(node)
        self._processes[node].send_signal(signal.SIGCONT)

    def restart(self, node: int) -> None:
        """Stops the node first, if it still runs."""
        process = self._processes.pop(node)
        process.terminate()
        _wait_or_kill(process)
        self.spawn(node)

    def stop(self, nodes: Sequence[int] = NUMBERS) -> None:
        """Stops nodes cleanly, all at once. NodeEnded if one does not end, or ends with an error."""
        processes = {node: self._processes.pop(node) for node in nodes}
        for process in processes.values():
            process.terminate()
        for node, process in processes.items():
            if not _wait_or_kill(process):
                raise NodeEnded(f"node {node} did not stop within {STOP_S:.0f} s: {self.log_tail(node)}")
            if process.returncode != 0:
                raise NodeEnded(f"node {node} stopped with {process.returncode}: {self.log_tail(node)}")

    def close(self) -> None:
        for node in list(self._processes):
            self.kill(node)
        for node in NUMBERS if self._has_mounts else ():
            disk = self.data_of(node).parent
            if disk.is_mount():
                subprocess.run(["umount", "--lazy", str(disk)], check=False)

    # -- disks ---------------------------------------------------------------------------------------------------------

    def fill_disk(self, node: int) -> None:
        """To the last byte."""
        self._is_full.add(node)
        if not self._has_mounts:
            self._limit_files(node, 1)
            return
        ballast = os.open(self._ballast(node), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for size in (BALLAST, 1):
                piece = bytes(size)
                try:
                    while os.write(ballast, piece):
                        pass
                except OSError:
                    continue
        finally:
            os.close(ballast)

    def free_disk(self, node: int) -> None:
        if node in self._is_full:
            self._is_full.discard(node)
            if self._has_mounts:
                self._ballast(node).unlink()
            elif self.is_running(node):
                self._limit_files(node, resource.RLIM_INFINITY)

    def _ballast(self, node: int) -> Path:
        return self.data_of(node).parent / "ballast"

    def _limit_files(self, node: int, size: int) -> None:
        _, hard = resource.prlimit(self._processes[node].pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._processes[node].pid, resource.RLIMIT_FSIZE, (size, hard))

    def slow_disk(self, node: int, is_slow: bool) -> None:
        if self.is_running(node):
            self._processes[node].send_signal(signal.SIGUSR1 if is_slow else signal.SIGUSR2)

    # -- a look from outside -------------------------------------------------------------------------------------------

    @property
    def servers(self) -> str:
        return ",".join(self.network.advertised(node, "CLIENT") for node in NUMBERS)

    def access(self, user: str) -> Access:
        return self.security.access(user, self.servers)

    def check(self) -> None:
        """NodeEnded if a node has ended by itself."""
        for node, process in self._processes.items():
            if process.poll() is not None:
                raise NodeEnded(f"node {node} ended by itself ({process.returncode}): {self.log_tail(node)}")

    def log_tail(self, node: int) -> str:
        return " / ".join(self.log_of(node).read_text(errors="replace").splitlines()[-5:])

    def trouble(self) -> list[str]:
        """Why the cluster is not whole: every node must know all nodes and report all replicas in sync, all reports
        must agree, and all nodes must follow the metadata's leader at this moment."""
        self.check()
        views: dict[int, MetadataResponse] = {}
        for node in NUMBERS:
            try:
                views[node] = self._ask(node)
            except (Failure, ConnectionClosed, OSError) as error:
                return [f"node {node} does not answer: {error}"]
        found = [line for node, view in views.items() for line in _trouble_in(node, view)]
        result = {node: _leaders(view) for node, view in views.items()}
        if len(set(map(str, result.values()))) > 1:
            found.append(f"the nodes do not agree on who leads: {result}")
        return found or self._trouble_in_quorum()

    def leaders(self, topics: Iterable[str]) -> dict[str, int]:
        """As a node that answers knows it."""
        for node in NUMBERS:
            if self.is_running(node) and node not in self.paused:
                try:
                    wanted = set(topics)
                    view = _leaders(self._ask(node))
                    return {name: led[0] for name, led in view.items() if name.rpartition("-")[0] in wanted}
                except (Failure, ConnectionClosed, OSError):
                    continue
        return {}

    def controller(self) -> int | None:
        try:
            part = self._quorum(NUMBERS[0])
        except (Failure, ConnectionClosed, OSError):
            return None
        return part.leader_id if part is not None and part.leader_id in NUMBERS else None

    def _connection(self, node: int) -> Connection:
        return self._admin.connection(self.network.advertised(node, "CLIENT"), timeout_s=RESPONSE_TIMEOUT_S)

    def _ask(self, node: int) -> MetadataResponse:
        connection = self._connection(node)
        try:
            answer: MetadataResponse = connection.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            return answer
        finally:
            connection.close()

    def _quorum(self, node: int) -> "QuorumPart | None":
        wanted = DescribeQuorumRequest.Topic
        topic = wanted(topic_name=METADATA_TOPIC, partitions=[wanted.Partition(partition_index=0)])
        connection = self._connection(node)
        try:
            answer = connection.ask(DescribeQuorumRequest(topics=[topic]))
        finally:
            connection.close()
        if answer.error_code != NONE or answer.topics[0].partitions[0].error_code != NONE:
            return None
        part: QuorumPart = answer.topics[0].partitions[0]
        return part

    def _trouble_in_quorum(self) -> list[str]:
        try:
            part = self._quorum(NUMBERS[0])
        except (Failure, ConnectionClosed, OSError) as error:
            return [f"no node reports the quorum: {error}"]
        if part is None:
            return ["the metadata quorum has no leader"]
        now_ms = time.time() * 1000
        return [
            f"node {voter.replica_id} does not follow the metadata: it is at {voter.log_end_offset} of "
            f"{part.high_watermark}, and has fetched {now_ms - voter.last_fetch_timestamp:.0f} ms ago"
            for voter in part.current_voters
            if voter.replica_id != part.leader_id
            and (voter.log_end_offset < part.high_watermark or now_ms - voter.last_fetch_timestamp > FETCHED_MS)
        ]

    def keep(self, kept: Path) -> None:
        """Keeps the files that help to find a cause. Index files are large, and follow from the logs."""
        for node in NUMBERS:
            target = kept / f"node-{node}"
            target.mkdir(parents=True)
            for file in (self._file_of(node), self.log_of(node)):
                if file.exists():
                    shutil.copy(file, target)
            if self.data_of(node).exists():
                shutil.copytree(self.data_of(node), target / "data", ignore=shutil.ignore_patterns("*index", ".lock"))


def _trouble_in(node: int, view: MetadataResponse) -> list[str]:
    alive = sorted(broker.node_id for broker in view.brokers)
    found = [] if alive == list(NUMBERS) else [f"node {node} knows brokers {alive}"]
    for topic in view.topics:
        for partition in topic.partitions:
            if partition.leader_id not in NUMBERS:
                found.append(f"no leader: {topic.name}-{partition.partition_index}, in node {node}'s metadata")
            elif sorted(partition.isr_nodes) != sorted(partition.replica_nodes):
                in_sync = sorted(partition.isr_nodes)
                found.append(
                    f"{topic.name}-{partition.partition_index} is in sync on {in_sync}, in node {node}'s metadata"
                )
    return found


def _leaders(view: MetadataResponse) -> dict[str, tuple[int, int]]:
    """The leader and the leader epoch of each partition."""
    return {
        f"{topic.name}-{each.partition_index}": (each.leader_id, each.leader_epoch)
        for topic in sorted(view.topics, key=lambda topic: topic.name or "")
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    }


def _wait_or_kill(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it ended by itself."""
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def _die_with_parent() -> None:
    """At once, even if it is paused: nothing is left of a run that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIED_WITH_PARENT, signal.SIGKILL)
