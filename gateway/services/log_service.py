"""LogService: each method finds the caller's clients and hands over to producing, reading or subscribing."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Protocol

import grpc

from ..clients import CallerClients
from ..failures import Refused
from ..process.metrics import Metrics
from ..producing.requests import ProduceRequests, UnwrittenBytes
from ..producing.sequences import StreamOrder
from ..producing.stream import Limit, ProduceStream
from ..reading.consume import Consumption
from ..reading.read import Reading
from ..settings import (
    MAX_MESSAGE_BYTES,
    MAX_SUBSCRIPTIONS,
    MAX_UNACKNOWLEDGED_BYTES,
    MAX_UNACKNOWLEDGED_RECORDS,
    MAX_UNWRITTEN_BYTES,
    Settings,
)
from ..subscribing.member import CLOSE_S
from ..subscribing.subscription import Subscription
from ..v1 import log_pb2, log_pb2_grpc
from .call import Calls


class Drainable(Protocol):
    def drain(self) -> None: ...


class LogService(log_pb2_grpc.LogServiceServicer):
    def __init__(self, calls: Calls, settings: Settings, metrics: Metrics) -> None:
        self._calls = calls
        self._metrics = metrics
        self._max_message_bytes = settings.number(MAX_MESSAGE_BYTES)
        self._max_records = settings.number(MAX_UNACKNOWLEDGED_RECORDS)
        self._max_bytes = settings.number(MAX_UNACKNOWLEDGED_BYTES)
        self._unwritten = UnwrittenBytes(settings.number(MAX_UNWRITTEN_BYTES), metrics)
        self._long_calls: set[Drainable] = set()
        self._is_draining = False
        self._max_members = settings.number(MAX_SUBSCRIPTIONS)
        self._members: set[Subscription] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    def drain(self) -> None:
        self._is_draining = True
        for call in list(self._long_calls):
            call.drain()

    async def Produce(self, request: log_pb2.ProduceRequest, context: Any) -> log_pb2.ProduceResponse:
        async def work(clients: CallerClients) -> log_pb2.ProduceResponse:
            requests = ProduceRequests(clients, self._metrics, self._unwritten, max_records=self._max_records)
            return await (await requests.begin(request))

        return await self._calls.unary("Produce", context, work)

    async def ProduceStream(self, _requests: Any, context: Any) -> None:
        async def work(clients: CallerClients) -> AsyncGenerator[log_pb2.ProduceStreamResponse, None]:
            requests = ProduceRequests(
                clients, self._metrics, self._unwritten, max_records=self._max_records, order=StreamOrder()
            )
            stream = ProduceStream(context, requests, Limit(self._max_records, self._max_bytes))
            async for response in self._long(stream, stream.responses()):
                yield response

        await self._calls.stream("ProduceStream", context, work)

    async def Consume(self, request: log_pb2.ConsumeRequest, context: Any) -> None:
        async def work(clients: CallerClients) -> AsyncGenerator[log_pb2.ConsumeResponse, None]:
            consumption = Consumption(clients.cluster, request, max_message_bytes=self._max_message_bytes)
            records, size = self._metrics.records.labels("consumed"), self._metrics.record_bytes.labels("consumed")
            async for response in self._long(consumption, consumption.responses()):
                records.inc(len(response.records))
                size.inc(response.ByteSize())
                yield response

        await self._calls.stream("Consume", context, work)

    async def Subscribe(self, _orders: Any, context: Any) -> None:
        async def work(clients: CallerClients) -> AsyncGenerator[log_pb2.SubscribeResponse, None]:
            if len(self._members) >= self._max_members:
                raise Refused(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self._max_members} subscriptions are open (subscribe.max.streams); try again later",
                    retriable=True,
                )
            subscription = Subscription(
                context,
                clients,
                self._metrics,
                max_records=self._max_records,
                max_bytes=self._max_bytes,
                max_message_bytes=self._max_message_bytes,
            )
            self._members.add(subscription)
            try:
                async for response in self._long(subscription, subscription.responses()):
                    yield response
            finally:
                self._keep_until_closed(subscription)

        await self._calls.stream("Subscribe", context, work)

    def _keep_until_closed(self, subscription: Subscription) -> None:
        """A member leaves its group in its thread; until then it counts."""
        member = subscription.member
        if member is None:
            self._members.discard(subscription)
            return
        leaving = asyncio.create_task(asyncio.to_thread(member.thread.join, CLOSE_S))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        leaving.add_done_callback(lambda _task: self._members.discard(subscription))

    async def stop(self) -> None:
        """Wait until members have left their groups."""
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def Read(self, request: log_pb2.ReadRequest, context: Any) -> log_pb2.ReadResponse:
        async def work(clients: CallerClients) -> log_pb2.ReadResponse:
            return await Reading(clients.cluster, request).response()

        return await self._calls.unary("Read", context, work)

    async def _long(self, call: Drainable, responses: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """A call that ends when the gateway stops."""
        self._long_calls.add(call)
        if self._is_draining:
            call.drain()
        try:
            async for response in responses:
                yield response
        finally:
            self._long_calls.discard(call)
            await responses.aclose()
