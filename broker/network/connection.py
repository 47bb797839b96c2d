"""One connection, without its socket: bytes in, requests served in order, pieces of replies out.

The network receives into `room()` and says `received(size)`. Every request that is complete is served at once: read,
handed to its handler, and its reply appended to `outgoing`. The network then sends all of them with one call. A handler
that must wait returns nothing, and answers through its `Call` later.

**The order of a connection.** Requests of one connection are served one after the other, as Kafka does it: a client may
send CreateTopics and, without waiting, Metadata, and expects to see its topic. So a request that waits holds up those
behind it, whatever it waits for: records, a coordinator, a topic that is being created, a disk. One pair is different:
a Produce is served while earlier Produces wait for their replicas or for a sync, once all records of the earlier ones
are appended (or refused), because its own are appended behind them in any case. The handler of the earlier Produce says
so (`Call.let_pass`); until then nothing passes it. `_must_wait` is the only place that decides this. The lanes, and
requests that are put off to be served with those of others (fastpath/coalescer.py), are for a connection on which
nothing waits. Replies leave in the order of their requests.

A connection whose client does not read is not read from either, once so much waits to be sent (`MAX_OUTGOING_BYTES`).
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import ProtocolError
from trioka.protocol.frame import FrameReader, OrderedReplies, Scratch, StrangeProtocol, frame_response
from trioka.protocol.header import REQUEST_START, client_id_and_body
from trioka.protocol.primitives import RecordBytes
from trioka.protocol.schema import Response

if TYPE_CHECKING:
    from trioka.protocol.messages.fetch import FetchRequest
    from trioka.protocol.messages.produce import ProduceRequest

    from ..fastpath.fast_path import Lane
    from .dispatch import Dispatch, Route

log = logging.getLogger("trioka.dispatch")

ANONYMOUS: Final = "User:ANONYMOUS"
MAX_OUTGOING_BYTES: Final = 16 * 1024 * 1024
MAX_UNANSWERED: Final = 100  # Produces that wait at once; Kafka's own clients send five ahead
MAX_KEPT_HEADER_BYTES: Final = 1024  # a longer one is read anew with each request
LANE_TRIES: Final = 100  # of one connection: to make a lane costs as much as a large request, and is to pay
NOT_YET: Final = b""
PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1


class Later(Enum):
    """What a handler returns that will answer through its call, when there is something to answer."""

    LATER = 0


LATER: Final = Later.LATER

Answer = Response | bytes | None
"""A response, or one that is framed already; None where the client expects none."""


class Call:
    """A request on its way to its reply."""

    __slots__ = (
        "began",
        "client_id",
        "connection",
        "correlation_id",
        "may_be_passed",
        "on_abandoned",
        "route",
        "ticket",
    )

    def __init__(self, connection: "Connection", route: "Route", correlation_id: int) -> None:
        self.connection = connection
        self.route = route
        self.correlation_id = correlation_id
        self.client_id = connection.client_id
        self.on_abandoned: Callable[[], None] | None = None  # set by who waits: called when the client is gone
        self.may_be_passed = False  # by Produces that come behind it on its connection
        self.ticket = -1  # its place in the order of replies, once it waits
        self.began: float  # and when it came

    @property
    def version(self) -> int:
        return self.route.version

    def reply(self, response: Answer) -> None:
        """The answer, once; None where the client expects none. If the client has gone, nothing happens. Raises
        nothing: who answers is often busy with somebody else's request."""
        self.connection.answered(self, response)

    def fail(self, mistake: Exception) -> None:
        """The request cannot be answered, by a mistake of ours. Its client learns of it: the connection is closed."""
        log.error("a mistake of ours: %s from %s", self.route.api, self.connection.peer, exc_info=mistake)
        self.connection.abort()

    def let_pass(self) -> None:
        """Says, of a Produce, that nothing of it is left to append, though it is not answered yet. From now on the
        Produces behind it are served."""
        self.may_be_passed = True
        if self.ticket >= 0:  # it waits already, and so may those behind it
            self.connection.go_on()


class Connection:
    __slots__ = (
        "_began",
        "_client_id_bytes",
        "_dispatch",
        "_header",
        "_header_end",
        "_is_serving",
        "_lane",
        "_lane_tries",
        "_last_topic",
        "_replies",
        "_route",
        "_route_key",
        "_unanswered",
        "client_id",
        "host",
        "is_closed",
        "is_closing",
        "last_active",
        "listener",
        "on_output",
        "outgoing",
        "outgoing_bytes",
        "peer",
        "principal",
        "put_off",
        "reader",
    )

    def __init__(
        self, dispatch: "Dispatch", scratch: Scratch, *, host: str, port: int, listener: str, max_bytes: int
    ) -> None:
        self.host = host  # in the spelling of cluster/host_address.py
        self.peer = f"{host}:{port}"  # for the log
        self.principal = ANONYMOUS  # who it is, until it says so
        self.listener = listener
        self.client_id = ""
        self.outgoing: deque[RecordBytes] = deque()
        self.outgoing_bytes = 0
        self.is_closing = False  # nothing more is read; what is outgoing is still sent
        self.is_closed = False
        self.put_off: bytes | None = None  # a request that waits for those of others has no answer yet, or has this one
        self.last_active = 0.0
        self.on_output: Callable[[], None] = _nothing  # the network's: something to send that it does not know of
        self._dispatch = dispatch
        self.reader = FrameReader(scratch, max_bytes)
        self._replies: OrderedReplies[list[RecordBytes]] = OrderedReplies()
        self._unanswered: deque[Call] = deque()
        self._client_id_bytes = b""
        # The last request's header, from behind its correlation id on, and what came of it: the next one's is the same,
        # nearly always, and need not be read again.
        self._header: bytes | None = None
        self._header_end = 0
        self._route_key = (-1, -1)
        self._route: Route
        self._lane: Lane | None = None
        self._last_topic = (-1, "", b"")  # and key, of the last request that could have been in a lane
        self._lane_tries = LANE_TRIES
        self._is_serving = False
        self._began = 0.0  # when the request that is not complete began to come

    # -- what the network does ---------------------------------------------------------------------------------------

    def room(self) -> memoryview:
        return self.reader.room()

    def received(self, size: int) -> None:
        reader = self.reader
        if reader.start == reader.end:
            self._began = self.last_active
        reader.end += size
        lane = self._lane
        if lane is not None and not (self._unanswered or self.outgoing or self.is_closing):
            if self._dispatch.together.is_open and lane.put_off(self):
                self.put_off = NOT_YET
                return
            self.outgoing_bytes += lane.serve(self)
            if reader.start == reader.end:  # that was all, nearly always
                if reader.own is None:
                    reader.start = reader.end = 0
                else:
                    reader.keep()
                return
        self._serve_all()

    def settle(self) -> None:
        """What was put off has no answer from there: it takes the usual road, and may have one then."""
        assert self.put_off is NOT_YET
        self.put_off = None
        self._serve_all()

    @property
    def held_bytes(self) -> int:
        """The memory that a request which is not complete takes."""
        return self.reader.held_bytes

    def is_stalled(self, now: float, patience_s: float, bytes_per_s: float) -> bool:
        """Whether a request has begun long ago, and has hardly come since."""
        waiting = self.reader.waiting_bytes
        took = now - self._began
        return bool(waiting) and not self._must_wait() and took > patience_s and waiting < took * bytes_per_s

    @property
    def is_at_rest(self) -> bool:
        """Nothing to send, nothing that waits: all there is to do is to read."""
        return not (self.outgoing or self._unanswered or self.is_closing)

    @property
    def may_read(self) -> bool:
        """Whether what comes next could be served. If not, it had better stay in the kernel."""
        return not (self.is_closing or self._must_wait())

    def sent(self, size: int) -> None:
        """So much of `outgoing` is on its way; the network has taken it from the queue."""
        stood_still = self.outgoing_bytes > MAX_OUTGOING_BYTES
        self.outgoing_bytes -= size
        assert self.outgoing_bytes >= 0
        if stood_still and self.outgoing_bytes <= MAX_OUTGOING_BYTES and not self._is_serving:
            self._serve_all()

    def close(self) -> None:
        """The client is gone, or sent away. Whoever waits for it learns of it."""
        if self.is_closed:
            return
        self.is_closed = self.is_closing = True
        self.outgoing.clear()
        self.outgoing_bytes = 0
        for call in self._unanswered:
            if call.on_abandoned is not None:
                call.on_abandoned()
                call.on_abandoned = None
        self._unanswered.clear()

    def abort(self) -> None:
        """Something is wrong on our side: the client gets nothing more, and learns of it."""
        self.outgoing.clear()
        self.outgoing_bytes = 0
        self.is_closing = True
        self.on_output()

    def quiet(self) -> None:
        """Nothing has come for a while: a large buffer is not needed any more, nor what its lane holds."""
        self.reader.shrink()
        self.release_replicas()

    def release_replicas(self) -> None:
        """Some have left this broker: what is known of any is forgotten."""
        if self._lane is not None:
            self._lane.quiet()

    def forget_route(self) -> None:
        """Requests are to be served otherwise than before: the next one is looked at anew."""
        self._route_key, self._lane, self._last_topic = (-1, -1), None, (-1, "", b"")

    @property
    def unanswered(self) -> Sequence[Call]:
        """The requests that are being served, the oldest first."""
        return tuple(self._unanswered)

    @property
    def waits(self) -> bool:
        """Whether a request is being served: such a connection is not idle."""
        return bool(self._unanswered)

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def _is_free(self) -> bool:
        return not self._unanswered and self.outgoing_bytes <= MAX_OUTGOING_BYTES

    def _must_wait(self) -> bool:
        """Whether nothing that comes next may be served now. If the last request that is not answered may be passed,
        so may those before it, or it would not have been served."""
        if self.outgoing_bytes > MAX_OUTGOING_BYTES:
            return True
        waiting = self._unanswered
        return bool(waiting) and (not waiting[-1].may_be_passed or len(waiting) >= MAX_UNANSWERED)

    def _serve_all(self) -> None:
        """Serves every request that is complete, as far as they may be served now."""
        self._is_serving = True
        try:
            frames = self.reader.frames()
            while not self.is_closing and (self._is_free or not self._must_wait()):
                frame = next(frames, None)
                if frame is None:
                    break
                if self._unanswered and REQUEST_START.unpack_from(frame, 0)[0] != PRODUCE_KEY:  # only these may pass
                    self.reader.put_back(frame)
                    break
                self._serve(frame)
        except StrangeProtocol as stranger:
            self._dispatch.met_a_stranger(self, stranger)
        except ProtocolError as problem:
            self._dispatch.malformed(self, problem)
        finally:
            self._is_serving = False
            self.reader.keep()

    def _serve(self, frame: memoryview) -> None:
        key, version, correlation_id = REQUEST_START.unpack_from(frame, 0)
        if self._route_key != (key, version) or frame[8 : self._header_end] != self._header:  # type: ignore[comparison-overlap]
            self._read_header(frame, key, version)
        route = self._route
        request = route.decode(frame, self._header_end)
        call = Call(self, route, correlation_id)
        response = route.serve(call, request)
        if response is LATER:
            call.ticket = self._replies.expect()
            call.began = self.last_active
            self._unanswered.append(call)
            return
        times, key = self._dispatch.times, route.key
        times.pending[key] += 1
        if key > FETCH_KEY:
            times.others.add(key)
            self._dispatch.errors.look(key, response)
        if self._unanswered:
            self._replies.ready(self._replies.expect(), self._pieces(call, response))
        elif isinstance(response, bytes):
            self.outgoing.append(response)
            self.outgoing_bytes += len(response)
            if route.lane_key == PRODUCE_KEY:
                self._look_for_lane(frame, request)  # type: ignore[arg-type]
        elif response is not None:
            self._send(frame_response(correlation_id, response, route.response_version))
            if route.lane_key == FETCH_KEY:
                self._look_for_fetch_lane(frame, request)  # type: ignore[arg-type]

    # With the second request for the same topic, more of the kind are to be expected.

    def _look_for_lane(self, frame: memoryview, request: "ProduceRequest") -> None:
        """After a plain answer: what came for one partition was appended."""
        (topic,) = request.topic_data
        if self._last_topic == (PRODUCE_KEY, topic.name, topic.topic_id):
            lanes = self._dispatch.produce_lanes
            self._lane = lanes.lane_for(frame, self._header_end, request, self._route.version)
        self._last_topic = (PRODUCE_KEY, topic.name, topic.topic_id)

    def _look_for_fetch_lane(self, frame: memoryview, request: "FetchRequest") -> None:
        """After an answer that could be given at once; what it said does not matter. A lane that knows the request and
        did not take it is kept: the next one may be plain again."""
        if len(request.topics) != 1:
            return
        topic = request.topics[0]
        last, self._last_topic = self._last_topic, (FETCH_KEY, topic.topic, topic.topic_id)
        if last != self._last_topic or not self._lane_tries or (self._lane is not None and self._lane.is_for(frame)):
            return
        self._lane_tries -= 1
        self._lane = self._dispatch.fetch_lane(frame, self._header_end, request, self._route.version)

    def _read_header(self, frame: memoryview, key: int, version: int) -> None:
        route = self._dispatch.route(key, version)
        client_id, body = client_id_and_body(frame, route.is_flexible)
        if client_id != self._client_id_bytes:  # type: ignore[comparison-overlap]
            self._new_client_id(client_id)
        self._route, self._route_key = route, (key, version)
        self._header = bytes(frame[8:body]) if body <= MAX_KEPT_HEADER_BYTES else None
        self._header_end = body

    def answered(self, call: Call, response: Answer) -> None:
        """A request that waited has its answer."""
        if self.is_closed:
            return
        self._unanswered.remove(call)
        call.on_abandoned = None  # who waited has the call: a circle, which only the garbage collector would find
        self._dispatch.times.waited(call.route.key, call.began)
        if call.route.key > FETCH_KEY:
            self._dispatch.errors.look(call.route.key, response)
        try:
            self._replies.ready(call.ticket, self._pieces(call, response))
        except Exception as mistake:  # an answer that this version cannot say
            call.fail(mistake)
            return
        for pieces in self._replies.take():
            self._send(pieces)
        self.go_on()

    def go_on(self) -> None:
        """Those who waited for another request of this connection may be served now."""
        if not self._is_serving:
            self._dispatch.go_on(self)

    def serve_on(self) -> None:
        """Serves those, and sends what there is to say."""
        if self.is_closed or self._is_serving:
            return
        try:
            self._serve_all()
        except Exception as mistake:
            log.error("while serving %s", self.peer, exc_info=mistake)
            self.abort()
        else:
            self.on_output()

    def _pieces(self, call: Call, response: Answer) -> list[RecordBytes] | None:
        if response is None:
            return None
        if isinstance(response, bytes):
            return [response]
        return frame_response(call.correlation_id, response, call.route.response_version)

    def _send(self, pieces: list[RecordBytes]) -> None:
        self.outgoing.extend(pieces)
        self.outgoing_bytes += sum(map(len, pieces))

    def queue(self, answer: bytes) -> None:
        """The rest of an answer that could not be sent at once."""
        self.outgoing.append(answer)
        self.outgoing_bytes += len(answer)

    def say(self, text: bytes) -> None:
        """Something that is not Kafka's protocol, to someone who does not speak it; and good bye."""
        self._send([text])
        self.is_closing = True

    def _new_client_id(self, client_id: memoryview | None) -> None:
        self._client_id_bytes = b"" if client_id is None else bytes(client_id)
        try:
            self.client_id = self._client_id_bytes.decode()
        except UnicodeDecodeError:
            raise ProtocolError("request header: client_id: it is not UTF-8") from None


def _nothing() -> None:
    pass
