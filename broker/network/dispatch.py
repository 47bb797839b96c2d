"""Dispatch: finds the handler of an API key and version, and turns its result into a response.

    a response              is sent
    a coroutine             runs in a task of its own, which responds when it returns
    a KafkaError            is mapped by the handler's `error_response` to a response with that error code
    any other exception     is an internal error: it is logged and answered UNKNOWN_SERVER_ERROR, and the connection is
                            closed

Bytes that are no request close the connection, as in Kafka; so does an API or version that is not served. One
exception: ApiVersions in an unknown version is answered in version 0 with the supported range, because that is how
clients find the range.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from importlib import import_module
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.protocol.codec import decoder
from trioka.protocol.decoding import MAX_ELEMENTS
from trioka.protocol.errors import KafkaError, NotController, ProtocolError, UnknownServerError, UnsupportedVersion
from trioka.protocol.frame import NotKafka
from trioka.protocol.header import API_VERSIONS_KEY
from trioka.protocol.sasl.exchange import Computation, Failed
from trioka.protocol.schema import Request

from ..api import BROKER, CONTROLLER, CONTROLLER_HANDLERS, SUPPORTED_APIS, ApiSpec, Handler
from ..counters.errors import ErrorCounts
from ..counters.latency import RequestLatencies
from ..security.sasl.pre_auth import PreAuth, Refused
from .connection import FETCH_KEY, PENDING, Call, CallResponse, Connection, Pending
from .limits.charge import timed

if TYPE_CHECKING:
    from ..broker import Broker
    from ..fastpath.fast_path import FastPath
    from ..fastpath.registry import FastPathRegistry
    from ..security.sasl.logins import Logins
    from .limits.request_quotas import RequestQuotas

log = logging.getLogger("trioka.dispatch")

WARN_INTERVAL_S: Final = 60.0  # one warning per host in this time
MAX_WARNED_HOSTS: Final = 1000  # hosts whose last warning is remembered
SIZE: Final = Struct(">i")
WILDCARD_HOSTS: Final = ("0.0.0.0", "::")  # to listen on all addresses; clients cannot connect to them


class Route:
    """Serves one version of one API."""

    __slots__ = (
        "_broker",
        "_decode",
        "_handler",
        "fast_path_key",
        "is_flexible",
        "is_for_clients",
        "key",
        "response_version",
        "version",
    )

    def __init__(self, broker: "Broker", handler: Handler[Any], key: int, version: int) -> None:
        self.key = key
        self.is_for_clients = True  # False on a controller listener
        self.fast_path_key = key  # another key if its requests must not use a fast path
        self.version = self.response_version = version
        self.is_flexible = version in handler.request.__flexible__
        self._broker = broker
        self._handler = handler
        self._decode = decoder(handler.request, version)

    @property
    def api(self) -> str:
        """Kafka's name of the API."""
        name: str = self._handler.request.__name__
        return name.removesuffix("Request")

    def decode(self, frame: memoryview, body: int) -> Request:
        # Bytes behind the request in its frame are ignored, as in Kafka.
        request: Request = self._decode(frame, body, MAX_ELEMENTS)[0]
        return request

    @property
    def handler(self) -> Handler[Any]:
        return self._handler

    def serve(self, call: Call, request: Request) -> CallResponse | Pending:
        try:
            handler = self._handler
            answer: Any = None if handler.refusal is None else handler.refusal(self._broker, call, request)
            if answer is None and handler.forwards and self._should_forward():
                answer = self._broker.forwarding.forward(call, request, handler)
            elif answer is None:
                answer = handler.serve(self._broker, call, request)
        except KafkaError as error:
            if self.key <= FETCH_KEY:  # for other APIs, errors are counted from the response
                self._broker.dispatch.errors.add(self.key, error.code)
            return self._handler.error_response(request, error)
        except Exception as error:
            return self._internal_error(call, request, error)
        if type(answer) is CoroutineType:
            if self._broker.dispatch.quotas is not None and hasattr(call, "charge"):
                answer = timed(answer, call.charge)
            self._broker.dispatch.running += 1
            self._broker.nursery.start_soon(self._finish, call, request, answer)
            return PENDING
        return answer  # type: ignore[no-any-return]

    def _should_forward(self) -> bool:
        """Whether the request goes to the active controller through `forwarding`, which retries if that resigns before
        it has answered: a client might take NOT_CONTROLLER for the final answer."""
        quorum = self._broker.quorum
        if self.is_for_clients:
            return quorum.has_peers or not quorum.is_active
        if not quorum.is_active:
            raise NotController
        return False

    async def _finish(self, call: Call, request: Request, coroutine: Coroutine[Any, Any, CallResponse]) -> None:
        try:
            answer = await coroutine
        except KafkaError as error:
            answer = self._handler.error_response(request, error)
        except Exception as error:
            answer = self._internal_error(call, request, error)
        finally:
            self._broker.dispatch.running -= 1
        call.reply(answer)

    def _internal_error(self, call: Call, request: Request, error: Exception) -> CallResponse:
        where = f"{type(request).__name__} v{self.version} from {call.connection.peer}"
        log.error("internal error: %s", where, exc_info=error)
        call.connection.is_closing = True
        return self._handler.error_response(request, UnknownServerError())


class _UnknownApiVersions(Route):
    """ApiVersions in an unknown version: its body is not decoded."""

    __slots__ = ()

    def decode(self, frame: memoryview, body: int) -> Request:
        return self._handler.request.with_defaults()  # type: ignore[no-any-return]

    def serve(self, call: Call, request: Request) -> CallResponse:
        return self._handler.error_response(request, UnsupportedVersion())


class Dispatch:
    """The routes of one kind of listener: client or controller."""

    def __init__(self, broker: "Broker", listeners: int = BROKER) -> None:
        self._broker = broker
        self._listeners = listeners
        self._routes: dict[tuple[int, int], Route] = {}
        self._new: Callable[[Broker, Handler[Any], int, int], Route] = Route
        self.coalescer = broker.coalescer
        self.guard = broker.guard
        self.quotas: RequestQuotas | None = None  # None unless the metadata contains a quota
        self._fast_paths: FastPathRegistry | None = None
        self._warned_at: dict[str, float] = {}  # by host
        self._resuming: deque[Connection] = deque()
        self._is_resuming = False
        self.running = 0  # requests served by a task of their own
        self.times = RequestLatencies(broker.clock.now)
        self.errors = ErrorCounts()
        self.http_address: tuple[str, int] | None = None  # of metrics and health, for HTTP clients at the wrong port

    def route(self, key: int, version: int) -> Route:
        found = self._routes.get((key, version))
        return found if found is not None else self._new_route(key, version)

    def _new_route(self, key: int, version: int) -> Route:
        served, handler = self._served(key)
        if version in handler.request.__versions__ and served.first <= version <= served.last:
            route = self._routes[key, version] = self._new(self._broker, handler, key, version)
            route.is_for_clients = self._listeners != CONTROLLER
            return route
        if key == API_VERSIONS_KEY:
            return _UnknownApiVersions(self._broker, handler, key, 0)
        raise ProtocolError(f"{handler.request.__name__} v{version} is not served: {served.first}-{served.last} are")

    def reroute(self, new: "Callable[[Broker, Handler[Any], int, int], Route]" = Route) -> None:
        """From the next request on, `new` makes the routes, so that tests can intercept requests. Connections drop
        cached routes and fast paths, which bypass routes."""
        self._new = new
        self._routes.clear()
        for connection in self._broker.network.connections:
            connection.forget_route()

    def handler(self, key: int) -> Handler[Any]:
        """The handler of an API, for calls inside this node, which need no decoder."""
        return self._served(key)[1]

    def _served(self, key: int) -> tuple[ApiSpec, Handler[Any]]:
        served = SUPPORTED_APIS.get(key)
        if served is None or not served.listeners & self._listeners:
            raise ProtocolError(f"API {key} is not served")
        name = CONTROLLER_HANDLERS.get(key, served.name) if self._listeners == CONTROLLER else served.name
        handler: Handler[Any] = getattr(import_module(f"..handlers.{name}", __package__), name)
        return served, self._broker.guard.handler(handler)

    def find_fast_path(self, frame: memoryview, body: int, request: Request, route: Route) -> "FastPath | None":
        """The fast path for requests like this one, whose body begins at `body`; None if it is not eligible. Imported
        when first needed, as handlers are."""
        if self._fast_paths is None:
            made: FastPathRegistry = import_module("..fastpath.registry", __package__).FastPathRegistry(self._broker)
            self._fast_paths = made
        return self._fast_paths.find(frame, body, request, route)

    @property
    def logins(self) -> "Logins":
        return self._broker.logins

    def serve_raw_login(self, connection: Connection, gate: PreAuth, message: memoryview) -> None:
        """A SASL message after a SaslHandshake of version 0, which has no header. Neither has the response, and a
        failure gets no response: the connection is closed later."""
        outcome = self.logins.step(connection, gate, bytes(message))
        if not isinstance(outcome, Refused | Computation):
            connection.respond(SIZE.pack(len(outcome.data)) + outcome.data)
            return
        if isinstance(outcome, Computation):  # for tokens, which such old clients do not support
            self.logins.refuse(connection, gate, Failed("delegation and bearer tokens need SaslHandshake version 1"))
        self._broker.nursery.start_soon(self._abort_later, connection)

    async def _abort_later(self, connection: Connection) -> None:
        await trio.sleep(self.logins.failure_delay_s)
        if not connection.is_closed:
            connection.abort()

    def release_replicas(self) -> None:
        """Replicas have left this broker: the fast paths look up their replicas again."""
        if self._fast_paths is not None:
            self._fast_paths.release()
        for connection in self._broker.network.connections:
            connection.release_replicas()

    def go_on(self, connection: Connection) -> None:
        """A request that blocked others of its connection was answered, or may be overtaken. Those are served before
        this returns, unless it is called while another connection is resumed: then they are queued. Serving a request
        may unblock requests of further connections, and so on; the queue replaces an unbounded recursion."""
        self._resuming.append(connection)
        if self._is_resuming:
            return
        self._is_resuming = True
        try:
            while self._resuming:
                self._resuming.popleft().resume_serving()
        finally:
            self._is_resuming = False

    # -- input that is no request --------------------------------------------------------------------------------------

    def malformed(self, connection: Connection, problem: ProtocolError) -> None:
        connection.is_closing = True
        self.warn_once(connection.peer, "closed %s on %s: %s", connection.peer, connection.listener, problem)

    def on_foreign_protocol(self, connection: Connection, foreign: NotKafka) -> None:
        if foreign.spoken.startswith("HTTP"):
            connection.send_raw(wrong_port_response(self.http_address))
        connection.is_closing = True
        self.warn_once(
            connection.peer,
            "client %s sent %s to the %s listener",
            connection.peer,
            foreign.spoken,
            connection.listener,
        )

    def warn_once(self, peer: str, message: str, *arguments: object) -> None:
        """Logs a warning, once in WARN_INTERVAL_S for each host."""
        now = self._broker.clock.now()
        host = peer.rpartition(":")[0]
        if now - self._warned_at.get(host, -WARN_INTERVAL_S) >= WARN_INTERVAL_S:
            if len(self._warned_at) >= MAX_WARNED_HOSTS:
                self._warned_at.clear()
            self._warned_at[host] = now
            log.warning(message, *arguments)


def wrong_port_response(http_address: tuple[str, int] | None) -> bytes:
    """Response to HTTP clients at a Kafka port; `http_address` is the right one, if HTTP is served."""
    text = "This port of a Kafka broker serves Kafka's binary protocol, not HTTP.\n"
    if http_address is not None:
        host, port = http_address
        url = f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"
        text += f"Metrics and health are at {f'port {port}' if host in WILDCARD_HOSTS else url}.\n"
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Connection: close\r\n\r\n{text}".encode()
