"""Serves HTTP on one connection: reads a request, answers it, reads the next one.

Strict and small: only GET and HEAD, no bodies, a head of at most 16 KiB, and time limits for everything; a slow or idle
client only affects its own connection, which is closed when others need it (http/connection_limits.py). h11 parses
requests and encodes responses.

A web page can resolve its own host name to this machine, and its scripts could then read what only local clients may
(DNS rebinding). The browser still sends that name in `Host`, so names that are not allowed are rejected. IP addresses
are accepted, since they cannot be redirected.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

import h11
import trio

from trioka.protocol.errors import KafkaStorageError
from trioka.storage.directory import LogDirectory

from ..config.trioka_keys import HTTP_HOSTS
from ..metrics.loop_watch import LoopWatch
from ..metrics.readings import DiskSpace
from .health import why_not_alive, why_not_ready, why_not_started

if TYPE_CHECKING:
    from ..broker import Broker

MAX_HEAD_BYTES: Final = 16 * 1024
RECEIVE_BYTES: Final = 4096
MAX_REQUESTS: Final = 10_000  # on one connection
FIRST_S: Final = 5.0  # until the first request begins
IDLE_S: Final = 120.0  # between requests; a scraper keeps its connection
HEAD_S: Final = 5.0  # until the request's head is complete
RESPONSE_TIMEOUT_S: Final = 60.0
MAX_SHOWN: Final = 100  # characters of client input in an error
PATHS: Final = ("/metrics", "/livez", "/readyz", "/startupz")
PLAIN: Final = "text/plain; charset=utf-8"


class HttpSession(NamedTuple):
    """The state that all sessions of a server share."""

    broker: "Broker"
    watch: LoopWatch
    scrapes: trio.CapacityLimiter
    on_request: Callable[[], None] = lambda: None  # called when a request is complete
    on_response: Callable[[], None] = lambda: None


class HttpReply(NamedTuple):
    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()


class RequestRejected(Exception):
    """The request cannot be read: the client gets an error and the connection is closed."""

    def __init__(self, reply: HttpReply) -> None:
        super().__init__(reply.body)
        self.reply = reply


# -- decisions -----------------------------------------------------------------------------------------------------


def refusal(method: str, path: str, host: str | None, hosts: Iterable[str]) -> HttpReply | None:
    """The error for a request that is not served; None if it is served."""
    if method not in ("GET", "HEAD"):
        return HttpReply(405, f"{_truncated(method)} is not served, only GET and HEAD.", (("allow", "GET, HEAD"),))
    if host is not None and not is_allowed(host, hosts):
        return HttpReply(421, f"The host {_truncated(host)} is not allowed; trioka.http.hosts lists the allowed ones.")
    if path not in PATHS:
        return HttpReply(
            404, f"There is nothing at {_truncated(path)}; there are {', '.join(PATHS[:-1])} and {PATHS[-1]}."
        )
    return None


def is_allowed(host: str, hosts: Iterable[str]) -> bool:
    """`host` is the header's value, with or without a port."""
    name, _, port = host.rpartition(":")
    if not name or not port.isdigit() or (":" in name and not name.startswith("[")):
        name = host
    name = name.strip().removeprefix("[").removesuffix("]").rstrip(".").lower()
    allowed = {each.lower() for each in hosts}
    if "*" in allowed or name == "localhost" or name in allowed:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def health(broker: "Broker", path: str) -> HttpReply:
    why_not = {"/livez": why_not_alive, "/startupz": why_not_started, "/readyz": why_not_ready}
    reasons = why_not[path](broker)
    return HttpReply(503, "\n".join(reasons)) if reasons else HttpReply(200, "ok")


def _truncated(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


# -- I/O -----------------------------------------------------------------------------------------------------------


async def serve_connection(stream: trio.abc.Stream, session: HttpSession) -> None:
    """Serves the connection until the client closes it or it is closed for another one."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    for number in range(MAX_REQUESTS):
        try:
            request = await _request(stream, connection, IDLE_S if number else FIRST_S)
        except RequestRejected as refused:
            await _reply(stream, connection, refused.reply, is_last=True)
            return
        if request is None:
            return
        session.on_request()
        with trio.move_on_after(RESPONSE_TIMEOUT_S) as time:
            await _answer(stream, connection, request, session)
        session.on_response()
        if time.cancelled_caught or connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


async def _request(stream: trio.abc.Stream, connection: h11.Connection, idle_s: float) -> h11.Request | None:
    """The next request; None if the connection has ended."""
    has_begun = False
    with trio.move_on_after(idle_s):
        has_begun = await _has_begun(stream, connection)
    if not has_begun:
        return None
    with trio.move_on_after(HEAD_S):
        return await _read_request(stream, connection)
    raise RequestRejected(HttpReply(408, f"The request was not complete after {HEAD_S:.0f} seconds."))


async def _has_begun(stream: trio.abc.Stream, connection: h11.Connection) -> bool:
    if connection.trailing_data[0]:
        return True
    data = await stream.receive_some(RECEIVE_BYTES)
    connection.receive_data(bytes(data))
    return bool(data)


async def _read_request(stream: trio.abc.Stream, connection: h11.Connection) -> h11.Request | None:
    request: h11.Request | None = None
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestRejected(HttpReply(error.error_status_hint, f"Malformed request: {error}.")) from None
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.Data):
            raise RequestRejected(HttpReply(413, "A request here has no body."))
        else:  # the client has disconnected, or switches protocols
            return None


async def _answer(
    stream: trio.abc.Stream, connection: h11.Connection, request: h11.Request, session: HttpSession
) -> None:
    method, path = request.method.decode(), request.target.decode("ascii", "replace").partition("?")[0]
    host = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), None)
    refused = refusal(method, path, host, session.broker.config[HTTP_HOSTS])
    if refused is not None:
        await _reply(stream, connection, refused, is_head=method == "HEAD")
    elif path != "/metrics":
        await _reply(stream, connection, health(session.broker, path), is_head=method == "HEAD")
    else:
        await _metrics(stream, connection, session, is_head=method == "HEAD")


async def _metrics(stream: trio.abc.Stream, connection: h11.Connection, session: HttpSession, *, is_head: bool) -> None:
    """Sends the scrape in pieces, as they are made. Few scrapes run at once, because they take CPU time."""
    async with session.scrapes:
        exposition = await trio.to_thread.run_sync(import_module, "..metrics.exposition", __package__)
        headers = _headers(exposition.CONTENT_TYPE)
        await _send(stream, connection, h11.Response(status_code=200, headers=headers))
        if not is_head:
            disk_space = {
                each.path: await trio.to_thread.run_sync(_disk_space, each) for each in session.broker.directories
            }
            for piece in exposition.scrape(session.broker, session.watch, disk_space):
                if piece:
                    await _send(stream, connection, h11.Data(data=piece))
                else:
                    await trio.lowlevel.checkpoint()
        await _send(stream, connection, h11.EndOfMessage())


def _disk_space(directory: LogDirectory) -> DiskSpace:
    """The sizes of a volume. Runs in a worker thread, because the query blocks while the disk hangs."""
    try:
        return DiskSpace(directory.volume.free_bytes(directory.path), directory.volume.total_bytes(directory.path))
    except (KafkaStorageError, OSError):
        return DiskSpace(None, None)


async def _reply(
    stream: trio.abc.Stream,
    connection: h11.Connection,
    reply: HttpReply,
    *,
    is_head: bool = False,
    is_last: bool = False,
) -> None:
    if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    body = f"{reply.body}\n".encode()
    headers = [*_headers(PLAIN), ("content-length", str(len(body))), *reply.headers]
    if is_last:
        headers.append(("connection", "close"))
    with trio.move_on_after(RESPONSE_TIMEOUT_S):
        await _send(stream, connection, h11.Response(status_code=reply.status, headers=headers))
        if not is_head:
            await _send(stream, connection, h11.Data(data=body))
        await _send(stream, connection, h11.EndOfMessage())


def _headers(content_type: str) -> list[tuple[str, str]]:
    return [("content-type", content_type), ("cache-control", "no-store"), ("x-content-type-options", "nosniff")]


async def _send(
    stream: trio.abc.Stream, connection: h11.Connection, event: h11.Response | h11.Data | h11.EndOfMessage
) -> None:
    data = connection.send(event)
    if data:
        await stream.send_all(data)
    else:
        await trio.lowlevel.checkpoint()
