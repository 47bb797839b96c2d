"""Early upload in the world of tiered storage (tier_world.py): parts of active segments, sent while they are written.

The decision is the product's (cluster/remote_log/early.py); the upload is a list of rows in the store, which becomes an
object only when a copy completes it. A request may fail, and then the upload ends.
"""

from typing import TYPE_CHECKING

from simulation.tier_parts import RECORD_BYTES, BegunUpload, Row, SimBroker, Violation

from trioka.cluster.remote_log import early as remote_log_early
from trioka.cluster.remote_log.early import AbandonUpload, ActiveSegment, BeginUpload, EarlyUpload
from trioka.cluster.remote_log.jobs import StoreFailed
from trioka.cluster.remote_log.metadata import RemoteSegment

if TYPE_CHECKING:
    from simulation.tier_world import TierWorld

PART_ROWS = 1


def decide(world: "TierWorld", broker: SimBroker) -> None:
    """What who leads, or believes to lead, does next with its active segment."""
    begun = _upload_of(world, broker)
    if broker.epoch < 0 or not broker.is_up or world.is_deleted:
        return
    base, size = broker.borders[-1], len(broker.log) - broker.borders[-1]
    step = remote_log_early.decide_early(
        ActiveSegment(base_offset=base, size_bytes=size * RECORD_BYTES),
        broker.facts(world.stable),
        broker.image,
        world.policy,
        None if begun is None else _facts(begun),
        part_bytes=PART_ROWS * RECORD_BYTES,
        now_ms=world.now_ms,
        ended_at=broker.upload_ended_at,
    )
    if isinstance(step, AbandonUpload):
        _end(broker)
    elif isinstance(step, BeginUpload):
        broker.upload = BegunUpload(world.new_segment_id(), base, broker.epoch, world.now_ms)
    elif step is not None:
        _send(world, broker, step.end_offset)


def _facts(begun: BegunUpload) -> EarlyUpload:
    return EarlyUpload(
        segment_id=begun.segment_id,
        base_offset=begun.base_offset,
        begun_ms=begun.begun_ms,
        sent_bytes=len(begun.rows) * RECORD_BYTES,
        checked_offset=begun.base_offset + len(begun.rows),
    )


def _send(world: "TierWorld", broker: SimBroker, end_offset: int) -> None:
    begun = broker.upload
    assert begun is not None
    if not world.is_fair and world.random.random() < world.profile.failures:
        _end(broker)
        return
    known = broker.facts(world.stable)
    if end_offset > min(known.high_watermark, known.last_stable_offset):
        raise Violation(f"TI1: records up to {end_offset} are sent, stable are those up to {known.last_stable_offset}")
    first = begun.base_offset + len(begun.rows)
    whole = (end_offset - first) // PART_ROWS * PART_ROWS
    begun.rows += broker.log[first : first + whole]
    world.early_parts += whole // PART_ROWS


def _end(broker: SimBroker) -> None:
    assert broker.upload is not None
    broker.upload_ended_at, broker.upload = broker.upload.base_offset, None


def _upload_of(world: "TierWorld", broker: SimBroker) -> BegunUpload | None:
    """Of this leadership: that of an earlier one has ended with it."""
    begun = broker.upload
    if begun is not None and begun.epoch != broker.epoch and not world.habits.keeps_uploads_over_leaderships:
        broker.upload = None
    return broker.upload


def take(world: "TierWorld", broker: SimBroker, base_offset: int) -> BegunUpload | None:
    """For the copy of a segment that was closed."""
    begun = _upload_of(world, broker)
    if begun is None or begun.base_offset != base_offset:
        return None
    broker.upload = None
    return begun


def completed(
    broker: SimBroker, begun: BegunUpload | None, rows: tuple[Row, ...], segment: RemoteSegment
) -> tuple[Row, ...]:
    """What the object has: the parts, and the rest of the segment."""
    if begun is None:
        return rows
    if segment.uploader_epoch == broker.epoch and tuple(begun.rows) != rows[: len(begun.rows)]:
        raise Violation(f"TI4: what was sent early of the segment at {segment.start_offset} is not in the log")
    if len(begun.rows) > len(rows):
        raise StoreFailed(f"the segment at {segment.start_offset} is shorter than what was sent")
    return (*begun.rows, *rows[len(begun.rows) :])
