"""Several brokers inside a test: real sockets on loopback, one trio loop, directories of their own.

    @on_cluster
    async def test_three_nodes_agree_on_the_leader(tmp_path: Path) -> None:
        async with running_cluster(tmp_path, nodes=3) as cluster:
            await cluster.until(lambda: cluster.active is not None)

`kill` ends a node as a crash would: no other node is notified, nothing is made durable, no clean marker is written.
`start` starts it again in its directory and at its ports. `cut` breaks and refuses connections between two nodes until
`heal`. Settings are those of `serving.new_broker`; timeouts are short, so that a test need not wait for them.
"""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import ParamSpec

import trio
from support.serving import HOST, LISTENER, ClientConnection

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.server import load
from trioka.broker.membership.format import InitialVoter, format_node
from trioka.broker.membership.log_directories import LogDirectoriesOffline
from trioka.cli.client.connection import ReservedPort
from trioka.cluster.controller.bootstrap import fresh_records
from trioka.cluster.image.partition import random_uuid
from trioka.protocol.primitives import uuid_text
from trioka.storage.files.disk import OsDisk
from trioka.testing.faults.network_partitions import NetworkPartitions
from trioka.testing.nodes.cluster_runtime import SHORT_TIMEOUTS

P = ParamSpec("P")

PATIENCE_S = 60.0
CHECK_INTERVAL_S = 0.01
TEST_S = 180.0  # a whole test; each of its conditions has PATIENCE_S

SHORT = {
    **SHORT_TIMEOUTS,
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


def on_cluster(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """As `on_trio`, for tests that need more time on a machine with other things to do."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        async def within_limits() -> None:
            with trio.fail_after(TEST_S):
                await test(*arguments, **keywords)

        trio.run(within_limits)

    return run


class Cluster:
    def __init__(
        self,
        nursery: trio.Nursery,
        directory: Path,
        settings: dict[str, str],
        more_listeners: Sequence[str] = (),
        settings_of: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        self.nursery = nursery
        self.directory = directory
        self.brokers: dict[int, Broker] = {}
        self.ports: dict[
            int, tuple[ReservedPort, ReservedPort]
        ] = {}  # of the broker's listener, and of the controller's
        self.roles: dict[int, str] = {}
        self.cluster_id = uuid_text(random_uuid(Random()))
        self._settings = settings
        self._settings_of = settings_of
        self._more_listeners = more_listeners
        self._founders: list[InitialVoter] = []
        self._is_dynamic = False
        self._cuts = NetworkPartitions(self._owner)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def plan(self, roles: dict[int, str], *, dynamic: bool, is_formatted: bool = False) -> None:
        self.roles |= roles
        self._is_dynamic = dynamic
        for node in roles:
            self.ports[node] = (ReservedPort(HOST), ReservedPort(HOST))
        voters = [node for node, role in roles.items() if "controller" in role]
        self._founders = [InitialVoter(node, random_uuid(Random()), HOST, self.ports[node][1].port) for node in voters]
        for node in () if is_formatted else roles:
            self.format(node)

    def add_node(self, node: int, role: str = "broker,controller") -> None:
        """Adds a node that is no voter, in any role."""
        self.roles[node] = role
        self.ports[node] = (ReservedPort(HOST), ReservedPort(HOST))
        self.format(node)

    def format(self, node: int) -> None:
        loaded = load(self._properties(node))
        is_founder = any(founder.id == node for founder in self._founders)
        format_node(
            OsDisk(),
            loaded.node,
            cluster_id=self.cluster_id,
            records=fresh_records(),
            initial_voters=self._founders if is_founder else [],
            has_voters_in_log=self._is_dynamic,
            random=Random(),
            now_ms=0,
        )

    def _properties(self, node: int) -> dict[str, str]:
        role = self.roles[node]
        listeners = []
        if "broker" in role:
            listeners += [f"{LISTENER}://{HOST}:{self.ports[node][0].port}", *self._more_listeners]
        if "controller" in role:
            listeners.append(f"CONTROLLER://{HOST}:{self.ports[node][1].port}")
        quorum = {
            "controller.quorum.bootstrap.servers": ",".join(f"{each.host}:{each.port}" for each in self._founders)
        }
        if not self._is_dynamic:
            named = ",".join(f"{each.id}@{each.host}:{each.port}" for each in self._founders)
            quorum = {"controller.quorum.voters": named}
        return {
            **SHORT,
            "process.roles": role,
            "node.id": str(node),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str(self.directory / str(node)),
            **quorum,
            **self._settings,
            **self._settings_of.get(node, {}),
        }

    async def start(self, node: int, **settings: object) -> Broker:
        """Returns when the node serves."""
        changed = {key.replace("_", "."): str(value) for key, value in settings.items()}
        loaded = load({**self._properties(node), **changed})
        broker = Broker(loaded.config, loaded.node, disk=OsDisk(), clock=SystemClock(), random=Random())
        broker.peers.dial = self._cuts.dial_from(node)
        self.brokers[node] = broker
        await self.nursery.start(self._live, broker)
        return broker

    @staticmethod
    async def _live(broker: Broker, *, task_status: trio.TaskStatus[None]) -> None:
        """A node that ends because its disks have failed does not end the others."""
        with suppress(LogDirectoriesOffline):
            await broker.run(task_status=task_status)

    async def start_all(self, *nodes: int) -> None:
        async with trio.open_nursery() as starting:
            for node in nodes:
                starting.start_soon(self.start, node)

    async def kill(self, node: int) -> None:
        broker = self.brokers.pop(node)
        broker.die()
        await broker.stopped.wait()

    async def stop(self, node: int) -> None:
        broker = self.brokers.pop(node)
        broker.stop()
        await broker.stopped.wait()

    # -- the network ---------------------------------------------------------------------------------------------------

    def cut(self, a: int, b: int) -> None:
        self._cuts.cut(a, b)

    def isolate(self, node: int) -> None:
        for other in self.roles:
            if other != node:
                self.cut(node, other)

    def heal(self) -> None:
        self._cuts.heal()

    def _owner(self, port: int) -> int:
        for node, pair in self.ports.items():
            if port in (pair[0].port, pair[1].port):
                return node
        return next(
            node for node, broker in self.brokers.items() if port in {at[1] for at in broker.addresses.values()}
        )

    # -- what is asked of it -------------------------------------------------------------------------------------------

    def __getitem__(self, node: int) -> Broker:
        return self.brokers[node]

    @property
    def up(self) -> list[Broker]:
        """The running nodes that have joined the quorum."""
        return [broker for broker in self.brokers.values() if "quorum" in vars(broker)]

    @property
    def active(self) -> Broker | None:
        """The active controller, if exactly one node claims to be it."""
        found = [broker for broker in self.up if broker.quorum.is_active]
        return found[0] if len(found) == 1 else None

    async def until(self, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        with trio.fail_after(patience_s):
            while not condition():
                await trio.sleep(CHECK_INTERVAL_S)

    async def wait_active(self) -> Broker:
        await self.until(lambda: self.active is not None)
        assert self.active is not None
        return self.active

    def asking(self, node: int) -> ClientConnection:
        return ClientConnection(self.brokers[node])


@asynccontextmanager
async def running_cluster(
    directory: Path,
    *,
    nodes: int = 3,
    roles: dict[int, str] | None = None,
    dynamic: bool = False,
    is_formatted: bool = False,
    more_listeners: Sequence[str] = (),
    settings_of: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
    **settings: object,
) -> AsyncIterator[Cluster]:
    """`roles` by number, where they are not all broker and controller; `dynamic`: the voters are in the log (KIP-853);
    `is_formatted`: the directories exist already; `more_listeners` of brokers, at a port of 0; `settings_of` single
    nodes, by number."""
    static = {key.replace("_", "."): str(value) for key, value in settings.items()}
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory, static, more_listeners, settings_of)
        try:
            planned = roles or dict.fromkeys(range(1, nodes + 1), "broker,controller")
            cluster.plan(planned, dynamic=dynamic, is_formatted=is_formatted)
            with trio.fail_after(PATIENCE_S):
                await cluster.start_all(*cluster.roles)
            yield cluster
        except Exception as error:
            failure = error
        finally:
            for broker in cluster.brokers.values():
                broker.die()
            for first, second in cluster.ports.values():
                first.close()
                second.close()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
