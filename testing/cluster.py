"""A Kafka cluster for a test: several brokers, which can be killed, or disconnected from each other.

    with Cluster(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.kill(cluster.leader("orders"))
        ...                                             # any Kafka client, at cluster.bootstrap_servers
        cluster.start()
        cluster.wait_healthy()

Nodes have the numbers 1, 2, 3 …; each is broker and controller. They run in one thread of this process, with sockets on
loopback and data in memory, and everything is removed at the end of the block. Timeouts are short: a lost node is
detected after one or two seconds. A keyword is a key of server.properties, for all nodes, with underscores for dots;
`broker_rack` may be a list with the rack of each node. Faults by API, storms and the clock are those of `Broker`;
methods for one node take its number.

Every method blocks until it is done. Those that look up something wait until it is there, and raise a TimeoutError
with the reason if it does not appear.
"""

import time
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, Final

from . import temp_dirs
from .broker import DESCRIBE_S, keys_of
from .client import BROKER_DEFAULT, LOOK_AGAIN_S, Client, Record
from .clock_control import Clock
from .disks.corruption import flip_bit, tear
from .faults.api_faults import ApiFaults
from .faults.faults import Length, seconds_of
from .nodes.cluster_runtime import START_S, Nodes
from .nodes.loop import Loop
from .nodes.runner import ANSWER_S, Unresponsive
from .topic_calls import TopicCalls

MAX_NODES: Final = 9
PATIENCE_S: Final = 60.0  # time limit for a cluster to recover from a fault
REASONS: Final = 8  # listed in an error; more would not be read


class Cluster(ApiFaults, TopicCalls):
    def __init__(self, nodes: int = 3, **configs: object) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"nodes={nodes}: a cluster under test has 1 to {MAX_NODES}")
        rack = configs.get("broker_rack")
        self._racks: Sequence[str] = rack if isinstance(rack, list | tuple) else ()
        if self._racks:
            del configs["broker_rack"]
            if len(self._racks) != nodes:
                raise ValueError(f"broker_rack={list(self._racks)}: there are {nodes} nodes, and each has a rack")
        self.numbers = range(1, nodes + 1)
        self._settings = keys_of(configs)
        self._folder: str | None = None
        self._nodes: Nodes | None = None
        self._loop: Loop | None = None
        self.clock = Clock(self)

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self.is_running else "not running"
        return f"<trioka.testing.Cluster {where}>"

    # -- start and stop
    # -------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *numbers: int) -> "Cluster":
        """Start the cluster, or start stopped nodes again: the named ones, or all. They keep their data and ports.
        Returns when they serve requests, for which a majority of the nodes is needed.
        """
        if self._loop is not None:
            nodes, wanted = self._inside, [self._known(number) for number in numbers or self.numbers]
            self._home.wait(nodes.start, wanted, timeout_s=START_S + ANSWER_S)
            return self
        try:
            self._folder = temp_dirs.new_folder()
            self._nodes = Nodes(self._folder, len(self.numbers), self._settings, self._racks)
            self._nodes.format()
            self._loop = Loop(self._nodes.run, name="trioka-cluster", clock=self._nodes.clock)
            self._loop.start()
        except BaseException:
            self.close()
            raise
        self.wait_healthy()
        return self

    def kill(self, number: int) -> None:
        """End a node like kill -9: it sends nothing, finishes nothing, and its connections break. `start` starts it
        again.
        """
        self._home.wait(self._inside.kill, self._known(number))

    def stop(self, number: int) -> None:
        """Stop a node cleanly: it hands over its leaderships before it ends."""
        self._home.wait(self._inside.stop, self._known(number))

    def close(self) -> None:
        """End all nodes and remove their data."""
        loop, self._loop = self._loop, None
        nodes, self._nodes = self._nodes, None
        folder, self._folder = self._folder, None
        try:
            if loop is not None:
                loop.stop()
        finally:
            if nodes is not None:
                nodes.close()
            if folder is not None:
                temp_dirs.remove(folder)

    @property
    def is_running(self) -> bool:
        return self._loop is not None and self._loop.is_running

    @property
    def running(self) -> list[int]:
        """The numbers of the nodes that run."""
        nodes = self._inside
        return self._home.call(lambda: sorted(nodes.running))

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, including stopped ones: host:port,host:port,…"""
        return ",".join(map(self.address, self.numbers))

    def address(self, number: int) -> str:
        """The address of one node, for a client that must not bootstrap from an isolated node with stale metadata."""
        host, port = self._inside.addresses[self._known(number)]
        return f"{host}:{port}"

    @property
    def _home(self) -> Loop:
        if self._loop is None:
            raise Unresponsive("the cluster is not running: use it in a `with`, or call start()")
        return self._loop

    @property
    def _inside(self) -> Nodes:
        if self._nodes is None:
            raise Unresponsive("the cluster is not running: use it in a `with`, or call start()")
        return self._nodes

    def _known(self, number: int) -> int:
        if number not in self.numbers:
            raise ValueError(f"there is no node {number}; there are {', '.join(map(str, self.numbers))}")
        return number

    # -- the network between nodes -------------------------------------------------------------------------------------

    def cut(self, a: int, b: int) -> None:
        """Disconnect two nodes from each other until `heal`. Clients still reach both."""
        if self._known(a) == self._known(b):
            raise ValueError(f"node {a} cannot be cut from itself")
        self._home.call(self._inside.cuts.cut, a, b)

    def isolate(self, number: int) -> None:
        """Disconnect a node from all other nodes until `heal`. Clients still reach it."""
        self._known(number)
        for other in self.numbers:
            if other != number:
                self.cut(number, other)

    def heal(self) -> None:
        """Reconnect all nodes, and undo all faults below."""
        self._home.call(self._inside.heal)

    # -- faults; those by API are in api_faults.py, and strike on whichever node gets the request ----------------------

    def disk_full(self, number: int) -> None:
        """Fail every write of a node with ENOSPC. As in Kafka, a node without a working log directory ends; it is not
        running until it is started again.
        """
        nodes = self._inside
        self._home.call(lambda: nodes.running[self._known(number)].disk(is_full=True))

    def flip_bit(
        self, topic: str, partition: int = 0, *, byte: int = -1, bit: int = 0, node: int | None = None
    ) -> None:
        """Flip one bit of a partition's newest file on a node, by default its leader."""
        where = self.leader(topic, partition) if node is None else self._known(node)
        flip_bit(self._inside.folder_of(where), topic, partition, byte, bit)

    def tear(self, topic: str, partition: int = 0, *, lost: int = 1, node: int) -> None:
        """After `kill(node)`: drop the last bytes that it wrote, as if they had not reached the disk."""
        if self._known(node) in self.running:
            raise ValueError("tear() is for a node that was killed: what it has in its hands is not lost")
        tear(self._inside.folder_of(node), topic, partition, lost)

    def call(self, order: str, *, timeout_s: float = ANSWER_S, **details: Any) -> Any:
        """Send a command to all nodes; `Clock` and `Chaos` use this."""
        carry_out = getattr(self._inside, order)
        ask = self._home.wait if iscoroutinefunction(carry_out) else self._home.call
        return ask(lambda: carry_out(**details), timeout_s=timeout_s)

    # -- inspection ----------------------------------------------------------------------------------------------------

    def wait_healthy(self, timeout: Length = PATIENCE_S) -> None:
        """Wait until the running nodes know and reach each other, every partition has a leader, and all replicas on
        these nodes are in sync. Does not wait for a killed node, but until the others have detected its loss."""
        self._until_without(self._inside.problems, "the cluster is not healthy", seconds_of(timeout))

    def leader(self, topic: str, partition: int = 0, *, timeout: Length = PATIENCE_S) -> int:
        """The number of the leader's node. After that node was killed or isolated, waits for the next leader."""
        nodes = self._inside
        found: list[int] = []

        def look() -> list[str]:
            leader = nodes.leader(topic, partition)
            found[:] = [] if leader is None else [leader]
            return nodes.problems() if leader is None else []

        self._until_without(look, f"no broker leads {topic}-{partition}", seconds_of(timeout))
        return found[0]

    def _until_without(self, trouble: Callable[[], list[str]], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while reasons := self._home.call(trouble):
            if time.monotonic() > deadline:
                more = ["…"] * (len(reasons) > REASONS)
                raise TimeoutError(f"{what} within {timeout_s:g} s: {'; '.join(reasons[:REASONS] + more)}")
            time.sleep(LOOK_AGAIN_S)

    def _new_client(self) -> Client:
        """A client of nodes with current metadata, because an isolated node would return stale metadata."""
        nodes = self._inside
        reached = self._home.call(lambda: list(nodes.reachable() or nodes.running)) or self.numbers
        return Client(*(nodes.addresses[number] for number in reached))

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, **configs: object
    ) -> str:
        """Create a topic, on three nodes if there are as many; min.insync.replicas is 2 then. Returns its name when all
        its partitions have leaders and every reachable node knows them.
        """
        replicas = BROKER_DEFAULT if replication_factor is None else replication_factor
        self._new_client().create_topic(name, partitions, keys_of(configs), replicas)
        self._await_leaders(name)
        return name

    def records(self, topic: str, partition: int | None = None, *, committed: bool = False) -> list[Record]:
        """All current records by partition and offset; `committed` leaves out those of open and aborted transactions.
        Waits until every partition has a leader.
        """
        self._await_leaders(topic)
        return self._new_client().records(topic, partition, committed)

    def _await_topic(self, topic: str) -> None:
        self._new_client().create_if_missing(topic)
        self._await_leaders(topic)

    def _await_leaders(self, topic: str) -> None:
        nodes = self._inside
        self._until_without(lambda: nodes.topic_problems(topic), f"{topic} is not served", PATIENCE_S)

    def describe(self) -> str:
        """The running nodes, the problems of the cluster, and the state of each node. Never raises, never hangs."""
        if self._loop is None or self._nodes is None:
            return "the cluster is not running"
        try:
            return self._loop.call(self._nodes.describe, timeout_s=DESCRIBE_S)
        except Exception as error:
            return f"the cluster did not report its state: {error}"
