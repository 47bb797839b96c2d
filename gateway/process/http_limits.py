"""What one client of HTTP may hold: the size of a request's head and body, the time that they take, and the bytes of
the bodies of all requests together.

uvicorn with httptools limits none of these: a head without end would be kept in memory, and a connection on which
nothing comes would keep its place for ever.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 64 * 1024  # behind the first piece that is received
RECEIVE_S: Final = 30.0  # for a head, and for a body beside the time of its bytes
MIN_BYTES_PER_S: Final = 64 * 1024  # of a body


class BodyRefused(Exception):
    """The body of a request is not taken. For `BodyLimit`: applications let it pass."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class LimitedHttp(HttpToolsProtocol):
    """A connection whose requests have a head of limited size, which comes within `RECEIVE_S`."""

    _is_in_head = True
    _head_bytes = 0
    _slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
        if was_in_head and self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"The head of a request has at most {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0
        if self._slow is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._has_head()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._slow = self.loop.call_later(RECEIVE_S, self.transport.close)

    def _has_head(self) -> None:
        self._is_in_head = False
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None


class BodyLimit:
    """Middleware: refuses a request whose body is above its limit, whether it announces its length or not, or comes too
    slowly, or has no place beside the bodies of other requests that are not answered."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_bytes_of_all: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_bytes_of_all = max_bytes_of_all
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive)
        is_answered = False

        async def limited() -> Message:
            size = body.size
            message = await body.receive()
            self._held += body.size - size
            if body.size > self._max_bytes:
                sentence = f"The body of a request has at most {self._max_bytes} bytes (http.max.body.bytes)."
                raise BodyRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
            if self._held > self._max_bytes_of_all:
                sentence = (
                    f"The requests that are not answered have {self._max_bytes_of_all} bytes (http.max.bodies.bytes); "
                    "try again later."
                )
                raise BodyRefused(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
            return message

        async def watched(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._app(scope, limited, watched)
        except BodyRefused as refused:
            if is_answered:
                raise
            await _refusal(refused.status, str(refused))(scope, receive, send)
        except asyncio.CancelledError:  # by a stop whose time is over
            if not is_answered:
                await _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "The gateway stops.")(scope, receive, send)
        finally:
            self._held -= body.size


def _refusal(status: HTTPStatus, sentence: str) -> JSONResponse:
    content: Any = {"error_code": status, "message": sentence}
    return JSONResponse(content, status_code=status)


class _Body:
    """What was received of one request's body."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._deadline = asyncio.get_running_loop().time() + RECEIVE_S
        self._is_complete = False
        self.size = 0

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()  # the end of the connection
        try:
            async with asyncio.timeout_at(self._deadline + self.size / MIN_BYTES_PER_S):
                message = await self._receive()
        except TimeoutError:
            sentence = (
                f"The body comes too slowly: it has {RECEIVE_S:g} s and a second for each {MIN_BYTES_PER_S} bytes."
            )
            raise BodyRefused(HTTPStatus.REQUEST_TIMEOUT, sentence) from None
        self.size += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        return message
