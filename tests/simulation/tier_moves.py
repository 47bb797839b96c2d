"""A reassignment in the world of tiered storage (tier_world.py), in the middle of an upload: a replica begins on an
empty disk, behind what is in the object store, and leads as soon as it is in sync. The old leader goes on copying."""

from typing import TYPE_CHECKING

from simulation.tier_parts import NODES, SimBroker

if TYPE_CHECKING:
    from simulation.tier_world import TierWorld

MOST_FETCHES = 60


def reassign(world: "TierWorld") -> None:
    copies = [job for job in world.leading.jobs if not job.deletes and job.epoch == world.epoch]
    node = world.random.choice(NODES)
    if not copies or node == world.leader or len(world.isr - {node}) < 2:
        return
    world.isr.discard(node)
    replica = world.brokers[node] = SimBroker(node)
    for _ in range(MOST_FETCHES):
        world.fetch_by(replica)
        if len(replica.log) >= world.high_watermark:
            break
    world.advance()
    if node in world.isr:
        world.take(node)
        world.reassigned += 1
