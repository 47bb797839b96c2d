"""Objects that are lost in the world of tiered storage (tier_world.py): a lifecycle rule, or a hand."""

from typing import TYPE_CHECKING

from trioka.cluster.remote_log.jobs import ObjectKind

if TYPE_CHECKING:
    from simulation.tier_world import TierWorld


def expire(world: "TierWorld") -> None:
    finished = [s for s in world.truth.finished if s.segment_id not in world.store.expired]
    if not finished:
        return
    segment = world.random.choice(finished)
    kinds = world.random.choice([list(ObjectKind), [ObjectKind.DATA], [ObjectKind.MANIFEST]])
    world.store.expire(segment.segment_id, kinds)
    world.lost.update(range(segment.start_offset, segment.next_offset))


def notice_missing(world: "TierWorld") -> None:
    """A reader of the leader gets a 404, again after some seconds."""
    leader = world.leading
    for segment in leader.image.finished:
        if segment.segment_id in world.store.expired:
            leader.missing.add(segment.segment_id)
