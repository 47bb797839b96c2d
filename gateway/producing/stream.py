"""ProduceStream: requests are read and begun in their order, and answered in it.

    read ─→ begin ─→ answers, a queue ─→ written as each is known

What was begun and is not answered is limited in records and bytes; above that nothing is read, and HTTP/2 stops the
client.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from ..failures import Refused, code_of, failure_of
from ..v1 import log_pb2
from .requests import ProduceRequests

LOG: Final = logging.getLogger("trioka.gateway")


class Limit:
    """So much may be begun and not answered. One request may be larger than all of it."""

    def __init__(self, records: int, size_bytes: int) -> None:
        self._records, self._bytes = records, size_bytes
        self._used_records = self._used_bytes = 0
        self._freed = asyncio.Event()

    async def take(self, records: int, size_bytes: int) -> None:
        while self._used_records and (
            self._used_records + records > self._records or self._used_bytes + size_bytes > self._bytes
        ):
            self._freed.clear()
            await self._freed.wait()
        self._used_records += records
        self._used_bytes += size_bytes

    def give_back(self, records: int, size_bytes: int) -> None:
        self._used_records -= records
        self._used_bytes -= size_bytes
        self._freed.set()


class _Answer(NamedTuple):
    id: int
    response: "asyncio.Task[log_pb2.ProduceResponse] | Exception"
    records: int
    size_bytes: int


class ProduceStream:
    def __init__(self, context: Any, requests: ProduceRequests, limit: Limit) -> None:
        self._context = context
        self._requests = requests
        self._limit = limit
        self._answers: asyncio.Queue[_Answer | Exception | None] = asyncio.Queue()  # bounded by the limit
        self._reader: asyncio.Task[None] | None = None
        self._is_drained = False

    def drain(self) -> None:
        """Read no further request; those that were read are answered."""
        self._is_drained = True
        if self._reader is not None:
            self._reader.cancel()

    async def responses(self) -> AsyncGenerator[log_pb2.ProduceStreamResponse, None]:
        self._reader = asyncio.create_task(self._read())
        if self._is_drained:
            self._reader.cancel()
        self._reader.add_done_callback(self._read_ended)
        try:
            while (answer := await self._answers.get()) is not None:
                if isinstance(answer, Exception):
                    raise answer
                response = await self._response(answer)
                self._limit.give_back(answer.records, answer.size_bytes)
                yield response
        finally:
            self._reader.cancel()
            self._abandon()
        if self._is_drained:
            raise Refused(
                grpc.StatusCode.UNAVAILABLE,
                "the gateway stops; what is not answered was not written, and may be sent to another gateway",
                retriable=True,
            )

    def _abandon(self) -> None:
        """What is written stays written; there is no one to answer."""
        while not self._answers.empty():
            answer = self._answers.get_nowait()
            if isinstance(answer, _Answer) and isinstance(answer.response, asyncio.Task):
                answer.response.cancel()

    def _read_ended(self, reader: "asyncio.Task[None]") -> None:
        error = None if reader.cancelled() else reader.exception()
        self._answers.put_nowait(error if isinstance(error, Exception) else None)

    async def _read(self) -> None:
        while (message := await self._context.read()) is not grpc.aio.EOF:
            records, size_bytes = max(1, len(message.request.records)), message.ByteSize()
            await self._limit.take(records, size_bytes)
            response: asyncio.Task[log_pb2.ProduceResponse] | Exception
            try:
                response = asyncio.create_task(await self._requests.begin(message.request))
            except Exception as error:
                response = error
            self._answers.put_nowait(_Answer(message.id, response, records, size_bytes))

    async def _response(self, answer: _Answer) -> log_pb2.ProduceStreamResponse:
        try:
            if isinstance(answer.response, Exception):
                raise answer.response
            return log_pb2.ProduceStreamResponse(id=answer.id, written=await answer.response)
        except Exception as error:
            if code_of(error) is grpc.StatusCode.INTERNAL:
                LOG.error("internal error in a request of a stream", exc_info=error)
            return log_pb2.ProduceStreamResponse(id=answer.id, failure=failure_of(error))
