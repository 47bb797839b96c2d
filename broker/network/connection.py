"""One connection, without its socket: bytes in, requests served in order, pieces of replies out.

The server receives into `receive_buffer()` and calls `received(size)`. Every complete request is served at once: it is
decoded, handed to its handler, and the response appended to `outgoing`. The server then sends all responses by one
call. A handler that must wait returns PENDING and responds through its `Call` later.

**The order of a connection.** Requests of one connection are served one after the other, as Kafka does it: a client may
send CreateTopics and, without waiting, Metadata, and expects to see its topic. So a request that waits blocks those
behind it, whatever it waits for: records, a coordinator, a topic that is being created, a disk. One pair is different:
a Produce is served while earlier Produces wait for their replicas or for a sync, once all records of the earlier ones
are appended (or refused), because its own records follow them in any case. The handler of the earlier Produce calls
`Call.allow_pipelining` then; until that no request passes it. `_is_blocked` is the only place that decides this. The
Produce fast path follows the same rule; the Fetch fast path and deferred requests (fastpath/coalescer.py) need a
connection without waiting requests. Responses leave in the order of their requests.

Back-pressure: while more than `MAX_OUTGOING_BYTES` wait to be sent to a client, nothing is read from it.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import ProtocolError
from trioka.protocol.frame import (
    HEADER_KEY_BYTES,
    MAX_REQUEST_BYTES,
    FrameReader,
    NotKafka,
    OrderedReplies,
    ReceiveBuffer,
    frame_response,
)
from trioka.protocol.header import REQUEST_START, client_id_and_body
from trioka.protocol.primitives import RecordBytes
from trioka.protocol.schema import Request, Response

from ..config.addresses import SecurityProtocol
from ..security.guard import ANONYMOUS
from ..security.pre_auth import PreAuth, SaslState, SessionExpired

if TYPE_CHECKING:
    from trioka.protocol.messages.fetch import FetchRequest
    from trioka.protocol.messages.produce import ProduceRequest

    from ..fastpath.fast_path import FastPath
    from ..security.permit import Permit
    from ..security.tls_context import TlsSession
    from .channel_mute import ChannelMute
    from .charge import Charge
    from .dispatch import Dispatch, Route

log = logging.getLogger("trioka.dispatch")

MAX_OUTGOING_BYTES: Final = 16 * 1024 * 1024
MAX_INFLIGHT: Final = 100  # Produces that wait at once; Kafka's clients send at most five ahead
MAX_CACHED_HEADER_BYTES: Final = 1024  # a longer header is parsed with each request
FAST_PATH_TRIES: Final = 100  # of one connection: making a fast path costs as much as a large request
NO_RESPONSE_YET: Final = b""
PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1


class Pending(Enum):
    """Returned by a handler that responds through its `Call` later."""

    PENDING = 0


PENDING: Final = Pending.PENDING

CallResponse = Response | bytes | None
"""A response, or one that is framed already; None if the client expects none (acks=0)."""


class Call:
    """A request that is being served."""

    __slots__ = (
        "allows_pipelining",
        "began",
        "charge",
        "client_id",
        "connection",
        "correlation_id",
        "on_disconnect",
        "reply_index",
        "requests",
        "route",
    )

    def __init__(self, connection: "Connection", route: "Route", correlation_id: int, requests: int = 1) -> None:
        self.connection = connection
        self.route = route
        self.correlation_id = correlation_id
        self.client_id = connection.client_id
        self.requests = requests  # more than one if a fast path appended several, which one reply answers
        self.on_disconnect: Callable[[], None] | None = None  # set by a waiting operation
        self.allows_pipelining = False  # Produces behind it on its connection may be served
        self.reply_index = -1  # its index in the order of responses, once it waits
        self.began: float  # arrival time, once it waits
        self.charge: Charge  # to the client's quotas; set only if there are quotas

    @property
    def version(self) -> int:
        return self.route.version

    def reply(self, response: CallResponse) -> None:
        """Sends the response; to be called once. Does nothing if the client has disconnected. Never raises, because
        the caller is often serving another client's request."""
        self.connection.answered(self, response)

    def fail(self, mistake: Exception) -> None:
        """An internal error: the request cannot be answered, so its connection is closed."""
        log.error("internal error: %s from %s", self.route.api, self.connection.peer, exc_info=mistake)
        self.connection.abort()

    def allow_pipelining(self) -> None:
        """Called for a Produce whose records are all appended, but which is not answered yet. From now on the Produces
        behind it are served."""
        self.allows_pipelining = True
        if self.reply_index >= 0:  # it waits already, and Produces behind it may wait too
            self.connection.go_on()


class Connection:
    __slots__ = (
        "_began",
        "_client_id_bytes",
        "_dispatch",
        "_fast_path",
        "_fast_path_tries",
        "_header",
        "_header_end",
        "_inflight",
        "_is_serving",
        "_last_topic",
        "_max_bytes",
        "_permit",
        "_replies",
        "_route",
        "_route_key",
        "client_id",
        "deferred",
        "gate",
        "host",
        "is_closed",
        "is_closing",
        "is_token_authenticated",
        "last_active",
        "listener",
        "muted",
        "on_output",
        "outgoing",
        "outgoing_bytes",
        "peer",
        "principal",
        "reader",
        "security_protocol",
        "session_expires_at",
        "tls",
        "token_id",
    )

    def __init__(
        self,
        dispatch: "Dispatch",
        scratch: ReceiveBuffer,
        *,
        host: str,
        port: int,
        listener: str,
        max_bytes: int,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        max_login_bytes: int = MAX_REQUEST_BYTES,
        now: float = 0.0,
    ) -> None:
        self.host = host  # spelled as in cluster/host_address.py
        self.peer = f"{host}:{port}"  # for the log
        self.principal = ANONYMOUS  # until the login is complete
        self.is_token_authenticated = False
        self.token_id: str | None = None  # of the delegation token that authenticated it
        self.session_expires_at: float | None = None  # by the connection's clock; None for never
        self.security_protocol: SecurityProtocol | None = security_protocol  # None for a forwarded request
        self.gate = PreAuth(now) if security_protocol.sasl else None  # None if no request needs a check any more
        self.tls: TlsSession | None = None  # None without TLS
        self.listener = listener
        self.client_id = ""
        self.outgoing: deque[RecordBytes] = deque()
        self.outgoing_bytes = 0
        self.is_closing = False  # no more requests are read; `outgoing` is still sent
        self.is_closed = False
        self.muted: ChannelMute | None = None  # while its client is throttled: nothing is read or served
        # While a request is deferred to the end of the round: NO_RESPONSE_YET, then its response.
        self.deferred: bytes | None = None
        self.last_active = now
        self.on_output: Callable[[], None] = _nothing  # set by the server: there is output, or more may be read
        self._dispatch = dispatch
        self._max_bytes = max_bytes
        self.reader = FrameReader(scratch, max_bytes if self.gate is None else min(max_bytes, max_login_bytes))
        self._replies: OrderedReplies[list[RecordBytes]] = OrderedReplies()
        self._inflight: deque[Call] = deque()
        self._client_id_bytes = b""
        # The last request's header behind the correlation id, with its parsed form. The next header is nearly always
        # the same and is then not parsed again.
        self._header: bytes | None = None
        self._header_end = 0
        self._route_key = (-1, -1)
        self._route: Route
        self._fast_path: FastPath | None = None
        self._permit: Permit | None = None  # for the fast path
        self._last_topic = (-1, "", b"")  # API key, name and id of the last request that was eligible for a fast path
        self._fast_path_tries = FAST_PATH_TRIES
        self._is_serving = False
        self._began = 0.0  # when the first byte of the incomplete request arrived

    # -- called by the server ------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        return self.reader.receive_buffer()

    def received(self, size: int) -> None:
        reader = self.reader
        if reader.start == reader.end:
            self._began = self.last_active
        reader.end += size
        fast_path = self._fast_path
        if fast_path is not None and not (self.outgoing or self.is_closing) and self._may_use(fast_path):
            if self._dispatch.coalescer.is_open and not self._inflight and fast_path.try_defer(self):
                self.deferred = NO_RESPONSE_YET
                return
            self._is_serving = True  # an append may complete earlier requests of this connection
            try:
                fast_path.try_serve(self)
            finally:
                self._is_serving = False
            if reader.start == reader.end:  # usually the fast path has served everything
                if reader.own is None:
                    reader.start = reader.end = 0
                else:
                    reader.keep()
                return
        self._serve_all()

    def _may_use(self, fast_path: "FastPath") -> bool:
        """Whether the fast path may serve the next requests: its permit is current, the client is not throttled, and no
        request waits that they may not overtake."""
        permit = self._permit
        if permit is None or permit.stamp is not self._dispatch.guard.stamp or self.muted is not None:
            return False
        if self.gate is not None and not self.gate.admits_fast_path(self.last_active):
            return False
        return not self._inflight or (fast_path.may_overtake and not self._is_blocked())

    def respond(self, response: bytes) -> None:
        """The response of a request that does not wait, behind those of earlier requests that do."""
        if self._inflight:
            self._replies.ready(self._replies.expect(), [response])
        else:
            self.outgoing.append(response)
            self.outgoing_bytes += len(response)

    def begin_call(self, route: "Route", correlation_id: int, requests: int = 1) -> Call:
        """Requests of a fast path whose records are appended, and whose reply waits until they are committed."""
        call = Call(self, route, correlation_id, requests)
        call.allows_pipelining = True
        self._wait_for(call)
        return call

    def begin_deferred_call(self, route: "Route", correlation_id: int) -> Call:
        """The same for the deferred request, which is consumed."""
        assert self.deferred is NO_RESPONSE_YET
        self.deferred = None
        self.reader.start = self.reader.end = 0
        return self.begin_call(route, correlation_id)

    def _wait_for(self, call: Call) -> None:
        call.reply_index = self._replies.expect()
        call.began = self.last_active
        self._inflight.append(call)

    def serve_deferred(self) -> None:
        """The coalescer did not take the deferred request: it takes the general path."""
        assert self.deferred is NO_RESPONSE_YET
        self.deferred = None
        self._serve_all()

    @property
    def held_bytes(self) -> int:
        """The memory that a request which is not complete takes."""
        return self.reader.held_bytes

    def is_stalled(self, now: float, stalled_s: float, bytes_per_s: float) -> bool:
        """Whether an incomplete request is older than `stalled_s` and arrives more slowly than this rate."""
        waiting = self.reader.waiting_bytes
        took = now - self._began
        may_come = self.muted is None and not self._is_blocked()
        return bool(waiting) and may_come and took > stalled_s and waiting < took * bytes_per_s

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be sent and no request waits: the connection only has to be read."""
        return not (self.outgoing or self._inflight or self.is_closing or self.muted)

    @property
    def may_read(self) -> bool:
        """Whether a request that arrives now could be served. If not, its bytes stay in the kernel."""
        return not (self.is_closing or self.muted or self._is_blocked())

    def sent(self, size: int) -> None:
        """The server has sent so many bytes and removed them from `outgoing`."""
        was_blocked = self.outgoing_bytes > MAX_OUTGOING_BYTES
        self.outgoing_bytes -= size
        assert self.outgoing_bytes >= 0
        if was_blocked and self.outgoing_bytes <= MAX_OUTGOING_BYTES and not self._is_serving:
            self._serve_all()

    def close(self) -> None:
        """The socket is closed. Waiting operations are cancelled through `on_disconnect`."""
        if self.is_closed:
            return
        self.is_closed = self.is_closing = True
        self.outgoing.clear()
        self.outgoing_bytes = 0
        for call in self._inflight:
            if call.on_disconnect is not None:
                call.on_disconnect()
                call.on_disconnect = None
        self._inflight.clear()
        if self.muted is not None:
            self.muted.cancel()
            self.muted = None

    def unmute(self, now: float) -> None:
        """The throttle time is over: serves what the client has sent meanwhile. Its idle time starts now."""
        self.muted = None
        self.last_active = self._began = now
        self._dispatch.go_on(self)

    def abort(self) -> None:
        """Closes the connection without sending what is outgoing, after an internal error."""
        self.outgoing.clear()
        self.outgoing_bytes = 0
        self.is_closing = True
        self.on_output()

    def release_buffers(self) -> None:
        """The connection is idle: releases a large buffer, and the references of its fast path."""
        self.reader.shrink()
        self.release_replicas()

    def release_replicas(self) -> None:
        """Replicas have left this broker: the fast path drops its cached references."""
        if self._fast_path is not None:
            self._fast_path.release()

    def forget_route(self) -> None:
        """Routes have changed: drops the cached header, route and fast path."""
        self._route_key, self._last_topic = (-1, -1), (-1, "", b"")
        self._fast_path = self._permit = None

    @property
    def unanswered(self) -> Sequence[Call]:
        """The requests without a response, oldest first."""
        return tuple(self._inflight)

    @property
    def waits(self) -> bool:
        """Whether a request waits or the client is throttled. Such a connection does not count as idle."""
        return bool(self._inflight or self.muted)

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def _is_free(self) -> bool:
        return not self._inflight and self.outgoing_bytes <= MAX_OUTGOING_BYTES

    def _is_blocked(self) -> bool:
        """Whether no further request may be served now. If the last waiting request may be overtaken, so may those
        before it; otherwise it would not have been served."""
        if self.outgoing_bytes > MAX_OUTGOING_BYTES:
            return True
        waiting = self._inflight
        return bool(waiting) and (not waiting[-1].allows_pipelining or len(waiting) >= MAX_INFLIGHT)

    def _serve_all(self) -> None:
        """Serves the complete requests until one must wait."""
        self._is_serving = True
        try:
            frames = self.reader.frames()
            while not (self.is_closing or self.muted) and (self._is_free or not self._is_blocked()):
                frame = next(frames, None)
                if frame is None:
                    break
                if self._inflight and not _is_produce(frame):  # only these overtake
                    self.reader.push_back(frame)
                    break
                self._serve(frame)
        except NotKafka as foreign:
            self._dispatch.on_foreign_protocol(self, foreign)
        except ProtocolError as problem:
            self._dispatch.malformed(self, problem)
        finally:
            self._is_serving = False
            self.reader.keep()

    def _is_admitted(self, gate: PreAuth, frame: memoryview) -> bool:
        """Whether a frame is a request that may be served now. SASL messages without a header are served here."""
        if gate.state is SaslState.RAW:
            self._dispatch.serve_raw_login(self, gate, frame)
            return False
        if gate.state is SaslState.FAILED:
            return False  # a SASL message behind the last one may be shorter than a header
        try:
            return gate.admit(REQUEST_START.unpack_from(frame, 0)[0], self.last_active)
        except SessionExpired:
            self._dispatch.logins.session_expired(self)
            self.is_closing = True
            return False

    def logged_in(self, principal: str, expires_at: float | None, *, is_token: bool) -> None:
        """The SASL login is complete, for the first time or again."""
        assert self.gate is not None
        self.principal = principal
        self.is_token_authenticated = is_token
        self.session_expires_at = expires_at
        self.reader.min_bytes, self.reader.max_bytes = HEADER_KEY_BYTES, self._max_bytes
        self.gate.complete(principal, expires_at)
        if expires_at is None:
            self.gate = None
        self._fast_path = self._permit = None

    def shorten_session(self, expires_at: float) -> None:
        """The credential of the login expires earlier than before."""
        if self.gate is not None and self.gate.expires_at is not None:
            self.session_expires_at = self.gate.expires_at = min(self.gate.expires_at, expires_at)

    def _serve(self, frame: memoryview) -> None:
        if self.gate is not None and not self._is_admitted(self.gate, frame):
            return
        key, version, correlation_id = REQUEST_START.unpack_from(frame, 0)
        if self._route_key != (key, version) or frame[8 : self._header_end] != self._header:  # type: ignore[comparison-overlap]
            self._read_header(frame, key, version)
        route = self._route
        request = route.decode(frame, self._header_end)
        call = Call(self, route, correlation_id)
        quotas = self._dispatch.quotas
        response = route.serve(call, request) if quotas is None else quotas.serve(call, request, len(frame))
        if response is PENDING:
            self._wait_for(call)
            if call.allows_pipelining and route.fast_path_key == PRODUCE_KEY:  # appended, waits for the commit
                self._find_produce_fast_path(frame, request)  # type: ignore[arg-type]
            return
        times, key = self._dispatch.times, route.key
        times.pending[key] += 1
        if key > FETCH_KEY:
            times.others.add(key)
            self._dispatch.errors.count(key, response)
        if self._inflight:
            self._replies.ready(self._replies.expect(), self._pieces(call, response))
        elif isinstance(response, bytes):
            self.outgoing.append(response)
            self.outgoing_bytes += len(response)
            if route.fast_path_key == PRODUCE_KEY:
                self._find_produce_fast_path(frame, request)  # type: ignore[arg-type]
        elif response is not None:
            self._send(frame_response(correlation_id, response, route.response_version))
            if route.fast_path_key == FETCH_KEY:
                self._find_fetch_fast_path(frame, request)  # type: ignore[arg-type]

    def _find_produce_fast_path(self, frame: memoryview, request: "ProduceRequest") -> None:
        if len(request.topic_data) == 1:
            topic = request.topic_data[0]
            self._find_fast_path(frame, request, (topic.name, topic.topic_id))

    def _find_fetch_fast_path(self, frame: memoryview, request: "FetchRequest") -> None:
        if len(request.topics) == 1:
            topic = request.topics[0]
            self._find_fast_path(frame, request, (topic.topic, topic.topic_id))

    def _find_fast_path(self, frame: memoryview, request: Request, topic: tuple[str, bytes]) -> None:
        """Called after a request for one topic was served. The second one for the same topic gets a fast path. A fast
        path that matches but did not serve the request is kept: the next request may be eligible again."""
        last, self._last_topic = self._last_topic, (self._route.key, *topic)
        if last != self._last_topic:
            return
        if self._fast_path is None or not self._fast_path.matches(frame):
            if not self._fast_path_tries:
                return
            self._fast_path_tries -= 1
            self._fast_path = self._dispatch.find_fast_path(frame, self._header_end, request, self._route)
            self._permit = None
        if self._fast_path is not None and (
            self._permit is None or self._permit.stamp is not self._dispatch.guard.stamp
        ):
            self._permit = self._dispatch.guard.permit(self, self._route.key, *topic)

    def _read_header(self, frame: memoryview, key: int, version: int) -> None:
        route = self._dispatch.route(key, version)
        client_id, body = client_id_and_body(frame, route.is_flexible)
        if client_id != self._client_id_bytes:  # type: ignore[comparison-overlap]
            self._new_client_id(client_id)
        self._route, self._route_key = route, (key, version)
        self._header = bytes(frame[8:body]) if body <= MAX_CACHED_HEADER_BYTES else None
        self._header_end = body

    def answered(self, call: Call, response: CallResponse) -> None:
        """A waiting request has its response."""
        if self.is_closed:
            return
        self._inflight.remove(call)
        call.on_disconnect = None  # breaks a reference cycle: the waiting operation holds the call
        self._dispatch.times.waited(call.route.key, call.began, call.requests)
        if call.route.key > FETCH_KEY:
            self._dispatch.errors.count(call.route.key, response)
        try:
            if self._dispatch.quotas is not None:
                response = self._dispatch.quotas.charged(call, response)
            self._replies.ready(call.reply_index, self._pieces(call, response))
        except Exception as error:  # a response that this version cannot encode
            call.fail(error)
            return
        for pieces in self._replies.take():
            self._send(pieces)
        self.go_on()

    def go_on(self) -> None:
        """Requests behind a waiting one may be served now."""
        if not self._is_serving:
            self._dispatch.go_on(self)

    def resume_serving(self) -> None:
        """Serves them, and sends their responses."""
        if self.is_closed or self._is_serving:
            return
        try:
            if self.reader.waiting_bytes:
                self._serve_all()
        except Exception as error:
            log.error("internal error: connection of %s", self.peer, exc_info=error)
            self.abort()
        else:
            self.on_output()

    def _pieces(self, call: Call, response: CallResponse) -> list[RecordBytes] | None:
        if response is None:
            return None
        if isinstance(response, bytes):
            return [response]
        return frame_response(call.correlation_id, response, call.route.response_version)

    def _send(self, pieces: list[RecordBytes]) -> None:
        self.outgoing.extend(pieces)
        self.outgoing_bytes += sum(map(len, pieces))

    def queue(self, response: bytes) -> None:
        """Queues the rest of a response that could not be sent at once."""
        self.outgoing.append(response)
        self.outgoing_bytes += len(response)

    def send_raw(self, text: bytes) -> None:
        """Sends unframed bytes to a client that does not speak Kafka's protocol, then closes the connection."""
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


def _is_produce(frame: memoryview) -> bool:
    """False for a SASL message, which may be shorter than a header."""
    key: int = REQUEST_START.unpack_from(frame, 0)[0] if len(frame) >= HEADER_KEY_BYTES else -1
    return key == PRODUCE_KEY
