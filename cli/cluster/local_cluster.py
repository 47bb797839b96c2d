"""A cluster of real processes on this machine: what `trioka cluster up` and `trioka dev --nodes N` start.

Each node is `trioka serve` with a server.properties of its own. Up to three of them are controllers as well; the others
are brokers only. All their files are in one folder:

    cluster.json            the nodes, their ports, and their process ids
    node-1/server.properties   node-1/data/   node-1/log.txt

A process is signalled only if it is still the one that was started: its command line names the node's file.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from trioka.protocol.primitives import uuid_text

from ..client.connection import ConnectionClosed, free_ports, is_port_free
from ..client.contexts import write_whole
from ..client.settings import Settings
from ..node.port_owner import owner_of
from ..node.run import die_with_parent
from ..terminal.failure import CannotStart, Exit, Failure
from ..topics.command import create_topic
from .cluster_name import local_folder

HOST: Final = "127.0.0.1"
MAX_NODES: Final = 9
CONTROLLERS: Final = 3  # a larger quorum is slower, and no safer on one machine
READY_S: Final = 60.0
STOP_S: Final = 30.0  # a node that has not stopped after this time is killed
LOOK_S: Final = 0.05
WATCH_S: Final = 0.5  # interval between checks that all nodes are running
LAST_LINES: Final = 5
ANSWER_S: Final = 5.0
MAX_FILE_BYTES: Final = 1 << 20
METRICS: Final = re.compile(r'(?m)^  Metrics +(\S+)|"event": "node\.ready".*"metrics": "(\S+)"')
RUNNING, PAUSED, STOPPED = "running", "paused", "stopped"


class LocalNode(NamedTuple):
    id: int
    port: int
    controller_port: int | None  # None: a broker only

    @property
    def roles(self) -> str:
        return "broker" if self.controller_port is None else "broker,controller"


class LocalCluster:
    def __init__(self, folder: Path, nodes: Sequence[LocalNode], pids: Mapping[int, int] | None = None) -> None:
        self.folder = folder
        self.nodes = {node.id: node for node in nodes}
        self.pids = dict(pids or {})

    @property
    def servers(self) -> list[tuple[str, int]]:
        return [("localhost", node.port) for node in self.nodes.values()]

    def node(self, node_id: int) -> LocalNode:
        if node_id not in self.nodes:
            known = ", ".join(map(str, self.nodes))
            raise Failure(f"the cluster has no node {node_id}; its nodes are {known}", exit_code=Exit.NOT_FOUND)
        return self.nodes[node_id]

    def folder_of(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}"

    def properties_of(self, node_id: int) -> Path:
        return self.folder_of(node_id) / "server.properties"

    def log_of(self, node_id: int) -> Path:
        return self.folder_of(node_id) / "log.txt"

    def controllers_running(self) -> tuple[int, int]:
        """How many controllers accept connections, and how many there are."""
        ports = [node.controller_port for node in self.nodes.values() if node.controller_port is not None]
        running = [node.id for node in self.nodes.values() if node.controller_port and self.state(node.id) == RUNNING]
        return len(running), len(ports)

    # -- files ---------------------------------------------------------------------------------------------------------

    @classmethod
    def found(
        cls,
        folder: Path,
        count: int,
        port: int,
        http: Callable[[int], str] = lambda _: "",
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> "LocalCluster":
        """A new cluster that is not started. `port` is the first node's, and the others' follow; 0 takes free ports.
        `http` lists the ports of the nodes' metrics, in order. `overrides` are settings of all nodes.
        """
        controllers = min(count, CONTROLLERS)
        if port:
            ports = [port + number for number in range(count)]
            inner = free_ports(HOST, controllers)
        else:
            ports, inner = (taken := free_ports(HOST, count + controllers))[:count], taken[count:]
        nodes = [
            LocalNode(number + 1, ports[number], inner[number] if number < controllers else None)
            for number in range(count)
        ]
        made = cls(folder.absolute(), nodes)
        for node in nodes:
            made.folder_of(node.id).mkdir(parents=True, exist_ok=True)
            properties = {**made._properties(node), "trioka.http.listeners": http(node.id - 1), **overrides}
            lines = [f"{key}={value}" for key, value in properties.items() if value != ""]
            made.properties_of(node.id).write_text("\n".join(lines) + "\n", encoding="utf-8")
        made._format()
        made.save()
        return made

    def _properties(self, node: LocalNode) -> dict[str, object]:
        count = len(self.nodes)
        replicas, in_sync = min(count, 3), 2 if count >= 3 else 1
        voters = [f"{each.id}@{HOST}:{each.controller_port}" for each in self.nodes.values() if each.controller_port]
        listeners = [f"PLAINTEXT://{HOST}:{node.port}"]
        if node.controller_port is not None:
            listeners.append(f"CONTROLLER://{HOST}:{node.controller_port}")
        return {
            "process.roles": node.roles,
            "node.id": node.id,
            "listeners": ",".join(listeners),
            "advertised.listeners": f"PLAINTEXT://localhost:{node.port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": self.folder_of(node.id) / "data",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "rlmm.config.remote.log.metadata.topic.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            # The cluster has no network delay, and the user waits for the result.
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 500,
            "controller.quorum.election.timeout.ms": 500,
            "controller.quorum.fetch.timeout.ms": 1000,
            "controller.quorum.election.backoff.max.ms": 300,
        }

    def _format(self) -> None:
        """Format all nodes at the same time, because most of the time is Python's start."""
        words = [sys.executable, "-m", "trioka", "storage", "format", "--ignore-formatted", "-t", _cluster_id(), "-c"]
        formats = [
            subprocess.Popen(
                [*words, str(self.properties_of(node_id))], stdout=subprocess.DEVNULL, stderr=PIPE, text=True
            )
            for node_id in self.nodes
        ]
        texts = [each.communicate()[1] for each in formats]
        for each, text in zip(formats, texts, strict=True):
            if each.returncode:
                raise CannotStart(text.strip().removeprefix("error: ").removesuffix(".") or "a folder is not formatted")

    @classmethod
    def load(cls, folder: Path) -> "LocalCluster | None":
        path = folder / "cluster.json"
        try:
            with path.open("rb") as file:
                result: dict[str, Any] = json.loads(file.read(MAX_FILE_BYTES))
            nodes = [LocalNode(*each) for each in result["nodes"]]
            return cls(folder.absolute(), nodes, {int(key): int(pid) for key, pid in result["pids"].items()})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failure(
                f"{path} cannot be read: {error}", hints=["delete its folder, then start a new cluster"]
            ) from None

    def save(self) -> None:
        write_whole(self.folder / "cluster.json", {"nodes": list(self.nodes.values()), "pids": self.pids})

    def delete(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- processes -----------------------------------------------------------------------------------------------------

    def state(self, node_id: int) -> str:
        pid = self.pids.get(node_id)
        if pid is None:
            return STOPPED
        with suppress(ChildProcessError):  # another process may have started it
            os.waitpid(pid, os.WNOHANG)
        found = _process(pid)
        if found is None or str(self.properties_of(node_id)) not in found[1]:
            return STOPPED
        return PAUSED if found[0] == "T" else RUNNING

    def check_ports(self, node_ids: Iterable[int]) -> None:
        """Fails if a port of a node that is to be started is in use."""
        for node_id in node_ids:
            node = self.nodes[node_id]
            for port in (node.port, node.controller_port):
                if port is not None and not is_port_free(HOST, port):
                    raise CannotStart(
                        f"node {node_id} cannot start: port {port} is taken by {owner_of(port)}; "
                        "choose another first port with --port."
                    )

    def spawn(self, node_id: int, *, words: Sequence[str] = (), dies_with_this: bool = False) -> None:
        """Start a node in its own session, so that Ctrl-C does not reach it."""
        with self.log_of(node_id).open("ab") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "trioka", "serve", str(self.properties_of(node_id)), *words],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
                preexec_fn=die_with_parent if dies_with_this else None,
            )
        process.returncode = 0  # the node outlives this process, which keeps only its process id
        self.pids[node_id] = process.pid
        self.save()

    def send(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal if the node runs. A paused node is resumed first if it has to handle the signal itself."""
        state = self.state(node_id)
        if state == STOPPED:
            return
        os.kill(self.pids[node_id], number)
        if state == PAUSED and number is signal.SIGTERM:
            os.kill(self.pids[node_id], signal.SIGCONT)

    def stop(self, node_ids: Iterable[int]) -> list[int]:
        """Stop nodes at the same time; return those that had to be killed."""
        requested = list(node_ids)
        for node_id in requested:
            self.send(node_id, signal.SIGTERM)
        until = time.monotonic() + STOP_S
        while any(self.state(node_id) != STOPPED for node_id in requested) and time.monotonic() < until:
            time.sleep(LOOK_S)
        killed = [node_id for node_id in requested if self.state(node_id) != STOPPED]
        for node_id in killed:
            self.send(node_id, signal.SIGKILL)
        for node_id in killed:
            self.wait_state(node_id, STOPPED)
        return killed

    def wait_state(self, node_id: int, state: str) -> None:
        """Wait for a process state: a signal takes effect when the kernel next schedules the process."""
        until = time.monotonic() + STOP_S
        while self.state(node_id) != state and time.monotonic() < until:
            time.sleep(LOOK_S)

    def wait_ready(self, node_ids: Iterable[int]) -> None:
        """Wait until each node knows all of them."""
        wanted = set(node_ids)
        until = time.monotonic() + READY_S
        for node_id in wanted:
            while not wanted <= self._is_known_to(node_id):
                if self.state(node_id) == STOPPED or time.monotonic() > until:
                    raise CannotStart(f"node {node_id} did not start; {self.log_tail(node_id)}")
                time.sleep(LOOK_S)

    def _is_known_to(self, node_id: int) -> set[int]:
        server = ("localhost", self.nodes[node_id].port)
        try:
            with Settings((server,), {}, timeout_s=ANSWER_S).kafka() as kafka:
                return {broker.node_id for broker in kafka.cluster().brokers}
        except (Failure, ConnectionClosed):
            return set()

    def wait_metrics(self) -> None:
        """Wait until each node has printed the address of its metrics, which it does just after it is ready."""
        until = time.monotonic() + READY_S
        while len(self.metrics) < len(self.nodes) and time.monotonic() < until:
            time.sleep(LOOK_S)

    @property
    def metrics(self) -> dict[int, str]:
        """The metrics address of each node, as its log reports it; a node without one is left out."""
        found = {}
        for node_id in self.nodes:
            path = self.log_of(node_id)
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            if result := METRICS.findall(text):
                found[node_id] = "".join(result[-1])
        return found

    def log_tail(self, node_id: int) -> str:
        path = self.log_of(node_id)
        words = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        return f"its log, {path}, ends with: " + " / ".join(words[-LAST_LINES:]) if words else f"see {path}"


def run_in_foreground(
    folder: Path,
    count: int,
    port: int,
    topics: Mapping[str, int],
    report_ready: Callable[[LocalCluster], None],
    *,
    http: Callable[[int], str],
    words: Sequence[str],
) -> None:
    """Run a cluster in this process's lifetime: until a signal comes, or a node ends unexpectedly."""
    if not 1 <= count <= MAX_NODES:
        raise CannotStart(f"--nodes {count} must be 1 to {MAX_NODES}")
    signal.signal(signal.SIGTERM, _interrupt)
    found = LocalCluster.load(folder) or LocalCluster.found(folder, count, port, http)
    found.check_ports(found.nodes)
    try:
        for node_id in found.nodes:
            found.spawn(node_id, words=words, dies_with_this=True)
        found.wait_ready(found.nodes)
        _create(found, topics)
        report_ready(found)
        while True:
            for node_id in found.nodes:
                if found.state(node_id) == STOPPED:
                    raise CannotStart(f"node {node_id} has ended; {found.log_tail(node_id)}")
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # already stopping
        found.stop(found.nodes)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _create(found: LocalCluster, topics: Mapping[str, int]) -> None:
    if topics:
        with Settings(tuple(found.servers), {}).kafka() as kafka:
            known = {topic.name for topic in kafka.cluster().topics}
            for name, partitions in topics.items():
                if name not in known:
                    create_topic(kafka, name, partitions)


def existing_cluster(name: str | None = None) -> LocalCluster:
    found = LocalCluster.load(local_folder(name))
    if found is None:
        what, flag = (
            ("there is no cluster on this machine", "")
            if name is None
            else (f"there is no cluster '{name}'", f" --name {name}")
        )
        raise Failure(what, exit_code=Exit.NOT_FOUND, hints=[f"start one: trioka cluster up{flag}"])
    return found


def _cluster_id() -> str:
    """A cluster id that does not begin with a dash, which would be parsed as a flag."""
    while (text := uuid_text(os.urandom(16))).startswith("-"):
        pass
    return text


def _process(pid: int) -> tuple[str, str] | None:
    """The state letter and the command line of a process; None if it does not exist or is a zombie."""
    folder = Path("/proc") / str(pid)
    if not Path("/proc/self").exists():
        result = subprocess.run(["ps", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True).stdout
        letter, _, line = result.strip().partition(" ")
        return (letter[0], line) if letter and letter[0] != "Z" else None
    try:
        letter = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    return None if letter == "Z" else (letter, line)
