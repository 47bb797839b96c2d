"""DeleteRecords (21): what lies before an offset is gone, and the log starts there; -1 is the high watermark.

It is gone at once for readers and for good: the log's new start is on disk before the answer is sent. The space comes
back when retention next looks. A log that is only compacted keeps its records: a reader of one must find every key.
"""

from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.topics import INTERNAL_TOPICS
from trioka.protocol.errors import InvalidTopic, KafkaError, OffsetOutOfRange, PolicyViolation
from trioka.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from trioka.storage.log import Log

from ..partitions import Replica
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

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
    told: dict[str, dict[int, Told]] = {}
    for topic in request.topics:
        of_topic = told.setdefault(topic.name, {})
        # A partition that is named twice is cut once, where it is named last.
        for index, offset in {asked.partition_index: asked.offset for asked in topic.partitions}.items():
            try:
                replica = broker.partitions.get(topic.name, index)
                before = replica.log.log_start_offset
                _delete(replica, offset)
            except KafkaError as error:
                of_topic[index] = _refused(index, error)
                continue
            if replica.log.log_start_offset != before:
                moved.append(replica)
            of_topic[index] = Told(partition_index=index, low_watermark=replica.log.log_start_offset, error_code=0)
    if moved:
        await trio.to_thread.run_sync(_keep, [replica.log for replica in moved])
        for replica in moved:
            broker.delayed.touch(replica)
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


def _keep(logs: list[Log]) -> None:
    """In a worker thread. The files are those of a whole directory, so that one log of each speaks for the others. One
    that was deleted meanwhile has nothing to keep."""
    for keep, log in {log.keep: log for log in logs if not log.closed}.items():
        if keep is not None:
            keep(log)


def _refused(index: int, error: KafkaError) -> Told:
    return Told(partition_index=index, low_watermark=UNKNOWN, error_code=error.code)
