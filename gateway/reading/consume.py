"""Consume: records of partitions, from a position, to the end or for ever.

For each leader of requested partitions there is one reader: a connection of its own, since a Fetch that waits for
records holds up what is behind it, and a task that fetches, cuts messages and puts them into a queue of two. A client
that stops reading stops the queue, and so the reader: what a stream holds is one Fetch response for each leader, and a
few messages. Partitions whose leader has moved go back to be read from the new one.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Final

import grpc

from trioka.protocol import errors
from trioka.protocol.errors import KafkaError

from ..failures import Refused
from ..kafka.cluster import FIRST_PAUSE_S, LATEST, MAX_PAUSE_S, STALE, Cluster, TopicMetadata
from ..v1 import log_pb2, types_pb2
from .fetch import GONE_S, FetchedPartition, fetch
from .messages import MessageBuilder
from .positions import check_consistency, chosen_partitions, isolation_of, rack_of, start_positions

DEFAULT_MESSAGE_BYTES: Final = 1024 * 1024
MIN_MESSAGE_BYTES: Final = 1024
FOLLOW_WAIT_MS: Final = 10_000  # a Fetch at the end of a partition; longer ones cost less and end later
END_WAIT_MS: Final = 500
QUEUED_MESSAGES: Final = 2
MAX_FETCH_BYTES: Final = 8 * 1024 * 1024
MAX_HELD_BYTES: Final = 24 * 1024 * 1024  # in the Fetch responses of all readers of a stream
RECREATED: Final = (errors.UnknownTopicId.code, errors.InconsistentTopicId.code)


class Consumption:
    """One Consume call. `drain` ends it at the next message."""

    def __init__(
        self,
        cluster: Cluster,
        request: log_pb2.ConsumeRequest,
        *,
        max_message_bytes: int,
        begin: Mapping[int, int] | None = None,
    ) -> None:
        """`begin` are positions of some partitions, which count instead of the request's start."""
        _check(request)
        self._cluster = cluster
        self._request = request
        self._isolation = isolation_of(request.consistency)
        self._rack = rack_of(cluster, request.consistency)
        wanted = request.max_bytes or DEFAULT_MESSAGE_BYTES
        self._fetch_bytes = max(MIN_MESSAGE_BYTES, min(wanted, max_message_bytes, MAX_FETCH_BYTES))
        self._builder = MessageBuilder(
            as_batches=request.encoding == types_pb2.ENCODING_BATCHES,
            max_bytes=self._fetch_bytes,
            max_message_bytes=max_message_bytes,
            limit=request.limit,
        )
        self._queue: asyncio.Queue[log_pb2.ConsumeResponse | BaseException | _Returned] = asyncio.Queue(QUEUED_MESSAGES)
        self._given = {} if begin is None else begin
        self._positions: dict[int, int] = {}
        self._ends: Mapping[int, int] | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._active = 0  # readers whose end the queue has not brought yet
        self._undelivered = 0  # messages that are made and not yet sent
        self._last_success = time.monotonic()
        self._empty_since: dict[int, float] = {}  # responses of partitions that ought to have records
        self._drained = asyncio.Event()

    def drain(self) -> None:
        self._drained.set()

    async def responses(self) -> AsyncGenerator[log_pb2.ConsumeResponse, None]:
        topic = await self._begin()
        drained = asyncio.create_task(self._drained.wait())
        pause = FIRST_PAUSE_S
        try:
            self._start_readers(topic, self._unfinished())
            while self._active and not (self._builder.is_full and not self._undelivered):
                item = await self._next(drained)
                if isinstance(item, log_pb2.ConsumeResponse):
                    pause = FIRST_PAUSE_S
                    self._undelivered -= 1
                    yield item
                    continue
                if isinstance(item, BaseException):
                    raise item
                self._active -= 1
                if item.partitions and not self._builder.is_full:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_PAUSE_S)
                    self._start_readers(await self._same_topic(topic), item.partitions)
        finally:
            drained.cancel()
            for reader in self._readers:
                reader.cancel()

    async def _begin(self) -> TopicMetadata:
        request = self._request
        topic = await self._cluster.topic(request.topic, fresh=True)
        await check_consistency(self._cluster, request.topic, request.consistency)
        partitions = chosen_partitions(topic, request.partitions)
        if not request.follow:
            self._ends = await self._cluster.list_offsets(request.topic, partitions, LATEST, isolation=self._isolation)
        self._positions = await start_positions(
            self._cluster, request.topic, partitions, request.start, self._isolation
        )
        self._positions |= {each: self._given[each] for each in partitions if each in self._given}
        return topic

    async def _next(self, drained: "asyncio.Task[bool]") -> "log_pb2.ConsumeResponse | BaseException | _Returned":
        if not self._drained.is_set():
            if not self._queue.empty():
                return self._queue.get_nowait()
            item = asyncio.create_task(self._queue.get())
            await asyncio.wait([item, drained], return_when=asyncio.FIRST_COMPLETED)
            if item.done():
                return item.result()
            item.cancel()
        raise Refused(
            grpc.StatusCode.UNAVAILABLE,
            "the gateway stops; go on at next_offset of the last message, at another gateway",
            retriable=True,
        )

    async def _same_topic(self, topic: TopicMetadata) -> TopicMetadata:
        async def attempt(fresh: bool) -> TopicMetadata:
            return await self._cluster.topic(topic.name, fresh=True)

        self._cluster.ask_another()  # what the last one has said of the leaders is stale
        found = await self._cluster.retrying(attempt)
        if found.topic_id != topic.topic_id:
            raise errors.UnknownTopicOrPartition(f"topic {topic.name!r} was deleted and created again")
        return found

    def _unfinished(self) -> list[int]:
        if self._ends is None:
            return sorted(self._positions)
        return [each for each in sorted(self._positions) if self._positions[each] < self._ends[each]]

    def _start_readers(self, topic: TopicMetadata, partitions: list[int]) -> None:
        by_node: dict[int, list[int]] = {}
        for partition in partitions:
            near = self._cluster.nearest(topic.name, partition) if self._rack else None
            by_node.setdefault(topic.leaders.get(partition, -1) if near is None else near, []).append(partition)
        readers = len(by_node) + self._active
        most = max(MIN_MESSAGE_BYTES, min(self._fetch_bytes, MAX_HELD_BYTES // max(1, readers)))
        for node, some in by_node.items():
            reader = asyncio.create_task(self._read(topic, node, some, most))
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
            self._active += 1

    async def _read(self, topic: TopicMetadata, node: int, partitions: list[int], max_bytes: int) -> None:
        """Read until all of these are finished, or some have to be read elsewhere; then all of these come back."""
        connection = None
        stale: errors.KafkaError | None = None
        must_move = False
        try:
            if node < 0:
                raise errors.LeaderNotAvailable(f"{topic.name}-{partitions[0]} has no leader at present")
            connection = await self._cluster.dedicated(node)
            while partitions and stale is None and not must_move and not self._builder.is_full:
                response = await fetch(
                    connection,
                    topic,
                    {each: self._positions[each] for each in partitions},
                    isolation=self._isolation,
                    max_wait_ms=FOLLOW_WAIT_MS if self._ends is None else END_WAIT_MS,
                    max_bytes=max_bytes,
                    timeout_s=self._cluster.timeout_s,
                    rack=self._rack,
                )
                served = {each.partition for each in response if each.data}
                for fetched in response:
                    if fetched.preferred_replica >= 0:
                        continue  # no records, wherever the end is
                    if fetched.error is None:
                        await self._put(fetched, is_response_empty=not served)
                    elif fetched.error.code in STALE or self._is_near(topic, node, fetched.partition):
                        stale = fetched.error
                    else:
                        raise self._explained(fetched.error, fetched.partition)
                must_move = self._must_move(topic, node, response)
                # The broker fills a response in the order of the request: those that got something wait for the others.
                unfinished = set(self._unfinished())
                partitions = sorted((each for each in partitions if each in unfinished), key=served.__contains__)
        except KafkaError as error:
            if error.code not in STALE and not any(self._is_near(topic, node, each) for each in partitions):
                await self._queue.put(error)
                return
            stale = error
        except Exception as error:
            await self._queue.put(error)
            return
        finally:
            if connection is not None:
                connection.abort()
        if stale is not None:
            self._cluster.forget_nearest(topic.name, partitions)
        if stale is not None and time.monotonic() - self._last_success > self._cluster.timeout_s:
            await self._queue.put(stale)
        else:
            await self._queue.put(_Returned(partitions if stale is not None or must_move else []))

    def _is_near(self, topic: TopicMetadata, node: int, partition: int) -> bool:
        """Whether the partition is read from a follower in the gateway's rack, whose errors lead to the leader."""
        return bool(self._rack) and topic.leaders.get(partition) != node

    def _must_move(self, topic: TopicMetadata, node: int, response: Iterable[FetchedPartition]) -> bool:
        """Whether a partition is read elsewhere from now on: the leader has named a replica, or has to do so again."""
        must_move = False
        for fetched in response:
            if fetched.preferred_replica >= 0:
                self._cluster.use_nearest(topic.name, fetched.partition, fetched.preferred_replica)
                must_move = True
            elif self._is_near(topic, node, fetched.partition):
                must_move = must_move or self._cluster.nearest(topic.name, fetched.partition) is None
        return must_move

    def _explained(self, error: KafkaError, partition: int) -> KafkaError:
        topic = self._request.topic
        if error.code in RECREATED:
            return errors.UnknownTopicOrPartition(f"topic {topic!r} was deleted, or created again")
        if isinstance(error, errors.OffsetOutOfRange):
            return errors.OffsetOutOfRange(
                f"{topic}-{partition} has no offset {self._positions[partition]}: it is below the first one that is "
                "left, or above the end"
            )
        return error

    async def _put(self, fetched: FetchedPartition, *, is_response_empty: bool) -> None:
        self._last_success = time.monotonic()
        partition = fetched.partition
        end = None if self._ends is None else self._ends[partition]
        begin = self._positions[partition]
        for message, position in self._builder.messages(fetched, begin, end):
            self._positions[partition] = position
            if message is not None:
                self._undelivered += 1
                await self._queue.put(message)
            if self._builder.is_full:
                return
        if end is None or not is_response_empty or fetched.high_watermark < end:
            self._empty_since.pop(partition, None)
        elif time.monotonic() - self._empty_since.setdefault(partition, time.monotonic()) > GONE_S:
            self._positions[partition] = end  # what was there is gone, by compaction: nothing more can come


class _Returned:
    """A reader has ended; these partitions are to be read from their new leaders."""

    def __init__(self, partitions: list[int]) -> None:
        self.partitions = partitions


def _check(request: log_pb2.ConsumeRequest) -> None:
    code = grpc.StatusCode.INVALID_ARGUMENT
    if not request.topic:
        raise Refused(code, "topic is empty")
    if request.encoding not in types_pb2.Encoding.values():
        raise Refused(code, f"there is no encoding {request.encoding}")
    if request.limit < 0:
        raise Refused(code, f"limit {request.limit} is below 0")
    if request.max_bytes < 0:
        raise Refused(code, f"max_bytes {request.max_bytes} is below 0")
