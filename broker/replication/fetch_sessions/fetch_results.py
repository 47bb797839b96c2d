"""Results of a Fetch for one partition: without records, with an error, or where a follower's log diverges; and the
whole response for an error."""

from typing import Final

from trioka.protocol.errors import (
    KafkaError,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.storage.log import Log

from .cache import CachedPartition

Result = FetchResponse.Topic.Partition

BEFORE_THE_LOG: Final = (TopicAuthorizationFailed, UnknownTopicId, UnknownTopicOrPartition)

# Shared by most results: creating three objects for each partition would cost more than the rest of the result.
NO_DIVERGENCE: Final = Result.DivergingEpoch()
NO_CURRENT_LEADER: Final = Result.CurrentLeader()
NO_SNAPSHOT: Final = Result.SnapshotId()


def error_response(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """Errors are reported per partition before v13, and never for topics given by id."""
    return FetchResponse(
        throttle_time_ms=0,
        error_code=error.code,
        responses=[
            FetchResponse.Topic(
                topic=topic.topic,
                partitions=[
                    Result(
                        partition_index=cached.partition,
                        error_code=error.code,
                        high_watermark=-1,
                        aborted_transactions=[],
                        records=b"",
                    )
                    for cached in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.topic
        ],
    )


def divergence(log: Log, cached: CachedPartition) -> Result.DivergingEpoch | None:
    """The point at which the follower's log diverges from this one; None if it does not (I8)."""
    epoch, end = log.end_offset_for_epoch(cached.last_fetched_epoch)
    if epoch < 0 or end < 0:
        raise OffsetOutOfRange(f"no epoch up to {cached.last_fetched_epoch} is known")
    if cached.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(f"{cached.fetch_offset}; the log starts at {log.log_start_offset}")
    if epoch < cached.last_fetched_epoch or end < cached.fetch_offset:
        return Result.DivergingEpoch(epoch=epoch, end_offset=end)
    return None


def empty_result(cached: CachedPartition, log: Log, diverging: Result.DivergingEpoch | None = None) -> Result:
    return Result(
        partition_index=cached.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=NO_DIVERGENCE if diverging is None else diverging,
        current_leader=NO_CURRENT_LEADER,
        snapshot_id=NO_SNAPSHOT,
        aborted_transactions=None,
        records=b"",
    )


def failed_result(cached: CachedPartition, error: KafkaError) -> Result:
    return Result(
        partition_index=cached.partition,
        error_code=error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if isinstance(error, BEFORE_THE_LOG) else None,
        records=b"",
    )
