"""The nodes of a cluster under test: one loop and one clock, and sockets and folders for each node.

The nodes are shielded from cancellation: the owner of the loop ends them first, like a crash, so that a shutdown does
not wait for the requests of a clean stop between nodes that all stop.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random, SystemRandom
from typing import Any, Final

import trio

from trioka.broker.broker import Broker
from trioka.broker.config.layers import ConfigError
from trioka.broker.membership.format import InitialVoter, format_node
from trioka.cli.client.connection import ReservedPort
from trioka.cluster.controller.bootstrap import fresh_records
from trioka.cluster.image.partition import random_uuid
from trioka.cluster.image.topics import Topic
from trioka.cluster.quorum.raft import Leader, Role
from trioka.protocol.errors import UnknownTopicOrPartition
from trioka.protocol.primitives import uuid_text
from trioka.storage.files.disk import OsDisk

from ..clock import MovableClock
from ..diagnosis import describe
from ..faults.fault_schedule import FaultSchedule, fault_schedule_of
from ..faults.faults import Fault, Faults
from ..faults.network_partitions import NetworkPartitions
from .node import HOST, LISTENER, Node
from .runner import Unresponsive

log = logging.getLogger("trioka.testing")

START_S: Final = 60.0  # time limit for nodes to form a cluster
LOOK_AGAIN_S: Final = 0.01
STEPS: Final = 40  # of an advance of the clock: each takes as long as new requests between nodes, some 20 ms
IN_FLIGHT_S: Final = 0.005  # time limit for bytes in flight between two nodes
NO_CONTROLLER: Final = "there is no active controller"
REPLICAS: Final = 3  # default replication factor, if there are as many nodes

# Timeouts are short, because there is no network latency, and tests wait for the detection of a lost node.
SHORT_TIMEOUTS: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.request.timeout.ms": "1000",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
OURS: Final = frozenset(
    {"node.id", "process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers"}
    | {"controller.listener.names"}
)


class Nodes:
    def __init__(self, folder: str, count: int, settings: Mapping[str, str], racks: Sequence[str] = ()) -> None:
        for key in OURS & settings.keys():
            raise ConfigError(f"{key} is chosen by the cluster under test, and cannot be set.")
        self.clock = MovableClock()
        self.running: dict[int, Node] = {}
        self.cuts = NetworkPartitions(self._owner)
        self._folder = folder
        self._settings = settings
        self._racks = racks
        self.faults = Faults()
        self.schedule: FaultSchedule | None = None
        self._random = Random(SystemRandom().random())
        self._ports = {number: (ReservedPort(HOST), ReservedPort(HOST)) for number in range(1, count + 1)}
        self._nursery: trio.Nursery
        self._is_over = trio.Event()

    def format(self) -> None:
        """Prepare the directories for the first start. ConfigError describes an error in the settings."""
        initial_voters = [
            InitialVoter(number, random_uuid(self._random), HOST, inner.port)
            for number, (_, inner) in self._ports.items()
        ]
        cluster_id = uuid_text(random_uuid(self._random))
        for number in self._ports:
            format_node(
                OsDisk(),
                self._new(number).broker.node,
                cluster_id=cluster_id,
                records=fresh_records(),
                initial_voters=initial_voters,
                has_voters_in_log=False,
                random=self._random,
                now_ms=self.clock.now_ms(),
            )

    def close(self) -> None:
        """Release the ports."""
        for ports in self._ports.values():
            for port in ports:
                port.close()

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The addresses of the nodes for clients, including those that do not run."""
        return {number: (HOST, outer.port) for number, (outer, _) in self._ports.items()}

    def _owner(self, port: int) -> int:
        return next(number for number, pair in self._ports.items() if port in (pair[0].port, pair[1].port))

    def _new(self, number: int) -> Node:
        outer, inner = self._ports[number]
        replicas, in_sync = min(len(self._ports), REPLICAS), 1 if len(self._ports) < REPLICAS else 2
        own = {
            **SHORT_TIMEOUTS,
            "node.id": str(number),
            "listeners": f"{LISTENER}://{HOST}:{outer.port},CONTROLLER://{HOST}:{inner.port}",
            "controller.quorum.voters": ",".join(f"{each}@{HOST}:{two.port}" for each, (_, two) in self._ports.items()),
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
        }
        if self._racks:
            own["broker.rack"] = self._racks[number - 1]
        folder = self.folder_of(number)
        node = Node(folder, self._settings, outer.port, clock=self.clock, own=own, faults=self.faults)
        node.broker.peers.dial = self.cuts.dial_from(number)
        node.schedule = self.schedule
        node.reroute()
        return node

    def folder_of(self, number: int) -> str:
        """A node's log directory."""
        return f"{self._folder}/{number}"

    # -- start and stop ------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._run_shielded)
            try:
                await self.start(self._ports)
                task_status.started()
                await trio.sleep_forever()
            finally:
                for node in self.running.values():
                    node.broker.die()
                self._is_over.set()

    async def _run_shielded(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await self._is_over.wait()

    async def start(self, numbers: Iterable[int]) -> None:
        """Start the nodes that do not run, together. Returns when all of them serve requests."""
        with trio.move_on_after(START_S) as patience:
            async with trio.open_nursery() as starting:
                for number in numbers:
                    if number not in self.running:
                        starting.start_soon(self._start, number)
        if patience.cancelled_caught:
            raise Unresponsive(f"a node did not find its cluster within {START_S:g} s: is there a majority of nodes?")

    async def _start(self, number: int) -> None:
        node = self.running[number] = self._new(number)
        try:
            await self._nursery.start(self._live, number, node)
        except BaseException:
            self.running.pop(number, None)
            raise

    async def _live(self, number: int, node: Node, *, task_status: trio.TaskStatus[None]) -> None:
        """Run a node; one that fails (its only disk is offline) ends alone, as its process would."""
        try:
            await node.run(task_status=task_status)
        except Exception as error:
            if not node.broker.is_joined:
                raise
            log.error("node %d has ended: %s", number, error)
        if self.running.get(number) is node:
            del self.running[number]
            self.cuts.forget(number)

    async def kill(self, number: int) -> None:
        await self._end(number, Broker.die)

    async def stop(self, number: int) -> None:
        await self._end(number, Broker.stop)

    async def _end(self, number: int, end: Callable[[Broker], None]) -> None:
        node = self.running.pop(number, None)
        if node is not None:
            end(node.broker)
            await node.broker.stopped.wait()
            self.cuts.forget(number)

    # -- faults and time: the commands of `Node`, for all nodes --------------------------------------------------------

    def arm(self, fault: dict[str, Any]) -> int:
        number = self.faults.arm(Fault.read(fault))
        self._reroute()
        return number

    def disarm(self, number: int) -> None:
        self.faults.disarm(number)
        self._reroute()

    def strikes(self, number: int) -> int:
        return self.faults.strikes(number)

    def storm(self, seed: int, rate: float, most: int, apis: list[str], topic: str | None) -> None:
        """Start one storm for all nodes: it draws a random number per request in the order of arrival at any node."""
        self.schedule = fault_schedule_of(seed, rate, most, apis, topic)
        self._reroute()

    def stop_storm(self) -> None:
        if self.schedule is not None:
            self.schedule.is_over = True
        self._reroute()

    def storm_log(self) -> list[str]:
        return [] if self.schedule is None else self.schedule.log

    def _reroute(self) -> None:
        for node in self.running.values():
            node.schedule = self.schedule
            node.reroute()

    def heal(self) -> None:
        """Remove cuts, faults and storms, and restore every disk."""
        self.cuts.heal()
        self.faults.disarm_all()
        self.stop_storm()
        for node in self.running.values():
            node.disk(is_full=False)

    async def advance(self, seconds: float) -> None:
        """Advance the clock while the nodes stay in contact: none is fenced because of a step that all of them took at
        once. Returns when the cluster has no more problems than before.
        """
        was_well = not self.problems()
        threads = trio.to_thread.current_default_thread_limiter()

        def is_busy() -> bool:
            return threads.borrowed_tokens > 0 or any(node.broker.commit.is_busy for node in self.running.values())

        await self.clock.advance(seconds, is_busy, passed=self._postpone_deadlines, cushion_s=IN_FLIGHT_S, steps=STEPS)
        with trio.move_on_after(START_S):
            while was_well and self.problems():  # noqa: ASYNC110 - many conditions, all soon true
                await trio.sleep(LOOK_AGAIN_S)

    def _postpone_deadlines(self, seconds: float) -> None:
        """Move the leader's times of the other voters' last fetches by the same time."""
        for node in self.running.values():
            if _has_joined(node):
                _postpone(node.broker.quorum.raft.role, round(1000 * seconds))

    def now_ms(self) -> int:
        return self.clock.now_ms()

    # -- inspection ----------------------------------------------------------------------------------------------------

    def reached_from(self, number: int) -> dict[int, Node]:
        """The running nodes that a node is connected to, itself among them."""
        return {other: node for other, node in self.running.items() if not self.cuts.refuses_connections(number, other)}

    def active(self) -> int | None:
        """The node of the active controller that a majority follows."""
        able = [
            (node.broker.quorum.epoch, number)
            for number, node in self.running.items()
            if _has_joined(node) and node.broker.quorum.is_active
            if 2 * len(self.reached_from(number)) > len(self._ports)
        ]
        return max(able)[1] if able else None

    def leader(self, topic: str, index: int) -> int | None:
        """None while no reachable node leads, or while a reachable node does not know the leader yet: its metadata
        would send a client to the previous leader.
        """
        active = self.active()
        if active is None:
            return None
        found = self.running[active].broker.metadata.topics.by_name(topic)
        if found is None or index not in found.partitions:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        is_unled = any(_unled(found, self.reached_from(active), [index]))
        return None if is_unled else found.partitions[index].leader

    def reachable(self) -> dict[int, Node]:
        """The active controller's node, and the nodes that it reaches."""
        active = self.active()
        return {} if active is None else self.reached_from(active)

    def problems(self) -> list[str]:
        """The reasons why the running nodes are not a healthy cluster."""
        found = [f"the network is cut between {a} and {b}" for a, b in sorted(map(sorted, self.cuts.pairs))]
        active = self.active()
        if active is None:
            return [*found, NO_CONTROLLER]
        for number, node in self.running.items():
            if not _has_joined(node) or not node.broker.is_joined:
                found.append(f"node {number} has not joined")
                continue
            alive = node.broker.alive
            found += [f"node {number} takes node {each} for gone" for each in sorted(self.running.keys() - alive)]
            found += [f"node {number} takes node {each} for alive" for each in sorted(alive - self.running.keys())]
            for topic in node.broker.metadata.topics:
                found += _out_of_sync(topic, number, self.running)
        for topic in self.running[active].broker.metadata.topics:
            found += _unled(topic, self.running, topic.partitions)
        return found

    def topic_problems(self, name: str) -> list[str]:
        """The reasons why a topic is not served on the nodes that the active controller reaches."""
        active = self.active()
        if active is None:
            return [NO_CONTROLLER]
        topic = self.running[active].broker.metadata.topics.by_name(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic '{name}'")
        return list(_unled(topic, self.reached_from(active), topic.partitions))

    def describe(self) -> str:
        lines = []
        for number in self._ports:
            words = "runs" if number in self.running else "does not run"
            lines.append(f"node {number} {words}{', and is the active controller' * (number == self.active())}")
        lines += self.problems() or ["all that run are in sync"]
        for number, node in sorted(self.running.items()):
            lines += [f"-- node {number}", describe(node) if _has_joined(node) else "it has not joined"]
        return "\n".join(lines)


def _postpone(role: Role, ms: int) -> None:
    if not isinstance(role, Leader):
        role.deadline_ms += ms
        return
    role.since_ms += ms
    role.announced_ms += ms
    for progress in role.progress.values():
        progress.fetched_ms += ms
        progress.caught_up_ms += ms


def _has_joined(node: Node) -> bool:
    return "quorum" in vars(node.broker)


def _unled(topic: Topic, nodes: Mapping[int, Node], indexes: Iterable[int]) -> Iterator[str]:
    """Partitions whose leader a node does not know yet, or which their leader does not lead yet."""
    for number, node in nodes.items():
        known = node.broker.metadata.topics.by_name(topic.name) if _has_joined(node) else None
        led = {replica.index for replica in node.broker.partitions if replica.topic == topic.name and replica.leads}
        for index in sorted(indexes):
            result = None if known is None else known.partitions.get(index)
            if result is None or result.leader != topic.partitions[index].leader or result.leader not in nodes:
                yield f"node {number} knows no leader of {topic.name}-{index}"
            elif result.leader == number and index not in led:
                yield f"node {number} does not lead {topic.name}-{index} yet"


def _out_of_sync(topic: Topic, number: int, nodes: Mapping[int, Node]) -> Iterator[str]:
    """Partitions with replicas out of sync, as one node knows them."""
    for index, partition in sorted(topic.partitions.items()):
        isr, wanted = sorted(partition.isr), sorted(set(partition.replicas) & nodes.keys())
        if isr != wanted:
            yield f"{topic.name}-{index} is in sync on {isr}, not on {wanted}, in the metadata of node {number}"
