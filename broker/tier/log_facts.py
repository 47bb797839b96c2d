"""A log as decisions about the object store see it (cluster/remote_log_plan.py), and what they change in it."""

from typing import TYPE_CHECKING

from trioka.cluster.remote_log_metadata import lineage_of
from trioka.cluster.remote_log_plan import LocalSegment, LogFacts
from trioka.storage.log import Log
from trioka.storage.tiered_log import delete_local_segments

from ..replication.partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker


def facts_of(log: Log) -> LogFacts:
    """May read indexes of segments that were not used since the start."""
    segments = log.segments
    closed = []
    for segment, following in zip(segments, segments[1:], strict=False):
        newest_ms = log.ask(segment, lambda segment: segment.largest_timestamp()[0])
        closed.append(
            LocalSegment(
                base_offset=segment.base_offset,
                next_offset=following.base_offset,
                size_bytes=segment.size,
                max_timestamp_ms=newest_ms if newest_ms >= 0 else segment.created_ms,
            )
        )
    return LogFacts(
        lineage=lineage_of(log),
        log_start_offset=log.log_start_offset,
        local_start_offset=log.local_log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        segments=tuple(segment for segment in closed if segment.size_bytes),
        active_size_bytes=segments.active.size,
    )


def delete_local(log: Log, offset: int, *, now_ms: int) -> None:
    """Deletes the segments that end at or before the offset. The log start stays."""
    segments = log.segments
    gone = [each for each, following in zip(segments, segments[1:], strict=False) if following.base_offset <= offset]
    delete_local_segments(log, gone, now_ms=now_ms)


def move_log_start(broker: "Broker", replica: Replica, offset: int) -> None:
    """As DeleteRecords does it: the checkpoint first, so that a restart does not go back to what is being deleted."""
    replica.log.delete_records_before(offset)
    if replica.log.keep is not None:
        replica.log.keep(replica.log)
    broker.purgatory.notify(replica)


def has_no_aborted(log: Log, base_offset: int) -> bool:
    """Whether no transaction was aborted by a marker in this segment."""
    log.aborted_transactions(base_offset, base_offset + 1)  # checks the transaction index before it is trusted
    return not len(log.segments[log.segments.number_for(base_offset)].txn_index)
