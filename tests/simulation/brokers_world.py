"""Whole brokers and their clients in one process: the production code, from the bytes on the wire to the bytes on the
disk, on a clock (`virtual_time`), a network (`network`) and disks (`testing/disks/memory_disk.py`) that a seed
controls.

A world warms up, goes through its faults (`brokers_faults`), and heals. At the end all replicas must be in sync, all
sent records acknowledged, and no transaction open. Then all is read once more, the history checker checks the history
of the clients, and the replicas must be equal to the byte.

A killed process loses nothing that it has written; a machine that loses its power keeps on its disk what was
synced and some of the rest. The controller cannot distinguish the two, and uses neither before it is in sync again.
min.insync.replicas=2 survives one of them at a time: power is lost only while all other nodes are whole, and no node is
killed while another has lost power and is not whole. While no node has lost power, any number may be killed; where
everything is synced before it is acknowledged, any number may lose their power.
"""

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from types import MappingProxyType
from typing import Any

import trio
from history.checker import check
from history.operations import History
from simulation.brokers_faults import FaultProfile, ScheduledFault
from simulation.client import TOPICS, SimClient
from simulation.clients import Clients
from simulation.denied_client import STANDARD_AUTHORIZER
from simulation.network import Quality, SimNet, simulated_network
from simulation.virtual_time import EPOCH_MS, PROCESS, Process, SimClock, WallClock, simulated_time

from trioka.broker.broker import Broker
from trioka.broker.config.server import load
from trioka.broker.membership.format import InitialVoter, format_node
from trioka.broker.membership.lifecycle import JoinRefused
from trioka.cluster.controller.bootstrap import fresh_records
from trioka.cluster.image.partition import random_uuid
from trioka.protocol.primitives import uuid_text
from trioka.testing.disks.memory_disk import MemoryDisk
from trioka.testing.nodes.cluster_runtime import SHORT_TIMEOUTS

START_S = 60.0
HEAL_S = 60.0
CHECK_INTERVAL_S = 0.05
CALM = Quality()
PORT, CONTROLLER_PORT = 9092, 9093


class Violation(AssertionError):
    """A promise was broken."""


class SimNode:
    """A machine, and the broker that runs on it, if one does."""

    def __init__(self, number: int, role: str) -> None:
        self.number = number
        self.role = role
        self.host = f"10.0.0.{number}"
        self.disk = MemoryDisk()
        self.life = 0
        self.ahead_ms = 0
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.is_stopping = False

    @property
    def is_broker(self) -> bool:
        return "broker" in self.role

    @property
    def has_joined(self) -> bool:
        return self.broker is not None and "quorum" in vars(self.broker) and self.broker.quorum.caught_up


class BrokersWorld:
    topic_configs: Mapping[str, str] = MappingProxyType({})  # of the topics of clients, besides the usual ones

    def __init__(self, seed: int, profile: FaultProfile | None = None) -> None:
        self.seed = seed
        self.profile = profile or FaultProfile.of(seed)
        self.clock = SimClock()
        self.random = Random(f"world {seed}")
        self.net = SimNet(self.clock, Random(f"net {seed}"))
        self.history = History()
        self.notes: list[str] = []
        self.broken: list[str] = []
        self.nodes: dict[int, SimNode] = {}
        self.not_whole: set[int] = set()  # nodes that were killed or lost power, and are not back in every ISR
        self.bereft: set[int] = set()  # those among them that have lost power, and perhaps records
        self.is_fair = True
        self._chaos_s = self.profile.chaos_s
        self.client_hosts: list[str] = []
        self._nursery: trio.Nursery
        total = self.profile.brokers + self.profile.controllers
        for number in range(1, total + 1):
            if not self.profile.controllers:
                role = "broker,controller"
            else:
                role = "broker" if number <= self.profile.brokers else "controller"
            node = self.nodes[number] = SimNode(number, role)
            node.ahead_ms = self.random.randint(-self.profile.skew_ms, self.profile.skew_ms)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self, part: float = 1.0) -> None:
        """Violation contains the first error. `part`: the share of the faults."""
        self._chaos_s = self.profile.chaos_s * part
        gc.collect()
        gc.disable()
        try:
            with simulated_time(self.seed), simulated_network(self.net), self._listening():
                trio.run(self._main, clock=self.clock)
        except BaseExceptionGroup as group:
            self._raise_first(group)
        finally:
            gc.enable()

    def _raise_first(self, group: BaseExceptionGroup[BaseException]) -> None:
        found: BaseException = group.subgroup(Violation) or group
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if isinstance(found, Exception) and not isinstance(found, Violation):
            raise Violation(f"crash: {found!r} {_where(found)}") from group
        raise found from None

    @property
    def events(self) -> int:
        return self.clock.event_count

    def trace(self) -> object:
        """All events that distinguish one run from another."""
        return self.notes, self.events, self.net.bytes_sent, self.clock.current_time()

    def now_ms(self) -> int:
        """By a calendar that is right."""
        return EPOCH_MS + int(self.clock.current_time() * 1000)

    def note(self, what: str) -> None:
        self.notes.append(f"{self.clock.current_time():.6f} {what}")

    def violate(self, what: str) -> None:
        """May be called from anywhere; the world ends at the next look."""
        self.broken.append(f"{what} (at {self.clock.current_time():.3f} s)")

    def check(self) -> None:
        if self.broken:
            raise Violation(self.broken[0])

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._format()
            for node in self.nodes.values():
                self.start(node)
            await self._until(lambda: not self._trouble_of_nodes(), START_S, self._trouble_of_nodes)
            clients = Clients(self)
            await clients.begin(self._nursery)
            self.note("chaos")
            self.is_fair = False
            self.net.quality = self.profile.quality
            began = self.clock.current_time()
            for trouble in self.profile.troubles:
                if trouble.at < self._chaos_s:
                    await self._sleep_until(began + trouble.at)
                    self._strike(trouble)
            await self._sleep_until(began + self._chaos_s)
            self.note("heal")
            self._heal()
            clients.finish()
            await self._rest(clients)
            self.note("rest")
            await clients.read_all()
            await self._rest(clients)  # a group may have lost a member meanwhile, and written so
            self.check()
            self._judge(clients)
            for node in self.nodes.values():
                if node.broker is not None:
                    self._end(node)
            self._nursery.cancel_scope.cancel()

    def more_clients(self) -> Sequence[SimClient]:
        """Besides the usual ones."""
        return ()

    async def _sleep_until(self, when: float) -> None:
        while self.clock.current_time() < when:
            await trio.sleep(min(CHECK_INTERVAL_S * 4, when - self.clock.current_time()))
            self.check()

    async def _rest(self, clients: Clients) -> None:
        await self._until(lambda: not self._unrest(clients), HEAL_S, lambda: self._unrest(clients))

    async def _until(self, condition: Callable[[], bool], patience_s: float, why: Callable[[], list[str]]) -> None:
        until = self.clock.current_time() + patience_s
        while not condition():
            if self.clock.current_time() >= until:
                raise Violation(f"liveness: {'; '.join(why()[:5])}")
            await trio.sleep(CHECK_INTERVAL_S)
            self.check()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """An internal error that is only logged is a violation too."""
        root = logging.getLogger("trioka")
        handler = _ErrorRecorder(self)
        level, propagate = root.level, root.propagate
        root.addHandler(handler)
        root.setLevel(logging.ERROR)
        root.propagate = False
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
            root.propagate = propagate

    # -- lives ---------------------------------------------------------------------------------------------------------

    def _properties(self, node: SimNode) -> dict[str, str]:
        profile = self.profile
        voters = [each for each in self.nodes.values() if "controller" in each.role]
        listeners = [f"PLAINTEXT://{node.host}:{PORT}"] if node.is_broker else []
        listeners += [f"CONTROLLER://{node.host}:{CONTROLLER_PORT}"] if node in voters else []
        replicas, in_sync = str(profile.replicas), str(profile.min_in_sync)
        guard = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
        return {
            **SHORT_TIMEOUTS,
            **(guard if profile.guarded else {}),
            "process.roles": node.role,
            "node.id": str(node.number),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": f"/b{node.number}",
            "controller.quorum.voters": ",".join(f"{each.number}@{each.host}:{CONTROLLER_PORT}" for each in voters),
            "auto.create.topics.enable": "false",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "log.flush.interval.messages": "1" if profile.flushes else str(2**62),
            "log.initial.task.delay.ms": "300",
            "log.flush.offset.checkpoint.interval.ms": "900",
            "replica.high.watermark.checkpoint.interval.ms": "700",
            "log.cleaner.enable": "false",
            "replica.fetch.max.bytes": "16384",  # below what goes by sendfile, which a disk in memory has not
        }

    def _format(self) -> None:
        random = Random(f"format {self.seed}")
        initial_voters = [
            InitialVoter(node.number, random_uuid(random), node.host, CONTROLLER_PORT)
            for node in self.nodes.values()
            if "controller" in node.role
        ]
        cluster_id = uuid_text(random_uuid(random))
        for node in self.nodes.values():
            format_node(
                node.disk,
                load(self._properties(node)).node,
                cluster_id=cluster_id,
                records=fresh_records(),
                initial_voters=initial_voters,
                has_voters_in_log=False,
                random=random,
                now_ms=EPOCH_MS,
            )
            node.disk.settle()

    def start(self, node: SimNode) -> None:
        if node.broker is not None:
            return
        node.life += 1
        random = Random(f"{self.seed} node {node.number} life {node.life}")
        node.process = Process(node.host, Random(random.random()))
        node.process.thread_s = self.profile.thread_s
        loaded = load(self._properties(node))
        clock = WallClock(self.clock, node.ahead_ms)
        node.broker = Broker(loaded.config, loaded.node, disk=node.disk, clock=clock, random=random)
        node.broker.peers.dial = self.net.dial_from(node.host)
        self.net.switch_on(node.host)
        self._nursery.start_soon(self._live, node, node.broker, node.process)

    async def _live(self, node: SimNode, broker: Broker, process: Process) -> None:
        PROCESS.set(process)
        problem = ""
        try:
            await broker.run()
        except BaseExceptionGroup as group:
            others = group.split(JoinRefused)[1]
            if others is not None and process.is_alive:
                raise
            problem = "it could not join"
        except JoinRefused:
            problem = "it could not join"
        if node.broker is broker:  # it has ended by itself, or in order
            self.note(f"{node.host} has ended {problem}")
            self.net.kill(node.host)
            node.broker = node.process = None
            node.disk = self._disk_after_stop(node)
            if self.is_fair or not node.is_stopping:
                self.start(node)
            node.is_stopping = False

    def _end(self, node: SimNode, *, silent_s: float = 0.0) -> None:
        broker, process = node.broker, node.process
        assert broker is not None and process is not None
        node.broker = node.process = None
        node.is_stopping = False
        process.is_alive = False
        process.resume()
        self.net.kill(node.host, silent_s=silent_s)
        broker.die()

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _strike(self, trouble: ScheduledFault) -> None:
        node = self.nodes.get(trouble.node)
        strike: Callable[[Any, ScheduledFault], bool] = getattr(self, f"_{trouble.kind}")
        if strike(node, trouble):
            self.note(str(trouble))

    def _later(self, trouble: ScheduledFault, event: Callable[[], None]) -> None:
        self.clock.after(trouble.seconds, lambda: None if self.is_fair else event())

    def _kill(self, node: SimNode, trouble: ScheduledFault) -> bool:
        if node.broker is None:
            return False
        if not self._may_be_killed(node):
            return False
        disk = node.disk.after_kill()
        self._end(node)
        node.disk = disk
        self._later(trouble, lambda: self.start(node))
        return True

    def _power(self, node: SimNode, trouble: ScheduledFault) -> bool:
        if node.broker is None or not self._may_lose_power(node):
            return False
        disk = self._disk_after_power_loss(node)
        silent_s = 3.0 * trouble.detail if trouble.detail < 0.5 else 0.0
        self._end(node, silent_s=silent_s)
        node.disk = disk
        self.net.switch_off(node.host)
        self._later(trouble, lambda: self.start(node))
        return True

    def _disk_after_stop(self, node: SimNode) -> MemoryDisk:
        return node.disk.after_kill()

    def _disk_after_power_loss(self, node: SimNode) -> MemoryDisk:
        return node.disk.crash(self.profile.model, self.random)

    def _may_be_killed(self, node: SimNode) -> bool:
        """Not while another is not whole that has lost something."""
        if self.profile.flushes or not node.is_broker:
            return True
        self._refresh_whole_nodes()
        if self.bereft - {node.number}:
            return False
        self.not_whole.add(node.number)
        return True

    def _may_lose_power(self, node: SimNode) -> bool:
        if self.profile.flushes or not node.is_broker:
            return True
        self._refresh_whole_nodes()
        if self.not_whole - {node.number}:
            return False
        self.not_whole.add(node.number)
        self.bereft.add(node.number)
        return True

    def _refresh_whole_nodes(self) -> None:
        self.not_whole = {number for number in self.not_whole if not self._is_whole(self.nodes[number])}
        self.bereft &= self.not_whole

    def _is_whole(self, node: SimNode) -> bool:
        """It is in every ISR again, in this life, in the image of an active controller."""
        broker = node.broker
        if broker is None or not node.has_joined:
            return False
        for other in self.nodes.values():
            if other.has_joined and other.broker is not None and other.broker.quorum.is_active:
                metadata = other.broker.metadata
                known = metadata.brokers.get(node.number)
                if known is not None and known.epoch == broker.broker_epoch:
                    return all(
                        node.number in partition.isr
                        for _, partition in metadata.topics.partitions()
                        if node.number in partition.replicas
                    )
        return False

    def _stop(self, node: SimNode, trouble: ScheduledFault) -> bool:
        """In order."""
        if node.broker is None or node.is_stopping:
            return False
        node.is_stopping = True
        node.broker.stop()
        self._later(trouble, lambda: self.start(node))
        return True

    def _pause(self, node: SimNode, trouble: ScheduledFault) -> bool:
        process = node.process
        if process is None or process.is_paused:
            return False
        process.pause()
        self._later(trouble, process.resume)
        return True

    def _slow(self, node: SimNode, trouble: ScheduledFault) -> bool:
        process = node.process
        if process is None:
            return False
        process.thread_s = (0.05, 0.6)
        self._later(trouble, lambda: setattr(process, "thread_s", self.profile.thread_s))
        return True

    def _cut(self, node: SimNode | None, trouble: ScheduledFault) -> bool:
        """One way or both, from one other node, or from all others, clients among them."""
        names = [each.host for each in self.nodes.values()]
        some = [names[trouble.node - 1]] if trouble.node else names
        others = [names[trouble.other - 1]] if trouble.other else [*names, *self.client_hosts]
        pairs = [(a, b) for a in some for b in others if a != b]
        if trouble.detail < 0.5:
            pairs += [(b, a) for a, b in pairs]
        for pair in pairs:
            self.net.cut(*pair)

        def heal() -> None:
            for pair in pairs:
                self.net.heal(*pair)

        self._later(trouble, heal)
        return True

    def _heal(self) -> None:
        self.is_fair = True
        self.net.heal_all()
        self.net.quality = CALM
        for node in self.nodes.values():
            if node.process is not None:
                node.process.resume()
                node.process.thread_s = (0.0002, 0.002)
            if not node.is_stopping:
                self.start(node)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _trouble_of_nodes(self) -> list[str]:
        found = []
        numbers = {node.number for node in self.nodes.values() if node.is_broker}
        for node in self.nodes.values():
            broker = node.broker
            if broker is None or not node.has_joined or (node.is_broker and not broker.membership.has_joined):
                found.append(f"node {node.number} has not joined")
            elif broker.alive != numbers:
                found.append(f"node {node.number} knows only {sorted(broker.alive)}")
        if not any(n.broker is not None and n.has_joined and n.broker.quorum.is_active for n in self.nodes.values()):
            found.append("there is no active controller")
        return found

    def _unrest(self, clients: Clients) -> list[str]:
        found = self._trouble_of_nodes() + clients.unfinished()
        if found:
            return found
        for node in self.nodes.values():
            assert node.broker is not None
            for topic, partition in node.broker.metadata.topics.partitions():
                name = f"{topic.name}-{partition.index}"
                if len(partition.isr) < len(partition.replicas):
                    found.append(f"{name}: in sync are {partition.isr}, says {node.number}")
            for replica in node.broker.partitions:
                log, name = replica.log, f"{replica.topic}-{replica.index}"
                if log.high_watermark != log.log_end_offset:
                    found.append(f"{name} on {node.number}: {log.high_watermark} of {log.log_end_offset} committed")
                elif log.last_stable_offset != log.high_watermark:
                    found.append(f"{name} on {node.number}: a transaction is open at {log.last_stable_offset}")
        return found

    def _judge(self, clients: Clients) -> None:
        report = check(self.history)
        if report.anomalies:
            raise Violation("; ".join(f"{each.kind}: {each.what}" for each in report.anomalies[:5]))
        self._judge_replicas((*TOPICS, *INTERNAL))

    def _judge_replicas(self, topics: Sequence[str]) -> None:
        """Their files are equal to the byte."""
        contents: dict[str, dict[int, bytes]] = {}
        for node in self.nodes.values():
            for path, data in node.disk.files().items():
                _, _, folder, *rest = path.split("/")
                if rest and rest[-1].endswith(".log") and folder.rpartition("-")[0] in topics:
                    contents.setdefault(folder, {}).setdefault(node.number, b"")
                    contents[folder][node.number] += data
        for folder, copies in contents.items():
            if len(copies) != self.profile.replicas or len(set(copies.values())) != 1:
                sizes = {number: len(data) for number, data in copies.items()}
                raise Violation(f"replicas: {folder} is not the same everywhere: {sizes}")


INTERNAL = ("__consumer_offsets", "__transaction_state")


class _ErrorRecorder(logging.Handler):
    def __init__(self, world: BrokersWorld) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            mistake = record.exc_info[1]
            process = PROCESS.get()
            if process is None or process.is_alive:
                self._world.violate(f"mistake: {record.getMessage()}: {mistake!r} {_where(mistake)}")


def _where(mistake: BaseException) -> str:
    places = []
    trace = mistake.__traceback__
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " ".join(places[-4:])
