"""One Subscribe call: orders of the client go to the member, events of the member to the client."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import grpc
import grpc.aio

from ..clients import CallerClients
from ..failures import Refused
from ..process.metrics import Metrics
from ..v1 import log_pb2
from .member import Member
from .window import MAX_CREDIT, DeliveryWindow, Place

MAX_TOPICS: Final = 100
JOIN_S: Final = 30.0
INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT


class Subscription:
    def __init__(
        self,
        context: Any,
        clients: CallerClients,
        metrics: Metrics,
        *,
        max_records: int,
        max_bytes: int,
        max_message_bytes: int,
    ) -> None:
        self._context = context
        self._clients = clients
        self._metrics = metrics
        self._window = DeliveryWindow(max_records=max_records, max_bytes=max_bytes)
        self._max_message_bytes = max_message_bytes
        self._ended: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.member: Member | None = None

    def drain(self) -> None:
        self._ended.put_nowait(
            Refused(grpc.StatusCode.UNAVAILABLE, "the gateway stops; subscribe at another gateway", retriable=True)
        )

    async def responses(self) -> AsyncGenerator[log_pb2.SubscribeResponse, None]:
        ended = asyncio.create_task(self._ended.get())
        try:
            join = await self._join(ended)
        except BaseException:
            ended.cancel()
            raise
        member = self.member = Member(
            self._clients.cluster.access, join, self._window, max_message_bytes=self._max_message_bytes
        )
        reader = asyncio.create_task(self._read(member))
        reader.add_done_callback(self._read_ended)
        try:
            while True:
                event = asyncio.create_task(member.events.get())
                await asyncio.wait([event, ended], return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    event.cancel()
                    error = ended.result()
                    if error is not None:
                        raise error
                    return
                response = event.result()
                if isinstance(response, Exception):
                    raise response
                if response.HasField("delivery"):
                    self._metrics.records.labels("consumed").inc(len(response.delivery.records))
                    self._metrics.record_bytes.labels("consumed").inc(response.ByteSize())
                yield response
                if join.auto_commit and response.HasField("delivery"):
                    sent = response.delivery
                    place = Place(sent.topic, sent.partition)
                    member.acknowledge(place, sent.records[-1].offset, log_pb2.VERDICT_ACCEPT)
        finally:
            reader.cancel()
            ended.cancel()
            member.close()

    async def _join(self, ended: "asyncio.Task[Exception | None]") -> log_pb2.Join:
        reading = asyncio.ensure_future(self._context.read())
        try:
            await asyncio.wait([reading, ended], timeout=JOIN_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not reading.done():
                reading.cancel()
        if ended.done() and (stopped := ended.result()) is not None:
            raise stopped
        if not reading.done():
            raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, f"no join came within {JOIN_S:g} s")
        first = reading.result()
        if first is grpc.aio.EOF or first.WhichOneof("order") != "join":
            raise Refused(INVALID, "the first message of a Subscribe is join")
        join: log_pb2.Join = first.join
        if not join.group:
            raise Refused(INVALID, "group is empty")
        if not 0 < len(join.topics) <= MAX_TOPICS:
            raise Refused(INVALID, f"a Subscribe has 1 to {MAX_TOPICS} topics, this one {len(join.topics)}")
        if join.reset not in log_pb2.Reset.values():
            raise Refused(INVALID, f"there is no reset {join.reset}")
        if join.share:
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, "share groups are not implemented")
        for topic in join.topics:
            await self._clients.cluster.topic(topic, fresh=True)
        return join

    async def _read(self, member: Member) -> None:
        while (message := await self._context.read()) is not grpc.aio.EOF:
            order = message.WhichOneof("order")
            if order == "credit":
                if not 0 < message.credit <= MAX_CREDIT:
                    raise Refused(INVALID, f"credit is from 1 to {MAX_CREDIT}, and not {message.credit}")
                member.add_credit(message.credit)
            elif order == "acknowledge":
                acknowledge = message.acknowledge
                if acknowledge.verdict not in log_pb2.Verdict.values():
                    raise Refused(INVALID, f"there is no verdict {acknowledge.verdict}")
                place = Place(acknowledge.topic, acknowledge.partition)
                member.acknowledge(place, acknowledge.offset, acknowledge.verdict)
            else:
                raise Refused(INVALID, "a Subscribe is joined once; later messages are credit or acknowledge")

    def _read_ended(self, reader: "asyncio.Task[None]") -> None:
        if not reader.cancelled():
            error = reader.exception()
            self._ended.put_nowait(error if isinstance(error, Exception) else None)
