"""HTTP, spoken with one client: a request is read, decided upon, and answered; then the next one.

Small and strict. Only GET and HEAD, no bodies, a head of at most 16 KiB, and everything in its time; a slow or silent
client costs its own connection and nothing else, and loses that when others want one (http/connection_limits.py). Bytes
become requests, and answers bytes, in h11.

A web page can have its own host name point to this machine, and its scripts then read what only this machine may
(DNS rebinding). The browser still says that name in `Host`; so a name that nobody has allowed is refused. An address is
no name, and cannot be made to point elsewhere.
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
from ..metrics.readings import Room
from .health import why_not_alive, why_not_ready, why_not_started

if TYPE_CHECKING:
    from ..broker import Broker

MAX_HEAD_BYTES: Final = 16 * 1024
RECEIVE_BYTES: Final = 4096
MAX_REQUESTS: Final = 10_000  # of one connection
FIRST_S: Final = 5.0  # until the first request begins
IDLE_S: Final = 120.0  # until another one does: a scraper comes again, and keeps its connection
HEAD_S: Final = 5.0  # until it is complete
ANSWER_S: Final = 60.0
MAX_SHOWN: Final = 100  # letters of what somebody sent
PATHS: Final = ("/metrics", "/livez", "/readyz", "/startupz")
PLAIN: Final = "text/plain; charset=utf-8"


class Visit(NamedTuple):
    """Whom somebody came to see, and what all visitors share."""

    broker: "Broker"
    watch: LoopWatch
    scrapes: trio.CapacityLimiter
    is_asked: Callable[[], None] = lambda: None  # told when a request is whole
    is_answered: Callable[[], None] = lambda: None


class Reply(NamedTuple):
    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()


class Refused(Exception):
    """This request cannot be read to its end: it is answered, and the connection closed."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.body)
        self.reply = reply


# -- deciding ----------------------------------------------------------------------------------------------------------


def refusal(method: str, path: str, host: str | None, hosts: Iterable[str]) -> Reply | None:
    """Why a request is not served; None if it is."""
    if method not in ("GET", "HEAD"):
        return Reply(405, f"{_shown(method)} is not served, only GET and HEAD.", (("allow", "GET, HEAD"),))
    if host is not None and not is_allowed(host, hosts):
        return Reply(421, f"The host {_shown(host)} is none of this broker's; trioka.http.hosts names those that are.")
    if path not in PATHS:
        return Reply(404, f"There is nothing at {_shown(path)}; there are {', '.join(PATHS[:-1])} and {PATHS[-1]}.")
    return None


def is_allowed(host: str, hosts: Iterable[str]) -> bool:
    """`host` is what the header says, with a port or without."""
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


def health(broker: "Broker", path: str) -> Reply:
    why_not = {"/livez": why_not_alive, "/startupz": why_not_started, "/readyz": why_not_ready}
    reasons = why_not[path](broker)
    return Reply(503, "\n".join(reasons)) if reasons else Reply(200, "ok")


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


# -- doing -------------------------------------------------------------------------------------------------------------


async def converse(stream: trio.abc.Stream, visit: Visit) -> None:
    """Until the client goes, or is sent away."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    for number in range(MAX_REQUESTS):
        try:
            request = await _request(stream, connection, IDLE_S if number else FIRST_S)
        except Refused as refused:
            await _reply(stream, connection, refused.reply, is_last=True)
            return
        if request is None:
            return
        visit.is_asked()
        with trio.move_on_after(ANSWER_S) as time:
            await _answer(stream, connection, request, visit)
        visit.is_answered()
        if time.cancelled_caught or connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


async def _request(stream: trio.abc.Stream, connection: h11.Connection, idle_s: float) -> h11.Request | None:
    """The next one, whole; None if there is none."""
    has_begun = False
    with trio.move_on_after(idle_s):
        has_begun = await _has_begun(stream, connection)
    if not has_begun:
        return None
    with trio.move_on_after(HEAD_S):
        return await _whole(stream, connection)
    raise Refused(Reply(408, f"The request was not complete after {HEAD_S:.0f} seconds."))


async def _has_begun(stream: trio.abc.Stream, connection: h11.Connection) -> bool:
    if connection.trailing_data[0]:
        return True
    data = await stream.receive_some(RECEIVE_BYTES)
    connection.receive_data(bytes(data))
    return bool(data)


async def _whole(stream: trio.abc.Stream, connection: h11.Connection) -> h11.Request | None:
    request: h11.Request | None = None
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise Refused(Reply(error.error_status_hint, f"This is no request: {error}.")) from None
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.Data):
            raise Refused(Reply(413, "A request here has no body."))
        else:  # it has gone, or wants to speak something else
            return None


async def _answer(stream: trio.abc.Stream, connection: h11.Connection, request: h11.Request, visit: Visit) -> None:
    method, path = request.method.decode(), request.target.decode("ascii", "replace").partition("?")[0]
    host = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), None)
    refused = refusal(method, path, host, visit.broker.config[HTTP_HOSTS])
    if refused is not None:
        await _reply(stream, connection, refused, is_head=method == "HEAD")
    elif path != "/metrics":
        await _reply(stream, connection, health(visit.broker, path), is_head=method == "HEAD")
    else:
        await _metrics(stream, connection, visit, is_head=method == "HEAD")


async def _metrics(stream: trio.abc.Stream, connection: h11.Connection, visit: Visit, *, is_head: bool) -> None:
    """In pieces, as they are made. Only a few at a time: a scrape is work."""
    async with visit.scrapes:
        exposition = await trio.to_thread.run_sync(import_module, "..metrics.exposition", __package__)
        headers = _headers(exposition.CONTENT_TYPE)
        await _send(stream, connection, h11.Response(status_code=200, headers=headers))
        if not is_head:
            rooms = {each.path: await trio.to_thread.run_sync(_room, each) for each in visit.broker.directories}
            for piece in exposition.scrape(visit.broker, visit.watch, rooms):
                if piece:
                    await _send(stream, connection, h11.Data(data=piece))
                else:
                    await trio.lowlevel.checkpoint()
        await _send(stream, connection, h11.EndOfMessage())


def _room(directory: LogDirectory) -> Room:
    """Asking a volume may take as long as a disk that hangs, so this is for a worker thread."""
    try:
        return Room(directory.volume.free_bytes(directory.path), directory.volume.total_bytes(directory.path))
    except (KafkaStorageError, OSError):
        return Room(None, None)


async def _reply(
    stream: trio.abc.Stream, connection: h11.Connection, reply: Reply, *, is_head: bool = False, is_last: bool = False
) -> None:
    if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    body = f"{reply.body}\n".encode()
    headers = [*_headers(PLAIN), ("content-length", str(len(body))), *reply.headers]
    if is_last:
        headers.append(("connection", "close"))
    with trio.move_on_after(ANSWER_S):
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
