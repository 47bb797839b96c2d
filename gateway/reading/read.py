"""Read: one record, by its offset, by time, or the latest of a key.

A Fetch with a limit of one byte brings exactly one batch. Kafka has no index of keys: the latest record of a key is
searched for backwards, in ranges of offsets that double, up to `MAX_SCAN_BYTES`.
"""

import asyncio
import time
from typing import Final

import grpc

from trioka.protocol import errors
from trioka.protocol.partitioner import partition_of
from trioka.protocol.record import Record

from ..failures import Refused
from ..kafka.cluster import EARLIEST, LATEST, Cluster, TopicMetadata
from ..v1 import log_pb2
from .batches import records_from, seen_batches
from .fetch import GONE_S, FetchedPartition, fetch
from .messages import record_message
from .positions import check_consistency, isolation_of, rack_of

ONE_BATCH_BYTES: Final = 1
SCAN_FETCH_BYTES: Final = 1024 * 1024
MAX_SCAN_BYTES: Final = 64 * 1024 * 1024
FIRST_RANGE: Final = 512  # offsets
MAX_RANGE: Final = 64 * 1024
EMPTY_PAUSE_S: Final = 0.1


class Reading:
    """One Read call."""

    def __init__(self, cluster: Cluster, request: log_pb2.ReadRequest) -> None:
        self._cluster = cluster
        self._request = request
        self._isolation = isolation_of(request.consistency)
        self._rack = rack_of(cluster, request.consistency)
        self._partition = 0
        self._scanned_bytes = 0

    async def response(self) -> log_pb2.ReadResponse:
        request = self._request
        kind = request.WhichOneof("what")
        if not request.topic or kind is None:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT, "a Read names a topic, and offset, timestamp_ms or latest_of_key"
            )
        if (kind == "offset" and request.offset < 0) or (kind == "timestamp_ms" and request.timestamp_ms < 0):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{kind} is below 0")
        await check_consistency(self._cluster, request.topic, request.consistency)
        self._partition = await self._chosen_partition()
        if kind == "latest_of_key":
            record, high_watermark = await self._latest_of_key(request.latest_of_key)
        elif kind == "timestamp_ms":
            record, high_watermark = await self._at_time(request.timestamp_ms)
        else:
            record, high_watermark = await self._at_offset(request.offset)
        return log_pb2.ReadResponse(
            record=record_message(record), partition=self._partition, high_watermark=high_watermark
        )

    async def _chosen_partition(self) -> int:
        request = self._request
        if request.HasField("partition"):
            return request.partition
        leaders = (await self._cluster.topic(request.topic)).leaders
        if len(leaders) == 1:
            return 0
        if request.HasField("latest_of_key"):
            return partition_of(request.latest_of_key, len(leaders))
        raise Refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"topic {request.topic!r} has {len(leaders)} partitions; name one",
        )

    async def _fetch(self, position: int, max_bytes: int) -> FetchedPartition:
        """Without records only at the end, or behind what compaction has removed there: a broker whose object store is
        slow answers with nothing, too."""
        fetched = await self._fetch_once(position, max_bytes)
        deadline = time.monotonic() + GONE_S
        while not fetched.data and position < fetched.visible_end and time.monotonic() < deadline:
            await asyncio.sleep(EMPTY_PAUSE_S)
            fetched = await self._fetch_once(position, max_bytes)
        return fetched

    async def _fetch_once(self, position: int, max_bytes: int) -> FetchedPartition:
        async def attempt(fresh: bool) -> FetchedPartition:
            leader = await self._cluster.leader(self._request.topic, self._partition, fresh=fresh)
            topic = await self._cluster.topic(self._request.topic)
            if self._rack:
                fetched = await self._fetch_near(topic, position, max_bytes, leader)
                if fetched is not None:
                    return fetched
            return await self._fetch_from(leader, topic, position, max_bytes)

        return await self._cluster.retrying(attempt)

    async def _fetch_near(
        self, topic: TopicMetadata, position: int, max_bytes: int, leader: int
    ) -> FetchedPartition | None:
        """From the replica in the gateway's rack, or from the leader if it names none. None if that replica does not
        have it."""
        cluster, partition = self._cluster, self._partition
        node = cluster.nearest(topic.name, partition)
        if node is None:
            fetched = await self._fetch_from(leader, topic, position, max_bytes, rack=self._rack)
            if fetched.preferred_replica < 0:
                return fetched
            node = fetched.preferred_replica
            cluster.use_nearest(topic.name, partition, node)
        try:
            fetched = await self._fetch_from(node, topic, position, max_bytes, rack=self._rack)
        except errors.KafkaError:
            cluster.forget_nearest(topic.name, [partition])
            return None
        return fetched if fetched.data else None

    async def _fetch_from(
        self, node: int, topic: TopicMetadata, position: int, max_bytes: int, *, rack: str = ""
    ) -> FetchedPartition:
        connection = await self._cluster.connection(node)
        try:
            (fetched,) = await fetch(
                connection,
                topic,
                {self._partition: position},
                isolation=self._isolation,
                max_wait_ms=0,
                max_bytes=max_bytes,
                timeout_s=self._cluster.timeout_s,
                rack=rack,
            )
            if fetched.error is not None:
                raise fetched.error
        except (errors.UnknownTopicId, errors.InconsistentTopicId):
            # The topic was created again since its metadata was requested.
            raise errors.NotLeaderOrFollower(f"the metadata of topic {topic.name!r} is stale") from None
        return fetched

    async def _at_offset(self, offset: int) -> tuple[Record, int]:
        try:
            fetched = await self._fetch(offset, ONE_BATCH_BYTES)
        except errors.OffsetOutOfRange:
            raise errors.OffsetOutOfRange(
                f"{self._request.topic}-{self._partition} has no offset {offset}: it is below the first one that is "
                "left, or above the end"
            ) from None
        for header, visible in seen_batches(fetched.data, offset, fetched.aborted):
            if visible and header.base_offset <= offset:
                for record in records_from(fetched.data, header, offset, offset + 1):
                    return record, fetched.high_watermark
            if header.last_offset >= offset:
                raise self._not_found(
                    f"has no record at offset {offset}: it was compacted away, aborted, or is a marker"
                )
        raise errors.OffsetOutOfRange(f"{self._request.topic}-{self._partition} ends before offset {offset}")

    async def _at_time(self, timestamp_ms: int) -> tuple[Record, int]:
        topic = self._request.topic
        # The end first: with linearizable reads, this is the request that waits for the barrier.
        ends = await self._cluster.list_offsets(topic, [self._partition], LATEST, isolation=self._isolation)
        found = await self._cluster.list_offsets(topic, [self._partition], timestamp_ms, isolation=self._isolation)
        offset, end = found[self._partition], ends[self._partition]
        while 0 <= offset < end:
            fetched = await self._fetch(offset, ONE_BATCH_BYTES)
            behind = offset
            for header, visible in seen_batches(fetched.data, offset, fetched.aborted):
                if visible:
                    for record in records_from(fetched.data, header, offset, None):
                        if record.timestamp >= timestamp_ms:
                            return record, fetched.high_watermark
                behind = header.next_offset
            if behind == offset:
                break
            offset = behind
        raise self._not_found(f"has no record at or after timestamp {timestamp_ms}")

    async def _latest_of_key(self, key: bytes) -> tuple[Record, int]:
        topic, partition = self._request.topic, self._partition
        high = (await self._cluster.list_offsets(topic, [partition], LATEST, isolation=self._isolation))[partition]
        low = (await self._cluster.list_offsets(topic, [partition], EARLIEST))[partition]
        size = FIRST_RANGE
        while high > low:
            begin = max(low, high - size)
            record, high_watermark = await self._last_with_key(key, begin, high)
            if record is not None:
                return record, high_watermark
            high, size = begin, min(2 * size, MAX_RANGE)
        raise self._not_found("has no record with this key")

    async def _last_with_key(self, key: bytes, begin: int, end: int) -> tuple[Record | None, int]:
        """The last record of the key from offset `begin` on and before `end`."""
        found: Record | None = None
        high_watermark = -1
        while begin < end:
            try:
                fetched = await self._fetch(begin, SCAN_FETCH_BYTES)
            except errors.OffsetOutOfRange:
                return found, high_watermark  # retention has removed the range in the meantime
            high_watermark, behind = fetched.high_watermark, begin
            for header, visible in seen_batches(fetched.data, begin, fetched.aborted):
                if header.base_offset >= end:
                    return found, high_watermark
                self._scanned_bytes += header.size
                if self._scanned_bytes > MAX_SCAN_BYTES:
                    raise Refused(
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        f"the key is not among the last {MAX_SCAN_BYTES // (1024 * 1024)} MiB of "
                        f"{self._request.topic}-{self._partition}, and a Read searches no further; use Consume",
                    )
                if visible:
                    for record in records_from(fetched.data, header, begin, end):
                        if record.key == key:
                            found = record
                behind = header.next_offset
            if behind == begin:
                return found, high_watermark
            begin = behind
        return found, high_watermark

    def _not_found(self, what: str) -> Refused:
        return Refused(grpc.StatusCode.NOT_FOUND, f"{self._request.topic}-{self._partition} {what}")
