"""DeleteRecords (21): what lies before an offset is gone, and the log starts there; -1 is the high watermark.

It is gone at once for readers and for good: the log's new start is on disk before the answer is sent. The space comes
back when retention next looks. A log that is only compacted keeps its records: a reader of one must find every key.

Where there are followers it is gone when the logs of all that are alive start there: they tell with their fetches. If
that takes longer than the client waits, nobody knows when it will be.
"""

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.acls import Operation
from trioka.cluster.purgatory import Waiter
from trioka.cluster.topics import INTERNAL_TOPICS
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

Told = DeleteRecordsResponse.Topic.Partition

HIGH_WATERMARK: Final = -1
UNKNOWN: Final = -1


def refuse(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsResponse.Topic(
                name=topic.name, partitions=[_refused(asked.partition_index, error) for asked in topic.partitions]
            )
            for topic in request.topics
        ],
    )


@handles(DeleteRecordsRequest, refuse=refuse)
async def delete_records(broker: "Broker", call: "Call", request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    moved: list[Replica] = []
    waiting: list[tuple[Replica, int, Told]] = []
    told: dict[str, dict[int, Told]] = {}
    allowed = broker.guard.allowed(call, Operation.DELETE, TOPIC, [topic.name for topic in request.topics])
    for topic in request.topics:
        of_topic = told.setdefault(topic.name, {})
        # A partition that is named twice is cut once, where it is named last.
        for index, offset in {asked.partition_index: asked.offset for asked in topic.partitions}.items():
            try:
                if topic.name not in allowed:
                    raise TopicAuthorizationFailed()
                replica = broker.partitions.get(topic.name, index)
                before = replica.log.log_start_offset
                _delete(replica, offset)
            except KafkaError as error:
                of_topic[index] = _refused(index, error)
                continue
            if replica.log.log_start_offset != before:
                moved.append(replica)
            start = replica.log.log_start_offset
            of_topic[index] = Told(partition_index=index, low_watermark=start, error_code=0)
            waiting.append((replica, start, of_topic[index]))
    if moved:
        await trio.to_thread.run_sync(_keep, [replica.log for replica in moved])
        for replica in moved:
            broker.delayed.touch(replica)
    await _gone_everywhere(broker, waiting, request.timeout_ms)
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsResponse.Topic(name=name, partitions=list(partitions.values()))
            for name, partitions in told.items()
        ],
    )


def _delete(replica: Replica, offset: int) -> None:
    if replica.topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{replica.topic} is the brokers' own")
    replica.must_lead()
    log = replica.log
    if log.config.cleanup_policy == {"compact"}:
        raise PolicyViolation(f"{replica.topic} is compacted, and nothing of it is deleted otherwise")
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise OffsetOutOfRange(f"{offset} is no offset")
    log.delete_records_before(offset)


async def _gone_everywhere(broker: "Broker", waiting: list[tuple[Replica, int, Told]], timeout_ms: int) -> None:
    is_there = trio.Event()
    parked = _ParkedDeletion(waiting, is_there)
    if not parked.look(None):
        broker.park(parked, {replica for replica, _, _ in waiting}, broker.clock.now() + max(timeout_ms, 0) / 1000)
        await is_there.wait()


class _ParkedDeletion(Waiter):
    """Waits until no replica that is alive has what was deleted."""

    __slots__ = ("_is_there", "_waiting")

    def __init__(self, waiting: list[tuple[Replica, int, Told]], is_there: trio.Event) -> None:
        super().__init__()
        self._waiting = waiting
        self._is_there = is_there

    def look(self, key: Hashable) -> bool:
        self._waiting = [each for each in self._waiting if not _is_gone(*each)]
        if self._waiting:
            return False
        self._is_there.set()
        return True

    def expire(self) -> None:
        self._give_up(RequestTimedOut.code)

    def fail(self, mistake: Exception) -> None:
        log.error("a mistake of ours: DeleteRecords", exc_info=mistake)
        self._give_up(UnknownServerError.code)

    def _give_up(self, code: int) -> None:
        for _, _, told in self._waiting:
            told.error_code, told.low_watermark = code, UNKNOWN  # type: ignore[misc]
        self._is_there.set()


def _is_gone(replica: Replica, start: int, told: Told) -> bool:
    """Whether it is known what became of it, which its answer says then."""
    try:
        replica.must_lead()
    except KafkaError as error:
        told.error_code, told.low_watermark = error.code, UNKNOWN  # type: ignore[misc]
        return True
    leadership = replica.leadership
    lowest = start if leadership is None else leadership.low_watermark(replica.log.log_start_offset)
    if lowest < start:
        return False
    told.low_watermark = lowest  # type: ignore[misc]
    return True


def _keep(logs: list[Log]) -> None:
    """In a worker thread. The files are those of a whole directory, so that one log of each speaks for the others. One
    that was deleted meanwhile has nothing to keep."""
    for keep, log in {log.keep: log for log in logs if not log.closed}.items():
        if keep is not None:
            keep(log)


def _refused(index: int, error: KafkaError) -> Told:
    return Told(partition_index=index, low_watermark=UNKNOWN, error_code=error.code)
