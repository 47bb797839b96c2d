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
from .raw_batches import checked_batches, write_batches
from .sequences import Outcome, StreamOrder

INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT


class ProduceRequests:
    """Of one unary call or one stream: requests begin in the order of calls, and their answers may be awaited later."""

    def __init__(
        self, clients: CallerClients, metrics: Metrics, *, max_records: int, order: StreamOrder | None = None
    ) -> None:
        self._clients = clients
        self._metrics = metrics
        self._max_records = max_records
        self._order = order
        self._batches = asyncio.Lock()  # batches of a stream are written one after the other

    async def begin(self, request: log_pb2.ProduceRequest) -> Coroutine[Any, Any, log_pb2.ProduceResponse]:
        """Check the request and queue its records; the result waits for their answer. Raises Refused or KafkaError."""
        _check(request, self._max_records)
        partition = request.partition if request.HasField("partition") else None
        await self._check_topic(request.topic, partition)
        if request.batches:
            headers = checked_batches(request.batches)
            return self._write_batches(request, headers)
        if request.HasField("producer"):
            name, sequence = request.producer.name, request.producer.sequence
            outcome = self._clients.named.get(name, sequence).add(
                sequence, request.topic, partition, request.records, self._order
            )
            return self._named(request, outcome)
        future = self._clients.writer(request.acks).write(request.topic, partition, request.records)
        return self._plain(request, future)

    async def _check_topic(self, topic: str, partition: int | None) -> None:
        """librdkafka would look for an unknown topic until its time limit."""
        cluster = self._clients.cluster
        found = await cluster.topic(topic)
        if partition is not None and partition not in found.leaders:
            await cluster.leader(topic, partition, fresh=True)

    async def _plain(
        self, request: log_pb2.ProduceRequest, future: "asyncio.Future[list[log_pb2.Position]]"
    ) -> log_pb2.ProduceResponse:
        try:
            positions = await future
        except errors.UnknownTopicOrPartition:
            self._clients.cluster.forget(request.topic)
            raise
        self._count(request)
        return log_pb2.ProduceResponse(positions=positions)

    async def _named(
        self, request: log_pb2.ProduceRequest, outcome: "asyncio.Future[Outcome]"
    ) -> log_pb2.ProduceResponse:
        found = await outcome
        if found.is_duplicate:
            self._metrics.duplicates.inc()
            return log_pb2.ProduceResponse(duplicate=True)
        self._count(request)
        return log_pb2.ProduceResponse(
            positions=[log_pb2.Position(partition=each, offset=offset) for each, offset in found.positions]
        )

    async def _write_batches(
        self, request: log_pb2.ProduceRequest, headers: Sequence[BatchHeader]
    ) -> log_pb2.ProduceResponse:
        acks = request.acks or log_pb2.ACKS_ALL
        async with self._batches:
            positions = await write_batches(
                self._clients.cluster, request.topic, request.partition, request.batches, headers, acks
            )
        self._metrics.records.labels("produced").inc(sum(each.record_count for each in headers))
        self._metrics.record_bytes.labels("produced").inc(len(request.batches))
        return log_pb2.ProduceResponse(positions=positions)

    def _count(self, request: log_pb2.ProduceRequest) -> None:
        self._metrics.records.labels("produced").inc(len(request.records))
        self._metrics.record_bytes.labels("produced").inc(request.ByteSize())


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
