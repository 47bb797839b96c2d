"""Sockets that are served, and nothing but. Those at which they arrive are in listener.py, the asking side in
peers/link.py: these three are the only modules that open any.

All connections are served by one trio task. It waits for one descriptor, an epoll that holds all sockets; when any of
them is ready it asks the epoll which, and serves each: receive once, serve every request that is complete, send all
replies with one call. A task for each connection would be the usual way, and cost twice as much for thirty-two busy
connections and ten times the memory for a thousand idle ones (`bench/` has the figures).

The work of one round is bounded: at most `EVENTS_AT_ONCE` sockets, one receive each. A socket that has more is ready
again in the next round, after everyone else had a turn.

A turn of trio's own loop costs as much as a request. So as long as there is traffic, and no request waits in another
task, this task does not go back to trio after each round: it lingers at the epoll itself, for `LINGER_S` at a time. A
timer may be late by that. After `STAY_S` others have a turn, and this task does not wait for it to be over at trio's
epoll, but comes back: the turn is taken between two requests, and not out of the time of the next one.

To fall asleep and be woken costs three times as much as a small request, of which the client pays a part. So whoever
was quick to go on is waited for awake, for `AWAKE_S` at most; who was not is not, until he is quick again.

Where somebody had a small answer a moment ago, a large one leaves in portions, and whoever has asked for something
meanwhile is served in between.

What one connection does wrong must not end the others, so each is served behind its own guard: an `OSError` ends the
connection; anything else is a mistake of ours, is logged, and ends the connection too.
"""

import errno
import logging
import os
import select
import socket
from collections.abc import Callable, Collection
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

import trio

from trioka.cluster.host_address import client_host
from trioka.protocol.frame import SCRATCH_BYTES
from trioka.storage.disk import descriptors_limit
from trioka.storage.file_pool import reserved_descriptors

from .channel import PORTION_BYTES, READ, SMALL_RANGE_BYTES, Channel
from .connection import Connection
from .listener import Listener

if TYPE_CHECKING:
    from ..fastpath.coalescer import Together

log = logging.getLogger("trioka.network")

EVENTS_AT_ONCE: Final = 256
LINGER_S: Final = 0.002  # for the next event, where trio would be: also if a thousand come in a second
STAY_S: Final = 0.005  # without a look at other tasks
IN_VAIN_S: Final = 0.02  # when nothing came, it is not tried again for so long: the client may be a task in here
AWAKE_S: Final = 60e-6  # to wait for who is quick: about what it costs to sleep
QUICK_S: Final = 130e-6  # who goes on after so long, the time to wake up included
SEVERAL_PROCESSORS: Final = len(os.sched_getaffinity(0)) > 1  # or else nobody could go on meanwhile
ACCEPTS_AT_ONCE: Final = 64
MAX_REQUEST_POOL_BYTES: Final = 256 * 1024 * 1024
"""What the beginnings of requests may take in memory, all connections together (queued.max.request.bytes)."""

STALLED_S: Final = 30.0
STALLED_BYTES_PER_S: Final = 1024
"""A request that has begun must come at this rate, or its connection is closed after so long."""

SMALL_S: Final = 0.1
"""Of a large answer or request, PORTION_BYTES at a time, if there was a small answer so long ago at most."""

IN: Final = select.EPOLLIN
HUNG_UP: Final = select.EPOLLRDHUP
WRITE: Final = select.EPOLLOUT
GONE: Final = select.EPOLLERR | select.EPOLLHUP

_TRY_AGAIN: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})
SEND_BUFFER: Final = socket.SO_SNDBUF
RECEIVE_BUFFER: Final = socket.SO_RCVBUF


Poll = Callable[[float, int], list[tuple[int, int]]]  # an epoll's: descriptors and what is the matter with them


class NewConnection(Protocol):
    def __call__(self, *, host: str, port: int, listener: str) -> Connection | None:
        """A connection's other half; None to refuse it. `host` is spelled as cluster/host_address.py does it."""


class Network:
    """All listeners and connections of a broker."""

    def __init__(
        self,
        new_connection: NewConnection,
        on_gone: Callable[[Connection], None],
        clock_now: Callable[[], float],
        together: "Together",
    ) -> None:
        self._together = together
        self._put_off: list[Channel] = []  # whose requests are to be served at the end of the round
        self._new_connection = new_connection
        self._on_gone = on_gone
        self._now = clock_now
        self._epoll = select.epoll()
        self._listeners: dict[int, Listener] = {}
        self._channels: dict[int, Channel] = {}
        self._held_bytes = 0  # of all channels
        self._round_began = 0.0
        self._linger_again = 0.0
        self._small_at = -SMALL_S  # when a small answer was sent last
        self._is_in_between = False  # others are served in the turn of one that has much to say
        self._is_quick = False  # whoever was answered last had the next request soon
        self.is_alone: Callable[[], bool] = lambda: False  # the broker's: no other task has a request to serve
        self.on_round: Callable[[float], None] = lambda seconds: None  # the broker's: how long the last round took
        self.accepted: dict[str, int] = {}  # connections so far, by listener
        descriptors = descriptors_limit()
        # The kernel gives the lowest number that is free: one above this says that all below are taken.
        self.descriptors_for_all = descriptors - reserved_descriptors(descriptors)
        self._paused: set[Channel] = set()  # they have to wait until others' requests are complete
        self.is_cut = False
        self.max_pool_bytes = MAX_REQUEST_POOL_BYTES
        self.buffer_sizes: dict[int, int] = {}  # the kernel's, of a connection, by socket option; it knows best

    def __len__(self) -> int:
        return len(self._channels)

    def add(self, listener: Listener) -> None:
        self._listeners[listener.socket.fileno()] = listener
        self._epoll.register(listener.socket.fileno(), select.EPOLLIN)

    async def serve(self) -> None:
        """Until cancelled."""
        descriptor = self._epoll.fileno()
        try:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                while self._serve_rounds():
                    await trio.lowlevel.checkpoint()
        finally:
            self.close()

    def _serve_rounds(self) -> bool:
        """Until nothing more comes, or others should have their turn. Whether to come back soon."""
        poll, serve = self._epoll.poll, self._serve
        leave_at = self._now() + STAY_S
        comes_back = False
        while found := self._linger(poll):
            self._round_began, began = self._now(), perf_counter()  # the latter is quicker to read, and only measured
            self._together.is_open = len(found) > 1
            for ready, events in found:
                serve(ready, events)
            if self._put_off:
                self._settle()
            self.on_round(perf_counter() - began)
            if not self.is_alone():
                break
            if self._round_began > leave_at:
                comes_back = True
                break
        return comes_back

    def _linger(self, poll: Poll) -> list[tuple[int, int]]:
        """What comes next, if it comes soon."""
        found = poll(0, EVENTS_AT_ONCE)
        if found or self._round_began < self._linger_again:
            return found
        began = perf_counter()
        in_vain = self._is_quick
        if self._is_quick:
            while perf_counter() - began < AWAKE_S:
                found = poll(0, EVENTS_AT_ONCE)
                if found:
                    return found
        found = poll(LINGER_S, EVENTS_AT_ONCE)
        slept_s = perf_counter() - began
        is_soon = bool(found) and slept_s < QUICK_S
        self._is_quick = is_soon and SEVERAL_PROCESSORS and not in_vain
        if not found:
            self._linger_again = self._now() + IN_VAIN_S
        return found

    @property
    def connections(self) -> list[Connection]:
        return [channel.connection for channel in self._channels.values()]

    def cut(self) -> None:
        """Everyone is sent away, and whoever comes is too, until `is_cut` is False again."""
        self.is_cut = True
        for channel in list(self._channels.values()):
            self._drop(channel)

    @property
    def is_listening(self) -> bool:
        return bool(self._listeners)

    def stop_listening(self, but_for: Collection[str] = ()) -> None:
        """Nobody new is let in, except by listeners of these names."""
        for descriptor, listener in list(self._listeners.items()):
            if listener.name not in but_for:
                self._epoll.unregister(descriptor)
                listener.socket.close()
                del self._listeners[descriptor]

    def close_listener(self, name: str) -> None:
        """With everybody who came by it."""
        self.stop_listening({listener.name for listener in self._listeners.values()} - {name})
        for channel in list(self._channels.values()):
            if channel.connection.listener == name:
                self._drop(channel)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is still on its way to somebody."""
        return any(channel.connection.outgoing for channel in self._channels.values())

    def close(self) -> None:
        self.stop_listening()
        for channel in list(self._channels.values()):
            self._drop(channel)
        self._epoll.close()

    def close_idle(self, max_idle_s: float, quiet_s: float) -> None:
        """Sends away who said nothing for long or dribbles a request, and takes large buffers from the quiet."""
        now = self._now()
        for channel in list(self._channels.values()):
            connection = channel.connection
            idle = now - connection.last_active
            if idle > quiet_s:
                connection.quiet()
                self._count(channel)
            is_idle = idle > max_idle_s and not connection.waits and not connection.outgoing
            if is_idle or (channel not in self._paused and connection.is_stalled(now, STALLED_S, STALLED_BYTES_PER_S)):
                self._drop(channel)

    # -- one socket ----------------------------------------------------------------------------------------------------

    def _serve(self, ready: int, events: int) -> None:
        channel = self._channels.get(ready)
        if channel is None:
            if ready in self._listeners:
                self._accept(self._listeners[ready])
            return
        connection = channel.connection
        try:
            if events == IN and channel.interest == READ and not self._paused and not channel.held:
                # What nearly every event is, and so here, with as few calls as can be: as `_exchange` does it.
                reader = connection.reader
                is_plain = reader.own is None and not reader.scratch.used
                try:
                    size = channel.receive(reader.view if is_plain else reader.room())
                except BlockingIOError:
                    return
                if not size:
                    self._drop(channel)
                    return
                connection.last_active = self._round_began
                connection.received(size)
                if connection.put_off is None:
                    self._reply(channel, connection)
                else:
                    self._put_off.append(channel)
                    if reader.end > SCRATCH_BYTES // 2:
                        self._settle()
                return
            if events & GONE:
                self._drop(channel)
                return
            is_answered = False
            if events & IN:
                if connection.may_read and channel not in self._paused:  # else it waits in the kernel
                    self._exchange(channel, connection)
                    is_answered = True  # as far as its turn allows
                    if connection.held_bytes != channel.held:
                        self._count(channel)
            elif events & HUNG_UP:
                self._drop(channel)
                return
            if connection.outgoing and not is_answered:
                self._send(channel)
            if channel.interest != READ or self._paused or not connection.is_at_rest:
                self._attend(channel)
        except Exception as error:
            self._failed(channel, error)

    def _exchange(self, channel: Channel, connection: Connection) -> None:
        """A connection has something to say, and is answered; it may have begun to say it before."""
        room = connection.reader.room()
        is_much = channel.held > PORTION_BYTES and self.is_shared
        try:
            size = channel.receive(room[:PORTION_BYTES] if is_much else room)
        except BlockingIOError:
            return
        if not size:
            self._drop(channel)
            return
        if is_much:
            self._serve_others(channel)
            if connection.is_closed:
                return
        connection.last_active = self._round_began
        connection.received(size)
        if connection.put_off is None:
            self._reply(channel, connection)
        else:
            self._put_off.append(channel)
            if connection.reader.end > SCRATCH_BYTES // 2:
                self._settle()

    def _serve_others(self, channel: Channel) -> None:
        """Before a large request is looked at, which takes longer than most: who has asked for something meanwhile."""
        if self._is_in_between:
            return
        self._is_in_between, self._together.is_open = True, False
        try:
            if self._put_off:
                self._settle()
            for ready, events in self._epoll.poll(0, EVENTS_AT_ONCE):
                if ready != channel.descriptor:
                    self._serve(ready, events)
        finally:
            self._is_in_between = False

    def _settle(self) -> None:
        """Serves those whose requests were put off."""
        waiting, self._put_off = self._put_off, []
        try:
            self._together.finish()
        except Exception:
            log.exception("while serving several connections")
            for channel in waiting:
                self._drop(channel)
        for channel in waiting:
            connection = channel.connection
            if connection.is_closed:
                continue
            try:
                answer = connection.put_off
                if answer:
                    connection.put_off = None
                    connection.reader.start = connection.reader.end = 0
                    try:
                        sent = channel.send(answer)
                    except BlockingIOError:
                        sent = 0
                    if sent == len(answer):
                        self._small_at = self._round_began
                        continue
                    connection.queue(answer[sent:])
                else:
                    connection.settle()
                self._reply(channel, connection)
            except Exception as error:
                self._failed(channel, error)
        self._together.scratch.used = 0

    def _failed(self, channel: Channel, error: Exception) -> None:
        if isinstance(error, OSError):
            log.debug("%s: %s", channel.connection.peer, error)
        else:
            log.error("while serving %s", channel.connection.peer, exc_info=error)
        self._drop(channel)

    def _reply(self, channel: Channel, connection: Connection) -> None:
        """Sends what the connection has to say now, and takes note if it does not rest."""
        queue = connection.outgoing
        try:
            if len(queue) == 1 and type(piece := queue[0]) is bytes:
                sent = channel.send(piece)
                if sent == len(piece):
                    queue.clear()
                    self._small_at = self._round_began
                else:
                    queue[0] = memoryview(piece)[sent:]
                connection.sent(sent)
            elif queue:
                self._send(channel)
        except BlockingIOError:
            pass
        if connection.reader.own is not None:
            self._count(channel)
        if not connection.is_at_rest:
            self._attend(channel)

    # The pool. A request that has begun takes memory until it is complete. When all take too much together, only the
    # one that has come furthest is read from: it will be complete first, and then there is room for the others.

    def _count(self, channel: Channel) -> None:
        before, self._held_bytes = self._held_bytes, self._held_bytes - channel.held
        channel.held = 0 if channel.connection.is_closed else channel.connection.held_bytes
        self._held_bytes += channel.held
        if self._held_bytes > self.max_pool_bytes:
            furthest = max(self._channels.values(), key=lambda each: each.held)
            if channel is not furthest and not channel.connection.is_closed:
                self._paused.add(channel)
            self._resume({furthest} & self._paused)
        elif before > self._held_bytes:
            self._resume(set(self._paused))

    def _resume(self, channels: set[Channel]) -> None:
        self._paused -= channels
        for channel in channels:
            self._attend(channel)

    def _attend(self, channel: Channel) -> None:
        """Tells the epoll what the connection waits for now."""
        connection = channel.connection
        if connection.is_closed:
            return
        if connection.is_closing and not connection.outgoing:
            self._drop(channel)
            return
        may_read = connection.may_read and channel not in self._paused
        interest = (READ if may_read else HUNG_UP) | (WRITE if connection.outgoing else 0)
        if interest != channel.interest:
            self._epoll.modify(channel.descriptor, interest)
            channel.interest = interest

    def _drop(self, channel: Channel) -> None:
        if self._channels.pop(channel.descriptor, None) is None:
            return
        channel.connection.close()
        self._epoll.unregister(channel.descriptor)
        channel.socket.close()
        self._paused.discard(channel)
        self._count(channel)
        self._on_gone(channel.connection)

    def _accept(self, listener: Listener) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listener.socket.accept()
            except OSError as error:
                if error.errno not in _TRY_AGAIN:
                    log.warning("cannot accept on %s: %s", listener.name, error)
                return
            if sock.fileno() >= self.descriptors_for_all:
                sock.close()
                log.warning("refused a connection on %s: too few descriptors are left, raise ulimit -n", listener.name)
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, size in self.buffer_sizes.items():
                sock.setsockopt(socket.SOL_SOCKET, option, size)
            connection = None
            if not self.is_cut:
                host, port = client_host(address), address[1]
                connection = self._new_connection(host=host, port=port, listener=listener.name)
            if connection is None:
                sock.close()
                continue
            channel = Channel(sock, connection)
            connection.last_active = self._now()
            self.accepted[listener.name] = self.accepted.get(listener.name, 0) + 1
            connection.on_output = lambda channel=channel: self._answer_later(channel)  # type: ignore[misc]
            self._channels[channel.descriptor] = channel
            self._epoll.register(channel.descriptor, READ)

    def _answer_later(self, channel: Channel) -> None:
        """A request that waited was answered, outside of this connection's turn."""
        if channel.connection.is_closed:
            return
        try:
            if channel.connection.outgoing:
                self._send(channel)
            self._attend(channel)
        except Exception as error:  # it concerns nobody whose turn it is
            self._failed(channel, error)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(self, channel: Channel) -> None:
        is_little = channel.connection.outgoing_bytes <= SMALL_RANGE_BYTES and not channel.is_corked
        channel.flush(self)
        if is_little and not channel.connection.outgoing:
            self._small_at = self._round_began

    @property
    def is_shared(self) -> bool:
        """Somebody is about whose answers are small, and who would wait for a large one longer than for his own."""
        return self._round_began - self._small_at < SMALL_S

    def is_asked_by_others(self, channel: Channel) -> bool:
        """Whether anybody else has something to say."""
        return any(ready != channel.descriptor for ready, _ in self._epoll.poll(0, 2))
