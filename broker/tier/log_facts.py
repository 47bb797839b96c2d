"""A log as decisions about the object store see it (cluster/remote_log_plan.py), and what they change in it."""

from itertools import pairwise
from typing import TYPE_CHECKING

from trioka.cluster.remote_log_metadata import lineage_of
from trioka.cluster.remote_log_plan import NEVER, LocalSegment, LogFacts, Policy
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.log import Log

from ..replication.partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker


def id_of(replica: Replica) -> TopicIdPartition:
    return TopicIdPartition(replica.topic_id, replica.topic, replica.index)


def facts_of(replica: Replica) -> LogFacts:
    """May read indexes of segments that were not used since the start."""
    log = replica.log
    segments = log.segments
    closed = []
    for segment, following in pairwise(segments):
        newest_ms = log.query(segment, lambda segment: segment.largest_timestamp()[0])
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
        replicated_log_start_offset=replicated_log_start(replica),
        local_start_offset=log.local_log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        segments=tuple(segment for segment in closed if segment.size_bytes),
        active_size_bytes=segments.active.size,
    )


def replicated_log_start(replica: Replica) -> int:
    """The lowest log start of the leader and its followers, as of their last fetches."""
    leadership, start = replica.leadership, replica.log.log_start_offset
    return start if leadership is None else leadership.low_watermark(start)


def policy_of(log: Log, *, deletes_all: bool) -> Policy:
    config = log.config
    return Policy(
        copies=config.remote_storage and not config.remote_copy_disable,
        deletes_all=deletes_all,
        retention_ms=config.retention_ms if config.deletes else NEVER,
        retention_bytes=config.retention_bytes if config.deletes else NEVER,
    )


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
