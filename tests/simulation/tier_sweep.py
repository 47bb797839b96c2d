"""The sweep of orphans in the world of tiered storage (tier_world.py)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from simulation.tier_parts import ABOUT
from simulation.tier_store import TOMBSTONE

from trioka.cluster.remote_log import sweep as remote_log_sweep
from trioka.cluster.remote_log.jobs import ManifestKey, ObjectKind
from trioka.protocol.remote_segment.object_key import ObjectSuffix
from trioka.protocol.remote_segment.object_key import RemoteSegment as SegmentKey

if TYPE_CHECKING:
    from simulation.tier_world import TierWorld

SUFFIXES = {
    ObjectKind.MANIFEST: ObjectSuffix.MANIFEST,
    ObjectKind.INDEXES: ObjectSuffix.INDEXES,
    ObjectKind.DATA: ObjectSuffix.LOG,
}


def sweep(world: "TierWorld") -> None:
    """By the current leader."""
    broker = world.leading
    listed = list(_listed(world))
    if not world.habits.sweeps_without_replay:
        world.replay(broker)
    known = set(broker.image.segments)
    if world.habits.sweeps_started:
        known = {segment.segment_id for segment in broker.image.finished}
    for orphan in remote_log_sweep.orphans(listed, known, world.now_ms):
        found = next(iter(orphan.objects)).segment.segment_id
        there = world.store.objects.get((found, ObjectKind.MANIFEST))
        manifest = ManifestKey.NOTHING
        if there is not None:
            manifest = ManifestKey.TOMBSTONE if there.content == TOMBSTONE else ManifestKey.MANIFEST
        for suffix in remote_log_sweep.garbage(orphan, manifest, world.now_ms):
            kind = next(kind for kind, each in SUFFIXES.items() if each is suffix)
            world.store.objects.pop((found, kind), None)
            if kind is ObjectKind.MANIFEST and manifest is ManifestKey.TOMBSTONE:
                world.without_tombstone.add(found)
            world.swept += 1


def _listed(world: "TierWorld") -> Iterator[remote_log_sweep.ListedObject]:
    for (segment_id, kind), each in world.store.objects.items():
        yield remote_log_sweep.ListedObject(
            segment=SegmentKey(ABOUT, each.segment.start_offset, segment_id),
            suffix=SUFFIXES[kind],
            size=1,
            last_modified_ms=each.modified_ms,
        )
