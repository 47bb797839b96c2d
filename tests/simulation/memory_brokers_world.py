"""Whole brokers with memory topics: a machine that loses its power loses all records of these topics.

The topics of the clients are in memory directories, the internal ones on disks. Power is lost at one node at a time
(brokers_world.py), so every partition always has a replica with its memory, and no acknowledged record may be missing.
A process that is killed keeps what is in memory. A machine may also be rebooted: its broker stops in order, and finds
an empty directory afterwards.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType

from simulation.brokers_faults import FaultProfile, ScheduledFault
from simulation.brokers_world import BrokersWorld, SimNode, Violation
from simulation.client import TOPICS
from simulation.clients import Clients

from trioka.testing.disks.memory_disk import MemoryDisk


def profile_of(seed: int) -> FaultProfile:
    """Three brokers, the usual troubles, and more losses of power."""
    random = Random(f"memory brokers {seed}")
    usual = replace(
        FaultProfile.of(seed), brokers=3, controllers=random.choice([0, 0, 3]), guarded=False, flushes=False
    )
    troubles = [each for each in usual.troubles if max(each.node, each.other) <= 3]
    at = random.uniform(0.3, 1.5)
    while at < usual.chaos_s:
        node, seconds = random.randint(1, 3), random.choice([0.05, 1.0]) * random.uniform(0.2, 1.5)
        kind = random.choice(["power", "reboot"])
        troubles.append(ScheduledFault(at, kind, node, seconds, 0, random.random()))
        at += random.uniform(1.0, 4.0)
    return replace(usual, troubles=tuple(sorted(troubles)))


class MemoryBrokersWorld(BrokersWorld):
    topic_configs: Mapping[str, str] = MappingProxyType({"trioka.log.dir.class": "memory"})

    def __init__(self, seed: int, profile: FaultProfile | None = None) -> None:
        super().__init__(seed, profile or profile_of(seed))
        self.losses = 0  # of a memory directory with logs
        self._rebooting: set[int] = set()

    def _properties(self, node: SimNode) -> dict[str, str]:
        properties = super()._properties(node)
        if node.is_broker:
            in_memory = _directory(node)
            properties["log.dirs"] += f",{in_memory}"
            properties["trioka.log.dirs.memory"] = in_memory
        return properties

    def _reboot(self, node: SimNode, trouble: ScheduledFault) -> bool:
        if node.broker is None or node.is_stopping or not self._may_lose_power(node):
            return False
        self._rebooting.add(node.number)
        return self._stop(node, trouble)

    def _disk_after_stop(self, node: SimNode) -> MemoryDisk:
        disk = super()._disk_after_stop(node)
        return self._without_memory(node, disk) if node.number in self._rebooting else disk

    def _disk_after_power_loss(self, node: SimNode) -> MemoryDisk:
        return self._without_memory(node, super()._disk_after_power_loss(node))

    def _without_memory(self, node: SimNode, disk: MemoryDisk) -> MemoryDisk:
        self._rebooting.discard(node.number)
        place = _directory(node)
        if node.is_broker and disk.exists(place):
            self.losses += any(path.startswith(place) and path.endswith(".log") for path in node.disk.files())
            disk.remove_tree(place)
            disk.settle()
        return disk

    def _judge(self, clients: Clients) -> None:
        super()._judge(clients)
        for node in self.nodes.values():
            for path in node.disk.files():
                _, place, folder, *_ = path.split("/")
                if folder.rpartition("-")[0] in TOPICS and f"/{place}" != _directory(node):
                    raise Violation(f"{folder} of node {node.number} is in /{place}, which is on a disk")


def _directory(node: SimNode) -> str:
    return f"/m{node.number}"
