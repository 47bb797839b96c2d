"""A ProduceRequest from its checks to its answer: the same for a unary call and for a request of a stream."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import grpc

from trioka.protocol import errors
from trioka.protocol.batch import BatchHeader

from ..clients import CallerClients
from ..failures import Refused
from ..process.metrics import Metrics
from ..v1 import log_pb2
from .outcome import Outcome
from .raw_batches import checked_batches, write_batches
from .sequences import StreamOrder

INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT


class UnwrittenBytes:
    """The bytes of requests of all callers that are not yet written, and their limit."""

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit = limit
        self._used = 0
        metrics.unwritten_bytes.set_function(lambda: self._used)

    def take(self, size_bytes: int) -> None:
        if self._used + size_bytes > self._limit:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._used} bytes wait to be written (produce.max.unwritten.bytes); try again later",
                retriable=True,
            )
        self._used += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._used -= size_bytes


class ProduceRequests:
    """Of one unary call or one stream: requests begin in the order of calls, and their answers may be awaited later."""

    def __init__(
        self,
        clients: CallerClients,
        metrics: Metrics,
        unwritten: UnwrittenBytes,
        *,
        max_records: int,
        order: StreamOrder | None = None,
    ) -> None:
        self._clients = clients
        self._unwritten = unwritten
        self._metrics = metrics
        self._max_records = max_records
        self._order = order
        self._batches = asyncio.Lock()  # batches of a stream are written one after the other

    async def begin(self, request: log_pb2.ProduceRequest) -> Coroutine[Any, Any, log_pb2.ProduceResponse]:
        """Check the request and queue its records; the result waits for their answer. Raises Refused or KafkaError."""
        _check(request, self._max_records)
        partition = request.partition if request.HasField("partition") else None
        await self._check_topic(request.topic, partition)
        size_bytes = request.ByteSize()
        self._unwritten.take(size_bytes)
        try:
            writing = self._begin_writing(request, partition)
        except BaseException:
            self._unwritten.give_back(size_bytes)
            raise

        def written(ended: "asyncio.Future[Outcome]") -> None:
            self._unwritten.give_back(size_bytes)
            if not ended.cancelled():
                ended.exception()  # a caller that has gone does not fetch it

        writing.add_done_callback(written)
        return self._response(request, writing)

    def _begin_writing(self, request: log_pb2.ProduceRequest, partition: int | None) -> "asyncio.Future[Outcome]":
        if request.batches:
            return asyncio.create_task(self._write_batches(request, checked_batches(request.batches)))
        if request.HasField("producer"):
            name, sequence = request.producer.name, request.producer.sequence
            producer = self._clients.named.get(name, sequence)
            return producer.add(sequence, request.topic, partition, request.records, self._order)
        return self._clients.writer(request.acks).write(request.topic, partition, request.records)

    async def _check_topic(self, topic: str, partition: int | None) -> None:
        """librdkafka would look for an unknown topic until its time limit."""
        cluster = self._clients.cluster
        found = await cluster.topic(topic)
        if partition is not None and partition not in found.leaders:
            await cluster.leader(topic, partition, fresh=True)

    async def _write_batches(self, request: log_pb2.ProduceRequest, headers: Sequence[BatchHeader]) -> Outcome:
        acks = request.acks or log_pb2.ACKS_ALL
        async with self._batches:
            positions = await write_batches(
                self._clients.cluster, request.topic, request.partition, request.batches, headers, acks
            )
        self._metrics.records.labels("produced").inc(sum(each.record_count for each in headers))
        return Outcome(positions, False)

    async def _response(
        self, request: log_pb2.ProduceRequest, writing: "asyncio.Future[Outcome]"
    ) -> log_pb2.ProduceResponse:
        try:
            # A caller that goes away does not end the writing: its bytes count until they are written.
            found = await asyncio.shield(writing)
        except errors.UnknownTopicOrPartition:
            self._clients.cluster.forget(request.topic)
            raise
        if found.is_duplicate:
            self._metrics.duplicates.inc()
            return log_pb2.ProduceResponse(duplicate=True)
        self._metrics.records.labels("produced").inc(len(request.records))
        self._metrics.record_bytes.labels("produced").inc(request.ByteSize())
        positions = [log_pb2.Position(partition=partition, offset=offset) for partition, offset in found.positions]
        return log_pb2.ProduceResponse(positions=positions)


def _check(request: log_pb2.ProduceRequest, max_records: int) -> None:
    if not request.topic:
        raise Refused(INVALID, "topic is empty")
    if bool(request.records) == bool(request.batches):
        raise Refused(INVALID, "a Produce has records or batches, and not both")
    if len(request.records) > max_records:
        raise Refused(INVALID, f"a Produce has at most {max_records} records, this one {len(request.records)}")
    if request.acks not in log_pb2.Acks.values():
        raise Refused(INVALID, f"there is no acks {request.acks}")
    if request.HasField("partition") and request.partition < 0:
        raise Refused(INVALID, f"partition {request.partition} is below 0")
    if request.batches and not request.HasField("partition"):
        raise Refused(INVALID, "batches need a partition")
    if request.HasField("producer"):
        if request.batches:
            raise Refused(INVALID, "a named producer writes records, and no batches")
        if request.acks not in (log_pb2.ACKS_UNSPECIFIED, log_pb2.ACKS_ALL):
            raise Refused(INVALID, "a named producer has acks ACKS_ALL")
    if any(each.timestamp_ms < 0 for each in request.records):
        raise Refused(INVALID, "timestamp_ms of a record is below 0")
