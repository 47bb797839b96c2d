"""One broker under test, inside its thread or process: its start, and the commands that it executes.

A command is a method here with JSON arguments and a JSON result. Commands run in the broker's own loop, so its state
does not change while a synchronous command reads it.
"""

from collections.abc import Mapping
from random import Random, SystemRandom
from typing import Any, Final

import trio

from trioka.broker.api import Handler
from trioka.broker.broker import Broker
from trioka.broker.config.layers import ConfigError
from trioka.broker.config.server import load
from trioka.broker.network.dispatch import Route

from .clock import MovableClock
from .diagnosis import describe
from .disks.faulty_disk import FaultyDisk
from .fault_injection import FaultyRoute
from .fault_schedule import FaultSchedule, fault_schedule_of
from .faults import Fault, Faults
from .log_capture import LogCapture

HOST: Final = "127.0.0.1"
LISTENER: Final = "PLAINTEXT"

TEN_YEARS_MS: Final = 10 * 365 * 86_400_000

# Defaults for tests: one node that keeps everything on itself, no delay of the first rebalance, few partitions to open.
# Connections do not time out when a week is added to the clock.
SETTINGS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": f"1@{HOST}:9093",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "connections.max.idle.ms": str(TEN_YEARS_MS),
}
RESERVED_SETTINGS: Final = frozenset({"listeners", "advertised.listeners", "log.dirs", "log.dir"})


class Node:
    def __init__(
        self,
        folder: str,
        settings: Mapping[str, str],
        port: int,
        *,
        clock: MovableClock | None = None,
        own: Mapping[str, str] = SETTINGS,
        faults: Faults | None = None,
    ) -> None:
        """ConfigError describes an error in the settings. The nodes of a cluster share clock and faults; `own` are the
        settings of this node.
        """
        self.clock = clock or MovableClock()
        self.journal = LogCapture()
        self.faults = Faults() if faults is None else faults
        self.schedule: FaultSchedule | None = None
        self._disk = FaultyDisk()
        for key in RESERVED_SETTINGS & settings.keys():
            raise ConfigError(f"{key} is chosen by the broker under test, and cannot be set.")
        listeners = f"{LISTENER}://{HOST}:{port},CONTROLLER://{HOST}:0"
        loaded = load({**SETTINGS, "listeners": listeners, **own, **settings, "log.dirs": folder})
        if loaded.warnings:  # an unknown key, which is an error in a test
            raise ConfigError(loaded.warnings[0])
        for remark in loaded.notes:
            self.journal.note(f"note: {remark}")
        self.broker = Broker(
            loaded.config, loaded.node, disk=self._disk, clock=self.clock, random=Random(SystemRandom().random())
        )

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.journal.open()
        try:
            await self.broker.run(task_status=task_status)
        finally:
            self.journal.close()

    @property
    def port(self) -> int:
        return self.broker.addresses[LISTENER][1]

    # -- faults --------------------------------------------------------------------------------------------------------

    def arm(self, fault: dict[str, Any]) -> int:
        number = self.faults.arm(Fault.read(fault))
        self.reroute()
        return number

    def disarm(self, number: int) -> None:
        self.faults.disarm(number)
        self.reroute()

    def strikes(self, number: int) -> int:
        return self.faults.strikes(number)

    def storm(self, seed: int, rate: float, most: int, apis: list[str], topic: str | None) -> None:
        self.schedule = fault_schedule_of(seed, rate, most, apis, topic)
        self.reroute()

    def stop_storm(self) -> None:
        """End the storm; its log can still be read."""
        if self.schedule is not None:
            self.schedule.is_over = True
        self.reroute()

    def storm_log(self) -> list[str]:
        return [] if self.schedule is None else self.schedule.log

    def reroute(self) -> None:
        """Apply the current faults and storm to requests from now on."""
        keys = self.faults.keys
        schedule = None if self.schedule is None or self.schedule.is_over else self.schedule
        if schedule is not None:
            keys |= schedule.keys

        def new(broker: Broker, handler: Handler[Any], key: int, version: int) -> Route:
            if key in keys:
                return FaultyRoute(broker, handler, key, version, self.faults, schedule)
            return Route(broker, handler, key, version)

        self.broker.dispatch.reroute(new if keys else Route)

    # -- network and disk ----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        self.broker.network.cut()

    def disk(self, is_full: bool | None = None, slowness_s: float | None = None) -> None:
        condition = self._disk.condition
        condition.is_full = condition.is_full if is_full is None else is_full
        condition.slowness_s = condition.slowness_s if slowness_s is None else slowness_s

    def heal(self) -> None:
        """Remove faults and storm, and restore network and disk."""
        self.broker.network.refuses_connections = False
        self.disk(is_full=False, slowness_s=0.0)
        self.faults.disarm_all()
        self.stop_storm()

    # -- time ----------------------------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        threads = trio.to_thread.current_default_thread_limiter()
        await self.clock.advance(seconds, lambda: threads.borrowed_tokens > 0 or self.broker.commit.is_busy)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    # -- inspection ----------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        return describe(self)

    def offline(self) -> list[str]:
        """The log directories that are offline."""
        return [each.path for each in self.broker.directories if each.failure is not None]
