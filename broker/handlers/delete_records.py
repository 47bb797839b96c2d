"""DeleteRecords (21): moves the log start offset of partitions forward; -1 means the high watermark.

Consumers no longer see the records at once, and the new log start offset is on disk before the response is sent.
Retention frees the space later. Logs that are only compacted are refused: their readers must find every key.

The response waits until the live followers have reported the new log start offset with their fetches. If that takes
longer than the request's timeout, the error is REQUEST_TIMED_OUT and the outcome is unknown.
"""

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.topics import BROKER_TOPICS
from trioka.cluster.replication.purgatory import DelayedOperation
from trioka.protocol.errors import (
    InvalidTopic,
    KafkaError,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from trioka.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from trioka.storage.log import Log

from ..api import handles
from ..replication.partitions import Replica
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.partitions")

PartitionResult = DeleteRecordsResponse.Topic.Partition

HIGH_WATERMARK: Final = -1
UNKNOWN: Final = -1


def error_response(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsResponse.Topic(
                name=topic.name, partitions=[_error_result(p.partition_index, error) for p in topic.partitions]
            )
            for topic in request.topics
        ],
    )


@handles(DeleteRecordsRequest, error_response=error_response)
async def delete_records(broker: "Broker", call: "Call", request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    moved: list[Replica] = []
    waiting: list[tuple[Replica, int, PartitionResult]] = []
    results: dict[str, dict[int, PartitionResult]] = {}
    allowed = broker.guard.allowed(call, AclOperation.DELETE, TOPIC, [topic.name for topic in request.topics])
    for topic in request.topics:
        topic_results = results.setdefault(topic.name, {})
        # If a partition is listed twice, the last offset applies.
        for index, offset in {p.partition_index: p.offset for p in topic.partitions}.items():
            try:
                if topic.name not in allowed:
                    raise TopicAuthorizationFailed()
                replica = broker.partitions.get(topic.name, index)
                before = replica.log.log_start_offset
                _delete(replica, offset)
            except KafkaError as error:
                topic_results[index] = _error_result(index, error)
                continue
            if replica.log.log_start_offset != before:
                moved.append(replica)
            start = replica.log.log_start_offset
            topic_results[index] = PartitionResult(partition_index=index, low_watermark=start, error_code=0)
            waiting.append((replica, start, topic_results[index]))
    if moved:
        await trio.to_thread.run_sync(_checkpoint, [replica.log for replica in moved])
        for replica in moved:
            broker.purgatory.notify(replica)
    await _wait_deleted(broker, waiting, request.timeout_ms)
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsResponse.Topic(name=name, partitions=list(partitions.values()))
            for name, partitions in results.items()
        ],
    )


def _delete(replica: Replica, offset: int) -> None:
    if replica.topic in BROKER_TOPICS:
        raise InvalidTopic(f"records of the internal topic {replica.topic} cannot be deleted")
    replica.require_leader()
    log = replica.log
    if log.config.cleanup_policy == {"compact"}:
        raise PolicyViolation(f"records of {replica.topic} cannot be deleted: its cleanup.policy is compact")
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise OffsetOutOfRange(f"offset {offset} is negative")
    log.delete_records_before(offset)


async def _wait_deleted(broker: "Broker", waiting: list[tuple[Replica, int, PartitionResult]], timeout_ms: int) -> None:
    done = trio.Event()
    parked = _ParkedDeletion(waiting, done)
    if not parked.try_complete(None):
        broker.park(parked, {replica for replica, _, _ in waiting}, broker.clock.now() + max(timeout_ms, 0) / 1000)
        await done.wait()


class _ParkedDeletion(DelayedOperation):
    """Waits until no live replica has the deleted records."""

    __slots__ = ("_done", "_waiting")

    def __init__(self, waiting: list[tuple[Replica, int, PartitionResult]], done: trio.Event) -> None:
        super().__init__()
        self._waiting = waiting
        self._done = done

    def try_complete(self, key: Hashable) -> bool:
        self._waiting = [item for item in self._waiting if not _is_deleted(*item)]
        if self._waiting:
            return False
        self._done.set()
        return True

    def expire(self) -> None:
        self._give_up(RequestTimedOut.code)

    def fail(self, mistake: Exception) -> None:
        log.error("internal error in DeleteRecords", exc_info=mistake)
        self._give_up(UnknownServerError.code)

    def _give_up(self, code: int) -> None:
        for _, _, result in self._waiting:
            result.error_code, result.low_watermark = code, UNKNOWN  # type: ignore[misc]
        self._done.set()


def _is_deleted(replica: Replica, start: int, result: PartitionResult) -> bool:
    """Whether the outcome for a partition is known; if so, it is written to its result."""
    try:
        replica.require_leader()
    except KafkaError as error:
        result.error_code, result.low_watermark = error.code, UNKNOWN  # type: ignore[misc]
        return True
    leadership = replica.leadership
    lowest = start if leadership is None else leadership.low_watermark(replica.log.log_start_offset)
    if lowest < start:
        return False
    result.low_watermark = lowest  # type: ignore[misc]
    return True


def _checkpoint(logs: list[Log]) -> None:
    """Write the checkpoints of log start offsets, in a worker thread. A checkpoint file covers a whole log directory,
    so that one log of each directory is enough. Logs that were deleted meanwhile are skipped."""
    for keep, log in {log.keep: log for log in logs if not log.closed}.items():
        if keep is not None:
            keep(log)


def _error_result(index: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition_index=index, low_watermark=UNKNOWN, error_code=error.code)
