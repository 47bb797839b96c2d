"""From (key, version) to handler, and from whatever a handler does to an answer.

    an answer            is sent
    a coroutine          runs in a task of its own, and answers when it returns
    a KafkaError         is mapped by the handler's `refuse` to a response that says so
    anything else        is a mistake of ours: logged, answered UNKNOWN_SERVER_ERROR, and the connection is closed

Bytes that are no request close the connection, as they do in Kafka; so does an API or a version that is not served. One
exception: a client that asks ApiVersions in a version of the future is answered in version 0, with the range that is
served, because that question is how it finds out.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from importlib import import_module
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from trioka.protocol.codec import decoder
from trioka.protocol.decoding import MAX_ELEMENTS
from trioka.protocol.errors import KafkaError, NotController, ProtocolError, UnknownServerError, UnsupportedVersion
from trioka.protocol.frame import StrangeProtocol
from trioka.protocol.header import API_VERSIONS_KEY
from trioka.protocol.schema import Request

from ..api import BROKER, CONTROLLER, OF_CONTROLLERS, SERVED, Handler, Served
from ..counters.errors import ErrorCounts
from ..counters.latency import RequestTimes
from .connection import FETCH_KEY, LATER, Answer, Call, Connection, Later

if TYPE_CHECKING:
    from trioka.protocol.messages.fetch import FetchRequest

    from ..broker import Broker
    from ..fastpath.fetch import FetchLane
    from ..fastpath.produce import ProduceLanes

log = logging.getLogger("trioka.dispatch")

COMPLAINT_INTERVAL_S: Final = 60.0  # one line a minute for each client that sends nonsense
MAX_COMPLAINTS: Final = 1000  # clients that are remembered for it
EVERYWHERE: Final = ("0.0.0.0", "::")  # where one listens, and where nobody can be reached


class Route:
    """What serves one version of one API."""

    __slots__ = (
        "_broker",
        "_decode",
        "_handler",
        "is_flexible",
        "is_for_clients",
        "key",
        "lane_key",
        "response_version",
        "version",
    )

    def __init__(self, broker: "Broker", handler: Handler[Any], key: int, version: int) -> None:
        self.key = key
        self.is_for_clients = True  # False on a listener of controllers
        self.lane_key = key  # another one if its requests must not be in a lane
        self.version = self.response_version = version
        self.is_flexible = version in handler.request.__flexible__
        self._broker = broker
        self._handler = handler
        self._decode = decoder(handler.request, version)

    @property
    def api(self) -> str:
        """Kafka's name of it."""
        name: str = self._handler.request.__name__
        return name.removesuffix("Request")

    def decode(self, frame: memoryview, body: int) -> Request:
        # What follows the request in its frame is ignored, as Kafka ignores it.
        request: Request = self._decode(frame, body, MAX_ELEMENTS)[0]
        return request

    @property
    def handler(self) -> Handler[Any]:
        return self._handler

    def serve(self, call: Call, request: Request) -> Answer | Later:
        try:
            if self._handler.forwards and self._may_be_passed_on():
                answer: Any = self._broker.forwarding.forward(call, request, self._handler)
            else:
                answer = self._handler.serve(self._broker, call, request)
        except KafkaError as error:
            if self.key <= FETCH_KEY:  # the others' answers are looked into
                self._broker.dispatch.errors.add(self.key, error.code)
            return self._handler.refuse(request, error)
        except Exception as mistake:
            return self._our_mistake(call, request, mistake)
        if type(answer) is CoroutineType:
            self._broker.dispatch.running += 1
            self._broker.nursery.start_soon(self._finish, call, request, answer)
            return LATER
        return answer  # type: ignore[no-any-return]

    def _may_be_passed_on(self) -> bool:
        """An active controller may cease to be one before it has answered, if there are others; then one of them is
        asked. A client that was told NOT_CONTROLLER might take that for the answer."""
        quorum = self._broker.quorum
        if self.is_for_clients:
            return quorum.has_company or not quorum.is_active
        if not quorum.is_active:
            raise NotController
        return False

    async def _finish(self, call: Call, request: Request, coroutine: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await coroutine
        except KafkaError as error:
            answer = self._handler.refuse(request, error)
        except Exception as mistake:
            answer = self._our_mistake(call, request, mistake)
        finally:
            self._broker.dispatch.running -= 1
        call.reply(answer)

    def _our_mistake(self, call: Call, request: Request, mistake: Exception) -> Answer:
        where = f"{type(request).__name__} v{self.version} from {call.connection.peer}"
        log.error("a mistake of ours: %s", where, exc_info=mistake)
        call.connection.is_closing = True
        return self._handler.refuse(request, UnknownServerError())


class _UnknownApiVersions(Route):
    """ApiVersions in a version that nobody here knows: its body is not looked at."""

    __slots__ = ()

    def decode(self, frame: memoryview, body: int) -> Request:
        return self._handler.request.nothing()  # type: ignore[no-any-return]

    def serve(self, call: Call, request: Request) -> Answer:
        return self._handler.refuse(request, UnsupportedVersion())


class Dispatch:
    """For one kind of listeners: those for clients, or those of controllers."""

    def __init__(self, broker: "Broker", listeners: int = BROKER) -> None:
        self._broker = broker
        self._listeners = listeners
        self._routes: dict[tuple[int, int], Route] = {}
        self._new: Callable[[Broker, Handler[Any], int, int], Route] = Route
        self.together = broker.together
        self._produce_lanes: ProduceLanes | None = None
        self._complaints: dict[str, float] = {}
        self._going_on: deque[Connection] = deque()
        self._is_going_on = False
        self.running = 0  # requests that are being served, and wait for something
        self.times = RequestTimes(broker.clock.now)
        self.errors = ErrorCounts()
        self.http_address: tuple[str, int] | None = None  # of metrics and health, for who knocks here instead

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
        """From the next request on, `new` makes the routes: how a test gets into the way of requests. Connections
        forget what they know, and their lanes, which lead past every route."""
        self._new = new
        self._routes.clear()
        for connection in self._broker.network.connections:
            connection.forget_route()

    def handler(self, key: int) -> Handler[Any]:
        """For who asks without a wire in between, and needs no decoder."""
        return self._served(key)[1]

    def _served(self, key: int) -> tuple[Served, Handler[Any]]:
        served = SERVED.get(key)
        if served is None or not served.listeners & self._listeners:
            raise ProtocolError(f"API {key} is not served")
        name = OF_CONTROLLERS.get(key, served.name) if self._listeners == CONTROLLER else served.name
        handler: Handler[Any] = getattr(import_module(f"..handlers.{name}", __package__), name)
        return served, self._broker.guard.handler(handler)

    @property
    def produce_lanes(self) -> "ProduceLanes":
        """Imported with the first Produce, as its handler is."""
        if self._produce_lanes is None:
            made: ProduceLanes = import_module("..fastpath.produce", __package__).ProduceLanes(self._broker)
            self._produce_lanes = made
        return self._produce_lanes

    def release_replicas(self) -> None:
        """Some have left this broker: the lanes look for theirs anew."""
        if self._produce_lanes is not None:
            self._produce_lanes.quiet()
        for connection in self._broker.network.connections:
            connection.release_replicas()

    def fetch_lane(self, frame: memoryview, body: int, request: "FetchRequest", version: int) -> "FetchLane | None":
        """For more of its kind, if it is one for a lane (fastpath/fetch.py, imported here for the same reason). Where
        there is an authorizer there are no lanes: each request is asked about."""
        if self._broker.guard.is_closed:
            return None
        lane: FetchLane | None = import_module("..fastpath.fetch", __package__).lane_for(
            self._broker, frame, body, request, version
        )
        return lane

    def go_on(self, connection: Connection) -> None:
        """A request that held up others of its connection was answered, or may be passed. These are served before this
        returns, unless it is called while others are served in this way: then they are next. A request that is served
        may be what those of other connections wait for, and so on, as far as clients have sent; so nothing calls itself
        here."""
        self._going_on.append(connection)
        if self._is_going_on:
            return
        self._is_going_on = True
        try:
            while self._going_on:
                self._going_on.popleft().serve_on()
        finally:
            self._is_going_on = False

    # -- what is no request -------------------------------------------------------------------------------------------

    def malformed(self, connection: Connection, problem: ProtocolError) -> None:
        connection.is_closing = True
        self.complain(connection.peer, "closed %s on %s: %s", connection.peer, connection.listener, problem)

    def met_a_stranger(self, connection: Connection, stranger: StrangeProtocol) -> None:
        if stranger.spoken.startswith("HTTP"):
            connection.say(http_answer(self.http_address))
        connection.is_closing = True
        self.complain(
            connection.peer,
            "client %s speaks %s to the %s listener",
            connection.peer,
            stranger.spoken,
            connection.listener,
        )

    def complain(self, peer: str, message: str, *arguments: object) -> None:
        now = self._broker.clock.now()
        host = peer.rpartition(":")[0]
        if now - self._complaints.get(host, -COMPLAINT_INTERVAL_S) >= COMPLAINT_INTERVAL_S:
            if len(self._complaints) >= MAX_COMPLAINTS:
                self._complaints.clear()
            self._complaints[host] = now
            log.warning(message, *arguments)


def http_answer(elsewhere: tuple[str, int] | None) -> bytes:
    """To a browser or a scraper at the wrong door; `elsewhere` is the right one, if there is any."""
    text = "This is a Kafka broker's port. It speaks Kafka's binary protocol, not HTTP.\n"
    if elsewhere is not None:
        host, port = elsewhere
        at = f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"
        text += f"Metrics and health are at {f'port {port}' if host in EVERYWHERE else at}.\n"
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Connection: close\r\n\r\n{text}".encode()
