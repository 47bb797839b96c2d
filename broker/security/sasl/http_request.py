"""A GET or POST over HTTP, by h11 on trio: bounded in bytes, without redirects, without a proxy. The caller bounds its
time."""

import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult

import h11
import trio

MAX_HEAD_BYTES: Final = 64 * 1024
CHUNK_BYTES: Final = 64 * 1024
PORTS: Final = {"http": 80, "https": 443}


class RequestFailed(Exception):
    """There is no complete response; the message gives the reason."""


async def http_request(
    parts: SplitResult,
    context: ssl.SSLContext | None,
    *,
    max_bytes: int,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
) -> tuple[int, bytes]:
    """The status and the body. `context` is None for http; with a body, the method is POST. Raises RequestFailed."""
    try:
        return await _exchange(parts, context, max_bytes, headers, body)
    except (OSError, ssl.SSLError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
        raise RequestFailed(str(error.__cause__ or error)) from None


async def _exchange(
    parts: SplitResult,
    context: ssl.SSLContext | None,
    max_bytes: int,
    headers: Sequence[tuple[str, str]],
    body: bytes | None,
) -> tuple[int, bytes]:
    host = parts.hostname or ""
    port = parts.port or PORTS[parts.scheme]
    stream: trio.abc.Stream
    if context is None:
        stream = await trio.open_tcp_stream(host, port)
    else:
        stream = await trio.open_ssl_over_tcp_stream(host, port, ssl_context=context, https_compatible=True)
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    named = f"[{host}]" if ":" in host else host
    sent = [("Host", f"{named}:{port}"), ("Accept", "application/json"), ("Connection", "close"), *headers]
    if body is not None:
        sent.append(("Content-Length", str(len(body))))
    method = "GET" if body is None else "POST"
    try:
        await stream.send_all(connection.send(h11.Request(method=method, target=target, headers=sent)) or b"")
        if body is not None:
            await stream.send_all(connection.send(h11.Data(data=body)) or b"")
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
        return await _response(stream, connection, max_bytes)
    finally:
        with trio.move_on_after(0):  # close without a TLS close message
            await stream.aclose()


async def _response(stream: trio.abc.Stream, connection: h11.Connection, max_bytes: int) -> tuple[int, bytes]:
    status, body = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(CHUNK_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > max_bytes:
                raise RequestFailed(f"it has more than {max_bytes} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(body)
        elif not isinstance(event, h11.InformationalResponse):
            raise RequestFailed("the connection ended before it was complete")
