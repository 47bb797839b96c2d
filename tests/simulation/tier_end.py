"""The end of a run of the world of tiered storage (tier_world.py): restore from the bucket, deletion of the topic."""

from typing import TYPE_CHECKING

from simulation.tier_parts import ABOUT, Row, Running, SimBroker, Violation
from simulation.tier_store import TOMBSTONE
from simulation.tier_sweep import sweep

from trioka.cluster.remote_log import jobs as remote_log_jobs
from trioka.cluster.remote_log import sweep as remote_log_sweep
from trioka.cluster.remote_log.jobs import Author, ObjectKind
from trioka.cluster.remote_log.metadata import (
    DELETED_EPOCH,
    Lineage,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    partition_delete_record,
)

if TYPE_CHECKING:
    from simulation.tier_world import TierWorld


def check_restore(world: "TierWorld", leader: SimBroker, lineage: Lineage) -> None:
    """The bucket alone has every offset of the leader's history that is finished."""
    whole = [
        (each.content, world.store.objects[segment_id, ObjectKind.DATA].content)
        for (segment_id, kind), each in world.store.objects.items()
        if kind is ObjectKind.MANIFEST and each.content != TOMBSTONE and segment_id not in world.store.expired
    ]
    found: dict[int, Row] = {}
    for manifest, rows in whole:
        segment = manifest[1]
        assert isinstance(segment, RemoteSegment)
        for offset, row in enumerate(rows, start=segment.start_offset):
            if offset < lineage.usable_end(segment):
                assert isinstance(row, Row)
                found[offset] = row
    for segment in world.truth.finished:
        if segment.segment_id in world.store.expired:
            continue
        for offset in range(max(segment.start_offset, leader.log_start), lineage.usable_end(segment)):
            if found.get(offset) != leader.log[offset]:
                raise Violation(f"TI7: {offset} cannot be restored")


def delete_topic(world: "TierWorld") -> None:
    """As the leader of the metadata partition does it (broker/tier/deletion.py)."""
    broker = world.leading
    broker.jobs = []
    world.replay(broker)
    for state in (PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED):
        world.write(partition_delete_record(ABOUT, state, broker_id=0, now_ms=0), DELETED_EPOCH)
    world.replay(broker)
    for _ in range(2):  # what is adopted at first is deleted then
        for segment in list(broker.image.segments.values()):
            author = Author(broker_id=broker.node, epoch=DELETED_EPOCH, now_ms=world.now_ms)
            is_started = segment.state is SegmentState.COPY_SEGMENT_STARTED
            make = remote_log_jobs.cancel_copy if is_started else remote_log_jobs.delete_segment
            running = Running(make(ABOUT, segment, author), segment, DELETED_EPOCH, deletes=True)
            broker.jobs.append(running)
            while running in broker.jobs:
                world.work_on(broker, running)
                world.replay(broker)
    world.now_ms += 2 * remote_log_sweep.ORPHAN_AGE_MS
    sweep(world)
    left = [each for each in world.store.objects.values() if each.content != TOMBSTONE]
    if left or world.truth.segments:
        raise Violation(f"TI5: a deleted topic leaves {len(left)} objects")
