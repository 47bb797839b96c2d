"""The simulated worlds by name: their construction from a seed, their faults, and their state without faults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from simulation import (
    brokers_faults,
    compaction_world,
    linearizable_brokers_world,
    memory_brokers_world,
    producer_world,
    raft_world,
    reads_world,
    replication_parts,
    rot_world,
    storage_world,
    tier_parts,
    tiered_brokers_world,
    transaction_world,
)
from simulation.brokers_world import BrokersWorld
from simulation.compaction_world import CompactionWorld
from simulation.linearizable_brokers_world import LinearizableBrokersWorld
from simulation.memory_brokers_world import MemoryBrokersWorld
from simulation.producer_world import ProducerWorld
from simulation.raft_world import RaftWorld
from simulation.reads_world import ReadsWorld
from simulation.replication_world import ReplicationWorld
from simulation.rot_world import RotWorld
from simulation.storage_world import StorageWorld
from simulation.tier_world import TierWorld
from simulation.tiered_brokers_world import TieredBrokersWorld
from simulation.transaction_world import TransactionWorld

from trioka.cluster.quorum.voters import VoterSet

CHAOS_MS, HEAL_MS = 8_000, 6_000
RAFT_NODES = (3, 1, 5, 4)
RAFT_CHAOS_MS, RAFT_HEAL_MS = 12_000, 12_000
NEVER_MS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`profile` returns the severity of the faults for a seed, as a data class; `calm` the values of its fields without
    such faults. `live` runs a world, or the given share of its faults, and raises an AssertionError at the first broken
    guarantee. `trace` contains everything that distinguishes one run from another."""

    profile: Callable[[int], Any]
    calm: Mapping[str, object]
    begin: Callable[..., Any]  # with a seed, `profile`, and a mistake
    live: Callable[[Any, float], None]
    trace: Callable[[Any], object]


def _begin_raft(seed: int, **how: Any) -> RaftWorld:
    return RaftWorld(seed, nodes=RAFT_NODES[seed % len(RAFT_NODES)], **how)


def _trace_raft(world: RaftWorld) -> object:
    values = [sorted(entry.value) if isinstance(entry.value, VoterSet) else entry.value for entry in world.truth]
    return world.events, values, sorted(world.leaders.items())


def _walk(world: Any, part: float) -> None:
    world.run(int(world.profile.steps * part))


REPLICATION_CALM: Mapping[str, object] = {
    "loss": 0.0,
    "clean": 0.0,
    "straggle": 0.0,
    "max_delay_ms": 10,
    "flush_ms": 20,
    "is_power": False,
    "crash_every_ms": NEVER_MS,
    "cut_every_ms": NEVER_MS,
    "pause_every_ms": NEVER_MS,
}

WORLDS = {
    "raft": World(
        profile=raft_world.FaultProfile.of,
        calm={
            "loss": 0.0,
            "repeat": 0.0,
            "max_delay_ms": 30,
            "flush_ms": 5,
            "power": 0.0,
            "crash_every_ms": NEVER_MS,
            "cut_every_ms": NEVER_MS,
            "change_voters_every_ms": 0,
            "election_ms": 1000,
            "fetch_entries": 50,
            "snapshot_every_ms": 0,
            "wipe_every_ms": 0,
            "falls": 0.0,
        },
        begin=_begin_raft,
        live=lambda world, part: world.run(int(RAFT_CHAOS_MS * part), RAFT_HEAL_MS),
        trace=_trace_raft,
    ),
    "replication": World(
        profile=replication_parts.FaultProfile.of,
        calm=REPLICATION_CALM,
        begin=ReplicationWorld,
        live=lambda world, part: world.run(int(CHAOS_MS * part), HEAL_MS),
        trace=lambda world: (world.events, world.truth, sorted(world.acked.items())),
    ),
    "reads": World(
        profile=reads_world.profile_of,
        calm=REPLICATION_CALM,
        begin=ReadsWorld,
        live=lambda world, part: world.run(int(CHAOS_MS * part), HEAL_MS),
        trace=lambda world: (world.events, world.truth, world.reads, sorted(world.acked.items())),
    ),
    "storage": World(
        profile=storage_world.FaultProfile.of,
        calm=storage_world.CALM,
        begin=StorageWorld,
        live=_walk,
        trace=StorageWorld.trace,
    ),
    "tier": World(
        profile=tier_parts.FaultProfile.of,
        calm=tier_parts.CALM,
        begin=TierWorld,
        live=_walk,
        trace=TierWorld.trace,
    ),
    "compaction": World(
        profile=compaction_world.FaultProfile.of,
        calm=compaction_world.CALM,
        begin=CompactionWorld,
        live=_walk,
        trace=CompactionWorld.trace,
    ),
    "producers": World(
        profile=producer_world.FaultProfile.of,
        calm=producer_world.CALM,
        begin=ProducerWorld,
        live=_walk,
        trace=ProducerWorld.trace,
    ),
    "transactions": World(
        profile=transaction_world.FaultProfile.of,
        calm=transaction_world.CALM,
        begin=TransactionWorld,
        live=_walk,
        trace=TransactionWorld.trace,
    ),
    "rot": World(
        profile=rot_world.FaultProfile.of,
        calm=rot_world.CALM,
        begin=RotWorld,
        live=_walk,
        trace=RotWorld.trace,
    ),
    "brokers": World(
        profile=brokers_faults.FaultProfile.of,
        calm=brokers_faults.CALM,
        begin=BrokersWorld,
        live=BrokersWorld.run,
        trace=BrokersWorld.trace,
    ),
    "linearizable-brokers": World(
        profile=linearizable_brokers_world.profile_of,
        calm=brokers_faults.CALM,
        begin=LinearizableBrokersWorld,
        live=LinearizableBrokersWorld.run,
        trace=LinearizableBrokersWorld.trace,
    ),
    "tiered-brokers": World(
        profile=tiered_brokers_world.profile_of,
        calm={**brokers_faults.CALM, "failures": 0.0},
        begin=TieredBrokersWorld,
        live=TieredBrokersWorld.run,
        trace=TieredBrokersWorld.trace,
    ),
    "memory-brokers": World(
        profile=memory_brokers_world.profile_of,
        calm=brokers_faults.CALM,
        begin=MemoryBrokersWorld,
        live=MemoryBrokersWorld.run,
        trace=MemoryBrokersWorld.trace,
    ),
}


def run(name: str, seed: int, **mistake: Any) -> Any:
    """One seed, from beginning to end; the world afterwards."""
    kind = WORLDS[name]
    world = kind.begin(seed, **mistake)
    kind.live(world, 1.0)
    return world


def fingerprint(name: str, world: Any) -> str:
    """Equal for two runs in which the same happened."""
    return sha256(repr(WORLDS[name].trace(world)).encode()).hexdigest()[:16]
