"""One Fetch request to one leader, and its response by partition."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from trioka.protocol import errors
from trioka.protocol.errors import NONE, error_class
from trioka.protocol.messages.fetch import FetchRequest

from ..kafka.cluster import CONSUMER, READ_COMMITTED, TopicMetadata
from ..kafka.connection import Connection
from .batches import Aborted

GONE_S: Final = 5.0  # responses without records that ought to have some: they are gone, and nothing is slow
BY_ID: Final = 13  # the first version that names topics by id
EMPTY: Final = memoryview(b"")


class FetchedPartition(NamedTuple):
    partition: int
    error: errors.KafkaError | None
    high_watermark: int
    log_start_offset: int
    data: memoryview
    aborted: Sequence[Aborted] | None  # None for read_uncommitted
    preferred_replica: int  # where a reader of this rack reads on; -1 for here
    visible_end: int  # the high watermark, or for read_committed the last stable offset


async def fetch(
    connection: Connection,
    topic: TopicMetadata,
    positions: Mapping[int, int],
    *,
    isolation: int,
    max_wait_ms: int,
    max_bytes: int,
    timeout_s: float,
    rack: str = "",
) -> list[FetchedPartition]:
    """The broker waits for records up to `max_wait_ms`. A first batch above `max_bytes` comes whole. With a rack, a
    leader may name a replica there instead of records."""
    kind = FetchRequest.Topic
    partitions = [
        kind.Partition(partition=each, fetch_offset=position, partition_max_bytes=max_bytes)
        for each, position in positions.items()
    ]
    version = connection.version_of(FetchRequest, BY_ID)
    named = kind(topic_id=topic.topic_id, partitions=partitions)
    if version < BY_ID:
        named = kind(topic=topic.name, partitions=partitions)
    request = FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        rack_id=rack,
        topics=[named],
    )
    response = await connection.request(request, timeout_s=timeout_s + max_wait_ms / 1000, version=version)
    if response.error_code != NONE:
        raise error_class(response.error_code)(f"topic {topic.name!r} cannot be fetched")
    return [_partition(topic, each, isolation) for answer in response.responses for each in answer.partitions]


def _partition(topic: TopicMetadata, answer: Any, isolation: int) -> FetchedPartition:
    error = None
    if answer.error_code != NONE:
        error = error_class(answer.error_code)(
            f"{topic.name}-{answer.partition_index}: {error_class(answer.error_code)()!s}"
        )
    aborted = None
    if isolation == READ_COMMITTED:
        aborted = [Aborted(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
    data = answer.records
    visible_end = answer.last_stable_offset if isolation == READ_COMMITTED else answer.high_watermark
    return FetchedPartition(
        answer.partition_index,
        error,
        answer.high_watermark,
        answer.log_start_offset,
        EMPTY if data is None else memoryview(data),
        aborted,
        answer.preferred_read_replica,
        visible_end,
    )
