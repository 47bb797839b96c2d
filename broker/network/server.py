"""The socket server: all client connections of a broker, served by one trio task.

Listening sockets are opened in listener.py, connections to other nodes in peers/link.py; no other module opens sockets.

The task waits for one descriptor, an epoll that holds all sockets. When a socket is ready, the task polls the epoll and
serves each ready socket: it receives once, serves every complete request, and sends all responses by one call. One task
per connection would be the usual design, but costs twice as much for 32 busy connections and ten times the memory for
a thousand idle ones (`bench/` has the figures).

One round is bounded: at most `MAX_EVENTS` sockets, one receive each. A socket with more data is ready again in the next
round, after every other ready socket has been served.

One pass of trio's event loop costs as much as a request. While there is traffic, and no request waits in another task,
this task therefore does not return to trio after each round but blocks in the epoll, for `POLL_TIMEOUT_S` at a time;
trio's timers may be late by that. After `MAX_HOLD_S` it runs one pass of trio's event loop and comes straight back
instead of waiting at trio's epoll, so the pass happens between two requests and does not delay the next one.

Blocking and being woken costs three times as much as a small request, and the client pays part of it. If the last
client sent its next request within `FAST_CLIENT_S`, the task busy-polls for up to `SPIN_S` before it blocks; otherwise
it blocks at once.

Requests that wait (for records, or for replicas) are checked once, at the end of a round (cluster/purgatory.py), and
their responses are sent by one call for each connection.

While small responses are being sent (`SMALL_RECENT_S`), a large response is sent in chunks, and requests that arrived
meanwhile are served between two chunks.

A failure of one connection must not end the others, so each is served in its own `try`: an `OSError` closes the
connection; any other exception is an internal error, which is logged and closes the connection too.
"""

import errno
import logging
import os
import select
import socket
from collections.abc import Callable, Collection, Iterable
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.host_address import client_host
from trioka.protocol.frame import KEPT_BYTES, RECEIVE_BUFFER_BYTES
from trioka.storage.disk import descriptor_limit
from trioka.storage.file_pool import reserved_descriptors

from ..security.pre_auth import PreAuth, is_above_limit
from .channel import CHUNK_BYTES, READ, SMALL_RANGE_BYTES, Channel
from .connection import Connection
from .interfaces import ConnectionFactory, HoldsNotifications, Poll, log_warning
from .listener import Listener
from .transport import SocketTransport

if TYPE_CHECKING:
    from ..fastpath.coalescer import ProduceCoalescer
    from .tls_handshakes import TlsHandshakes

log = logging.getLogger("trioka.network")

MAX_EVENTS: Final = 256
POLL_TIMEOUT_S: Final = 0.002  # of one blocking poll outside of trio: long enough at a thousand requests a second
MAX_HOLD_S: Final = 0.005  # without running other tasks
IDLE_BACKOFF_S: Final = 0.02  # no blocking poll for so long after a poll without events: the client may be a task here
SPIN_S: Final = 60e-6  # of busy-polling for a fast client: about what it costs to block and be woken
FAST_CLIENT_S: Final = 130e-6  # a client is fast if its next request comes within this, wake-up included
MULTI_CPU: Final = len(os.sched_getaffinity(0)) > 1  # on one CPU, busy-polling would keep the client from running
MAX_ACCEPTS: Final = 64
MAX_REQUEST_POOL_BYTES: Final = 256 * 1024 * 1024  # of incomplete requests (queued.max.request.bytes)
STALLED_S: Final = 30.0  # a connection is closed if its request arrives at less than the rate below for so long
STALLED_BYTES_PER_S: Final = 1024
HANDSHAKE_TIMEOUT_S: Final = 10.0  # trioka.tls.handshake.timeout.ms
SMALL_RECENT_S: Final = 0.1  # after a small response, large requests and responses go in chunks of CHUNK_BYTES

IN: Final = select.EPOLLIN
PEER_CLOSED: Final = select.EPOLLRDHUP
WRITE: Final = select.EPOLLOUT
SOCKET_ERROR: Final = select.EPOLLERR | select.EPOLLHUP

_RETRY_ERRNOS: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})
SEND_BUFFER: Final = socket.SO_SNDBUF
RECEIVE_BUFFER: Final = socket.SO_RCVBUF


class SocketServer:
    """All listeners and connections of a broker."""

    def __init__(
        self,
        new_connection: ConnectionFactory,
        on_gone: Callable[[Connection], None],
        clock_now: Callable[[], float],
        coalescer: "ProduceCoalescer",
        purgatory: HoldsNotifications,
    ) -> None:
        self._coalescer = coalescer
        self._purgatory = purgatory
        self._outputs: dict[Channel, None] | None = None  # at the end of a round: channels with something to send
        self._deferred: list[Channel] = []  # their requests are served at the end of the round
        self._new_connection = new_connection
        self._on_gone = on_gone
        self._now = clock_now
        self._epoll = select.epoll()
        self._listeners: dict[int, Listener] = {}
        self._channels: dict[int, Channel] = {}
        self._held_bytes = 0  # incomplete requests of all channels
        self._round_started_at = 0.0
        self._no_poll_until = 0.0
        self._small_sent_at = -SMALL_RECENT_S  # when the last small response was sent
        self._is_serving_small = False  # small requests are being served before a large one
        self._should_spin = False  # the last client sent its next request soon
        self.may_hold_loop: Callable[[], bool] = lambda: False  # set by the broker: no other task serves a request
        self.on_round: Callable[[float], None] = lambda seconds: None  # set by the broker: gets each round's time
        self.may_accept: Callable[[str], bool] = lambda listener: True  # set by the broker: max.connections
        self.holds: Callable[[Callable[[], None], str, str], bool] = lambda close, host, listener: False
        self.after: Callable[[float, Callable[[], None]], None] = lambda seconds, do: None  # set by the broker: a timer
        self._waiting_listeners: list[Listener] = []  # for max.connections; not in the epoll
        self.accepted: dict[str, int] = {}  # number of accepted connections, by listener
        descriptors = descriptor_limit()
        # The kernel assigns the lowest free number: a descriptor above this limit means that all below are in use.
        self.max_descriptor = descriptors - reserved_descriptors(descriptors)
        self._paused: set[Channel] = set()  # not read until other connections' requests are complete
        self.refuses_connections = False
        self.max_pool_bytes = MAX_REQUEST_POOL_BYTES
        self.handshakes: TlsHandshakes | None = None  # with a TLS listener
        self.handshake_timeout_s = HANDSHAKE_TIMEOUT_S
        self.warn_once: Callable[..., None] = log_warning  # set by the broker: limits the rate per client
        self.buffer_sizes: dict[int, int] = {}  # by socket option; empty: the kernel's defaults

    def __len__(self) -> int:
        return len(self._channels)

    def add(self, listener: Listener) -> None:
        if listener.tls is not None and self.handshakes is None:
            from .tls_handshakes import TlsHandshakes  # ssl is imported only if it is used

            self.handshakes = TlsHandshakes(self, self._epoll, self._open_channel)
        self._listeners[listener.socket.fileno()] = listener
        self._epoll.register(listener.socket.fileno(), select.EPOLLIN)

    def resume_listeners(self) -> None:
        """Listeners that wait for max.connections try to accept again."""
        waiting, self._waiting_listeners = self._waiting_listeners, []
        for listener in waiting:
            self._epoll.register(listener.socket.fileno(), select.EPOLLIN)

    def close_longest_idle(self, except_for: Collection[str]) -> None:
        """Closes the client connection that was idle for longest, except on these listeners."""
        clients = [each for each in self._channels.values() if each.connection.listener not in except_for]
        idle = min(clients, key=lambda each: each.connection.last_active, default=None)
        before = inf if idle is None else idle.connection.last_active
        is_handshake = self.handshakes is not None and self.handshakes.close_oldest(except_for, before)
        if idle is not None and not is_handshake:
            self._drop(idle)

    async def serve(self) -> None:
        """Serves all sockets until cancelled."""
        descriptor = self._epoll.fileno()
        try:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                while self._serve_rounds():
                    await trio.lowlevel.checkpoint()
        finally:
            self.close()

    def _serve_rounds(self) -> bool:
        """Serves rounds until no event comes or other tasks must run. Whether to be called again after a checkpoint."""
        poll, serve = self._epoll.poll, self._serve
        leave_at = self._now() + MAX_HOLD_S
        comes_back = False
        while found := self._poll(poll):
            self._round_started_at, began = self._now(), perf_counter()  # the latter is cheaper, for measuring
            self._coalescer.is_open = len(found) > 1
            self._purgatory.hold()
            for ready, events in found:
                serve(ready, events)
            if self._deferred:
                self._flush_deferred()
            self._complete_waiting()
            self.on_round(perf_counter() - began)
            if not self.may_hold_loop():
                break
            if self._round_started_at > leave_at:
                comes_back = True
                break
        return comes_back

    def _complete_waiting(self) -> None:
        """Completes requests that waited for something of this round, with one send for each connection."""
        outputs: dict[Channel, None] = {}
        self._outputs = outputs
        try:
            self._purgatory.release()
        finally:
            self._outputs = None
        for channel in outputs:
            self._on_output(channel)

    def _poll(self, poll: Poll) -> list[tuple[int, int]]:
        """The next events, waiting for up to POLL_TIMEOUT_S; see the module docstring for busy-polling."""
        found = poll(0, MAX_EVENTS)
        if found or self._round_started_at < self._no_poll_until:
            return found
        began = perf_counter()
        was_spinning = self._should_spin
        if self._should_spin:
            while perf_counter() - began < SPIN_S:
                found = poll(0, MAX_EVENTS)
                if found:
                    return found
        found = poll(POLL_TIMEOUT_S, MAX_EVENTS)
        slept_s = perf_counter() - began
        is_soon = bool(found) and slept_s < FAST_CLIENT_S
        self._should_spin = is_soon and MULTI_CPU and not was_spinning
        if not found:
            self._no_poll_until = self._now() + IDLE_BACKOFF_S
        return found

    @property
    def connections(self) -> list[Connection]:
        return [channel.connection for channel in self._channels.values()]

    def cut(self) -> None:
        """Closes all connections, and refuses new ones until `refuses_connections` is False again."""
        self.refuses_connections = True
        if self.handshakes is not None:
            self.handshakes.close_all()
        for channel in list(self._channels.values()):
            self._drop(channel)

    @property
    def is_listening(self) -> bool:
        return bool(self._listeners)

    def stop_listening(self, except_for: Collection[str] = ()) -> None:
        """Closes all listening sockets except those of these names; connections stay."""
        for descriptor, listener in list(self._listeners.items()):
            if listener.name not in except_for:
                if listener in self._waiting_listeners:
                    self._waiting_listeners.remove(listener)
                else:
                    self._epoll.unregister(descriptor)
                if self.handshakes is not None:
                    self.handshakes.forget_listener(listener)
                listener.socket.close()
                del self._listeners[descriptor]

    def close_listener(self, name: str) -> None:
        """Closes a listener and all its connections."""
        self.stop_listening({listener.name for listener in self._listeners.values()} - {name})
        if self.handshakes is not None:
            self.handshakes.close_all(name)
        for channel in list(self._channels.values()):
            if channel.connection.listener == name:
                self._drop(channel)

    @property
    def is_busy(self) -> bool:
        """Whether any connection still has data to send."""
        return any(channel.connection.outgoing for channel in self._channels.values())

    def close(self) -> None:
        self.stop_listening()
        if self.handshakes is not None:
            self.handshakes.close()
        for channel in list(self._channels.values()):
            self._drop(channel)
        self._epoll.close()

    def close_idle(self, max_idle_s: float, shrink_after_s: float) -> None:
        """Closes idle and stalled connections and late logins, and releases large buffers of quiet connections."""
        now = self._now()
        for channel in list(self._channels.values()):
            connection = channel.connection
            idle = now - connection.last_active
            if idle > shrink_after_s:
                connection.release_buffers()
                self._count(channel)
            if connection.gate is not None and connection.gate.is_late(now):
                log.info("closed %s on %s: login timed out", connection.peer, connection.listener)
                self._drop(channel)
                continue
            is_idle = idle > max_idle_s and not connection.waits and not connection.outgoing
            if is_idle or (channel not in self._paused and connection.is_stalled(now, STALLED_S, STALLED_BYTES_PER_S)):
                self._drop(channel)

    # -- one socket ----------------------------------------------------------------------------------------------------

    def _serve(self, ready: int, events: int) -> None:
        channel = self._channels.get(ready)
        if channel is None:
            if ready in self._listeners:
                self._accept(self._listeners[ready])
            elif self.handshakes is not None:
                self.handshakes.serve(ready, events)
            return
        connection = channel.connection
        try:
            if events == IN and channel.interest == READ and not self._paused and not channel.held:
                # The common case: `_exchange`, inlined to save calls.
                reader = connection.reader
                is_plain = reader.own is None and not reader.scratch.used
                try:
                    size = channel.receive(reader.view if is_plain else reader.receive_buffer())
                except BlockingIOError:
                    return
                if not size:
                    self._drop(channel)
                    return
                connection.last_active = self._round_started_at
                connection.received(size)
                if connection.deferred is None:
                    self._reply(channel, connection)
                else:
                    self._deferred.append(channel)
                    if reader.end > RECEIVE_BUFFER_BYTES // 2:
                        self._flush_deferred()
                return
            if events & SOCKET_ERROR:
                self._drop(channel)
                return
            is_answered = False
            if events & IN:
                if connection.may_read and channel not in self._paused:  # else the data stays in the kernel
                    self._exchange(channel, connection)
                    is_answered = True  # as far as one round allows
                    if connection.held_bytes != channel.held:
                        self._count(channel)
            elif events & PEER_CLOSED:
                self._drop(channel)
                return
            if connection.outgoing and not is_answered:
                self._send(channel)
            if channel.interest != READ or self._paused or not connection.is_idle:
                self._update_interest(channel)
        except Exception as error:
            self._failed(channel, error)

    def _exchange(self, channel: Channel, connection: Connection) -> None:
        """Receives once, which may continue an incomplete request, and sends the responses."""
        buffer = connection.reader.receive_buffer()
        is_large = channel.held > CHUNK_BYTES and self.has_small_clients
        try:
            size = channel.receive(buffer[:CHUNK_BYTES] if is_large else buffer)
        except BlockingIOError:
            return
        if not size:
            self._drop(channel)
            return
        if is_large:
            self._serve_small_first(channel)
            if connection.is_closed:
                return
        connection.last_active = self._round_started_at
        connection.received(size)
        if connection.deferred is None:
            self._reply(channel, connection)
        else:
            self._deferred.append(channel)
            if connection.reader.end > RECEIVE_BUFFER_BYTES // 2:
                self._flush_deferred()

    def _serve_small_first(self, channel: Channel) -> None:
        """Before a chunk of a large request is handled: serves the other sockets that are ready."""
        if self._is_serving_small:
            return
        self._is_serving_small, self._coalescer.is_open = True, False
        try:
            if self._deferred:
                self._flush_deferred()
            for ready, events in self._epoll.poll(0, MAX_EVENTS):
                if ready != channel.descriptor:
                    self._serve(ready, events)
        finally:
            self._is_serving_small = False

    def _flush_deferred(self) -> None:
        """Serves the requests that were deferred to the end of the round."""
        waiting, self._deferred = self._deferred, []
        try:
            self._coalescer.flush()
        except Exception:
            log.exception("internal error: deferred requests of several connections")
            for channel in waiting:
                self._drop(channel)
        for channel in waiting:
            connection = channel.connection
            if connection.is_closed:
                continue
            try:
                response = connection.deferred
                if response is None:  # it waits for the commit
                    continue
                if response:
                    connection.deferred = None
                    connection.reader.start = connection.reader.end = 0
                    try:
                        sent = channel.send(response)
                    except BlockingIOError:
                        sent = 0
                    if sent == len(response):
                        self._small_sent_at = self._round_started_at
                        if connection.muted is not None:
                            self._update_interest(channel)
                        continue
                    connection.queue(response[sent:])
                else:
                    connection.serve_deferred()
                self._reply(channel, connection)
            except Exception as error:
                self._failed(channel, error)
        self._coalescer.scratch.used = 0

    def _failed(self, channel: Channel, error: Exception) -> None:
        if isinstance(error, OSError):
            log.debug("%s: %s", channel.connection.peer, error)
        else:
            log.error("internal error: connection of %s", channel.connection.peer, exc_info=error)
        self._drop(channel)

    def _reply(self, channel: Channel, connection: Connection) -> None:
        """Sends the responses that are ready, and updates the epoll if the connection is not idle."""
        queue = connection.outgoing
        try:
            if len(queue) == 1 and type(piece := queue[0]) is bytes:
                sent = channel.send(piece)
                if sent == len(piece):
                    queue.clear()
                    self._small_sent_at = self._round_started_at
                else:
                    queue[0] = memoryview(piece)[sent:]
                connection.sent(sent)
            elif queue:
                self._send(channel)
        except BlockingIOError:
            pass
        if connection.reader.own is not None:
            self._count(channel)
        if not connection.is_idle:
            self._update_interest(channel)

    # The request memory pool. An incomplete request holds memory. When all of them together exceed `max_pool_bytes`,
    # only the connection with the most bytes is read: it is complete first, and frees memory for the others.

    def _count(self, channel: Channel) -> None:
        before, self._held_bytes = self._held_bytes, self._held_bytes - channel.held
        channel.held = 0 if channel.connection.is_closed else channel.connection.held_bytes
        self._held_bytes += channel.held
        if channel.held > KEPT_BYTES and is_above_limit(channel.connection.gate, self._gates_and_bytes()):
            self._drop(channel)
            return
        if self._held_bytes > self.max_pool_bytes:
            furthest = max(self._channels.values(), key=lambda each: each.held)
            if channel is not furthest and not channel.connection.is_closed:
                self._paused.add(channel)
            self._resume({furthest} & self._paused)
        elif before > self._held_bytes:
            self._resume(set(self._paused))

    def _gates_and_bytes(self) -> Iterable[tuple[PreAuth | None, int]]:
        return ((each.connection.gate, each.held) for each in self._channels.values() if each.held)

    def _resume(self, channels: set[Channel]) -> None:
        self._paused -= channels
        for channel in channels:
            self._update_interest(channel)

    def _update_interest(self, channel: Channel) -> None:
        """Registers the events that the connection waits for with the epoll."""
        connection = channel.connection
        if connection.is_closed:
            return
        if connection.is_closing and not connection.outgoing:
            self._drop(channel)
            return
        may_read = connection.may_read and channel not in self._paused
        interest = (READ if may_read else PEER_CLOSED) | (WRITE if connection.outgoing else 0)
        if interest != channel.interest:
            self._epoll.modify(channel.descriptor, interest)
            channel.interest = interest
            if may_read and self.handshakes is not None and channel.transport.has_more:
                self.handshakes.serve_again(channel)

    def _drop(self, channel: Channel) -> None:
        if self._channels.pop(channel.descriptor, None) is None:
            return
        channel.connection.close()
        self._epoll.unregister(channel.descriptor)
        channel.transport.close()
        self._paused.discard(channel)
        self._count(channel)
        self._on_gone(channel.connection)

    def _accept(self, listener: Listener) -> None:
        for _ in range(MAX_ACCEPTS):
            if listener.tls is not None and self.handshakes is not None and not self.handshakes.may_accept(listener):
                return
            if not self.may_accept(listener.name):
                self._epoll.unregister(listener.socket.fileno())
                self._waiting_listeners.append(listener)
                return
            try:
                sock, address = listener.socket.accept()
            except OSError as error:
                if error.errno not in _RETRY_ERRNOS:
                    log.warning("cannot accept connections on %s: %s", listener.name, error)
                return
            if sock.fileno() >= self.max_descriptor:
                sock.close()
                log.warning("refused a connection on %s: out of file descriptors, raise ulimit -n", listener.name)
                continue
            if self.holds(sock.close, client_host(address), listener.name):
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, size in self.buffer_sizes.items():
                sock.setsockopt(socket.SOL_SOCKET, option, size)
            connection = None
            if not self.refuses_connections:
                host, port = client_host(address), address[1]
                connection = self._new_connection(host=host, port=port, listener=listener.name)
            if connection is None:
                sock.close()
                continue
            connection.last_active = self._now()
            self.accepted[listener.name] = self.accepted.get(listener.name, 0) + 1
            if listener.tls is not None:
                assert self.handshakes is not None
                self.handshakes.begin(sock, connection, listener.tls)
                continue
            self._epoll.register(sock.fileno(), READ)
            self._open_channel(Channel(SocketTransport(sock), connection))

    def _open_channel(self, channel: Channel) -> None:
        """Serves a channel whose socket is registered with the epoll."""
        channel.connection.on_output = lambda: self._on_output(channel)
        self._channels[channel.descriptor] = channel

    # -- for TLS (tls_handshakes.py) -----------------------------------------------------------------------------------

    def now(self) -> float:
        return self._now()

    @property
    def is_in_turn(self) -> bool:
        """Whether `_serve_small_first` is running."""
        return self._is_serving_small

    def gone(self, connection: Connection) -> None:
        """A connection was closed before it had a channel."""
        self._on_gone(connection)

    def serve_without_event(self, channel: Channel) -> None:
        """Reads what the transport has buffered if the connection may be read; else `_update_interest` does later."""
        if self._channels.get(channel.descriptor) is not channel:
            return
        if channel.connection.deferred is not None:  # its buffer still holds a request of this round
            self._flush_deferred()
        if channel.connection.may_read and channel not in self._paused:
            self._serve(channel.descriptor, IN)
        else:
            self._update_interest(channel)

    def _on_output(self, channel: Channel) -> None:
        """A waiting request was answered while this connection was not being served."""
        if channel.connection.is_closed:
            return
        if self._outputs is not None and not channel.connection.is_closing:
            self._outputs[channel] = None
            return
        try:
            if channel.connection.outgoing:
                self._send(channel)
            self._update_interest(channel)
        except Exception as error:  # must not reach the caller, which serves another connection
            self._failed(channel, error)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(self, channel: Channel) -> None:
        is_small = channel.connection.outgoing_bytes <= SMALL_RANGE_BYTES and not channel.is_corked
        channel.flush(self)
        if is_small and not channel.connection.outgoing:
            self._small_sent_at = self._round_started_at

    @property
    def has_small_clients(self) -> bool:
        """Whether a small response was sent lately; the next one should not wait for a large response to be sent."""
        return self._round_started_at - self._small_sent_at < SMALL_RECENT_S

    def has_other_events(self, channel: Channel) -> bool:
        """Whether another socket is ready."""
        return any(ready != channel.descriptor for ready, _ in self._epoll.poll(0, 2))
