"""Several brokers under test, from the inside: one loop and one clock, with sockets and folders of their own.

The nodes live where a cancellation is not felt: who ends the loop ends them first, as a crash would. Nobody waits for
good-byes that nodes say to one another while all of them leave.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random, SystemRandom
from typing import Any, Final

import trio

from trioka.broker.broker import Broker
from trioka.broker.config.layers import ConfigError
from trioka.broker.membership.format import Founder, format_node
from trioka.cli.client.connection import Reserved
from trioka.cluster.bootstrap import fresh_records
from trioka.cluster.partition import random_uuid
from trioka.cluster.raft import Leader, Role
from trioka.cluster.topics import Topic
from trioka.protocol.errors import UnknownTopicOrPartition
from trioka.protocol.primitives import uuid_text
from trioka.storage.disk import OsDisk

from .clock import MovableClock
from .diagnosis import describe
from .fault_schedule import Weather, weather_of
from .faults import Fault, Faults
from .network_partitions import Cuts
from .node import HOST, LISTENER, Node
from .runner import Unresponsive

log = logging.getLogger("trioka.testing")

START_S: Final = 60.0  # so long may nodes look for one another
LOOK_AGAIN_S: Final = 0.01
STEPS: Final = 40  # of time travel: each takes nodes as long as it takes to ask each other anew, some 20 ms
ON_ITS_WAY_S: Final = 0.005  # what is between two nodes arrives within so long
NO_CONTROLLER: Final = "there is no active controller"
REPLICAS: Final = 3  # of whatever has no number of its own, if there are as many nodes

# There is no network to be patient with, and a test waits for what happens when a node is gone.
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
    def __init__(self, folder: str, count: int, settings: Mapping[str, str]) -> None:
        for key in OURS & settings.keys():
            raise ConfigError(f"{key} is chosen by the cluster under test, and cannot be set.")
        self.clock = MovableClock()
        self.running: dict[int, Node] = {}
        self.cuts = Cuts(self._owner)
        self._folder = folder
        self._settings = settings
        self.faults = Faults()
        self.weather: Weather | None = None
        self._random = Random(SystemRandom().random())
        self._ports = {number: (Reserved(HOST), Reserved(HOST)) for number in range(1, count + 1)}
        self._nursery: trio.Nursery
        self._is_over = trio.Event()

    def format(self) -> None:
        """Before the first start. ConfigError says what is wrong with the settings."""
        founders = [
            Founder(number, random_uuid(self._random), HOST, inner.port) for number, (_, inner) in self._ports.items()
        ]
        cluster_id = uuid_text(random_uuid(self._random))
        for number in self._ports:
            format_node(
                OsDisk(),
                self._new(number).broker.node,
                cluster_id=cluster_id,
                records=fresh_records(),
                founders=founders,
                has_voters_in_log=False,
                random=self._random,
                now_ms=self.clock.now_ms(),
            )

    def close(self) -> None:
        """Gives the ports back."""
        for ports in self._ports.values():
            for port in ports:
                port.close()

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Where clients find each node, also while it does not run."""
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
            "transaction.state.log.min.isr": str(in_sync),
        }
        folder = self.folder_of(number)
        node = Node(folder, self._settings, outer.port, clock=self.clock, own=own, faults=self.faults)
        node.broker.peers.dial = self.cuts.dial_from(number)
        node.weather = self.weather
        node.reroute()
        return node

    def folder_of(self, number: int) -> str:
        """Its log directory."""
        return f"{self._folder}/{number}"

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._shelter)
            try:
                await self.start(self._ports)
                task_status.started()
                await trio.sleep_forever()
            finally:
                for node in self.running.values():
                    node.broker.die()
                self._is_over.set()

    async def _shelter(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await self._is_over.wait()

    async def start(self, numbers: Iterable[int]) -> None:
        """Those that do not run, together. Returns when all of them serve."""
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
        """A node that cannot go on (its only disk has failed) ends alone, as its process would."""
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

    # -- faults and time: the orders of `Node`, for all of them --------------------------------------------------------

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
        """One for all: its dice are thrown in the order in which requests come, whichever node they come to."""
        self.weather = weather_of(seed, rate, most, apis, topic)
        self._reroute()

    def calm(self) -> None:
        if self.weather is not None:
            self.weather.is_over = True
        self._reroute()

    def storm_log(self) -> list[str]:
        return [] if self.weather is None else self.weather.log

    def _reroute(self) -> None:
        for node in self.running.values():
            node.weather = self.weather
            node.reroute()

    def heal(self) -> None:
        """No cut, no fault, no storm, and room on every disk."""
        self.cuts.heal()
        self.faults.disarm_all()
        self.calm()
        for node in self.running.values():
            node.disk(is_full=False)

    async def advance(self, seconds: float) -> None:
        """Nodes that run are in touch all the while: nobody misses another for a step that all of them took at once.
        Returns when they are as well as they were."""
        was_well = not self.trouble()
        threads = trio.to_thread.current_default_thread_limiter()

        def is_busy() -> bool:
            return threads.borrowed_tokens > 0 or any(node.broker.commit.is_busy for node in self.running.values())

        await self.clock.advance(seconds, is_busy, passed=self._excuse, cushion_s=ON_ITS_WAY_S, steps=STEPS)
        with trio.move_on_after(START_S):
            while was_well and self.trouble():  # noqa: ASYNC110 - many things, and all of them soon
                await trio.sleep(LOOK_AGAIN_S)

    def _excuse(self, seconds: float) -> None:
        """What the quorum was to hear of by a deadline, it was to hear of so much later."""
        for node in self.running.values():
            if _has_joined(node):
                _put_off(node.broker.quorum.raft.role, round(1000 * seconds))

    def now_ms(self) -> int:
        return self.clock.now_ms()

    # -- a look inside -------------------------------------------------------------------------------------------------

    def reached_from(self, number: int) -> dict[int, Node]:
        """The nodes that run and that it is not cut from; itself among them."""
        return {other: node for other, node in self.running.items() if not self.cuts.is_cut(number, other)}

    def active(self) -> int | None:
        """The node whose controller decides: one that a majority follows."""
        able = [
            (node.broker.quorum.epoch, number)
            for number, node in self.running.items()
            if _has_joined(node) and node.broker.quorum.is_active
            if 2 * len(self.reached_from(number)) > len(self._ports)
        ]
        return max(able)[1] if able else None

    def leader(self, topic: str, index: int) -> int | None:
        """None while nobody leads who runs and can be reached, or while somebody in reach does not know it: a client
        that asks there would be sent to the one before."""
        active = self.active()
        if active is None:
            return None
        found = self.running[active].broker.metadata.topics.by_name(topic)
        if found is None or index not in found.partitions:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        is_unled = any(_unled(found, self.reached_from(active), [index]))
        return None if is_unled else found.partitions[index].leader

    def in_touch(self) -> dict[int, Node]:
        """The active controller's node, and whom it reaches."""
        active = self.active()
        return {} if active is None else self.reached_from(active)

    def trouble(self) -> list[str]:
        """What keeps the nodes that run from being a whole cluster."""
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

    def trouble_of(self, name: str) -> list[str]:
        """What keeps a topic from being served, wherever the active controller reaches."""
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
        lines += self.trouble() or ["all that run are in sync"]
        for number, node in sorted(self.running.items()):
            lines += [f"-- node {number}", describe(node) if _has_joined(node) else "it has not joined"]
        return "\n".join(lines)


def _put_off(role: Role, ms: int) -> None:
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
    """Where nodes do not know the leaders that the active controller knows, or do not lead yet."""
    for number, node in nodes.items():
        known = node.broker.metadata.topics.by_name(topic.name) if _has_joined(node) else None
        led = {replica.index for replica in node.broker.partitions if replica.topic == topic.name and replica.leads}
        for index in sorted(indexes):
            told = None if known is None else known.partitions.get(index)
            if told is None or told.leader != topic.partitions[index].leader or told.leader not in nodes:
                yield f"node {number} knows no leader of {topic.name}-{index}"
            elif told.leader == number and index not in led:
                yield f"node {number} does not lead {topic.name}-{index} yet"


def _out_of_sync(topic: Topic, number: int, nodes: Mapping[int, Node]) -> Iterator[str]:
    """As one node knows it."""
    for index, partition in sorted(topic.partitions.items()):
        wanted = sorted(set(partition.replicas) & nodes.keys())
        if sorted(partition.isr) != wanted:
            yield f"{topic.name}-{index} is in sync on {sorted(partition.isr)}, and not on {wanted}, says node {number}"
