"""A network in one process: sockets, an epoll and connections of simulated machines. A seed delays the bytes, splits
them, holds them back and loses them together with their connection.

The simulation replaces what `trioka.broker.network.server` and `listener` take from the operating system (`socket`,
`select`, and the wait for an epoll), and the dialling of nodes (`dial_from`); everything between, the code that
receives, serves and sends, is the production code.

TCP's guarantees hold: bytes come in order and whole, or the connection ends. So a cut does not lose bytes; it keeps
them until it is healed, or until a side closes the connection. A node that is cut off in one direction still receives.
"""

import errno
import select as real_select
import socket as real_socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from types import ModuleType
from typing import Any

import trio
from simulation.virtual_time import SimClock

from trioka.broker.network import listener
from trioka.broker.network import server as network
from trioka.broker.peers.link import PeerConnection
from trioka.broker.peers.peer import Dial

Address = tuple[str, int]
GONE = real_select.EPOLLERR | real_select.EPOLLHUP
NEVER_S = 1e9


@dataclass(slots=True)
class Quality:
    """Of the network, as long as nothing is cut."""

    latency_s: tuple[float, float] = (0.0001, 0.001)
    stall: float = 0.0  # the share of pieces that come late
    stall_s: float = 0.5  # by so much, at most
    reset: float = 0.0  # how many sends end their connection
    split: float = 0.0  # the share of pieces that come as two
    window_bytes: int = 64 * 1024  # on the way, and not yet read


class SimNet:
    def __init__(self, clock: SimClock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.quality = Quality()
        self.listeners: dict[Address, SimSocket] = {}
        self._machines: dict[str, int] = {}  # machines that are off, so that not even a refusal comes
        self._cuts: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._ends: dict[int, SimSocket] = {}
        self._numbers = count(1000)
        self.bytes_sent = 0

    # -- trouble -------------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """As many times as it was cut."""
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
            return
        self._cuts.pop((source, target), None)
        for event in self._held.pop((source, target), ()):
            event()

    def heal_all(self) -> None:
        for route in list(self._cuts):
            self._cuts[route] = 1
            self.heal(*route)

    def refuses_connections(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def kill(self, host: str, *, silent_s: float = 0.0) -> None:
        """A process has ended: its machine closes its sockets, or, if that is off, the peer does after a timeout."""
        for address in [address for address in self.listeners if address[0] == host]:
            self.listeners.pop(address).is_dead = True
        for end in [end for end in self._ends.values() if end.host == host]:
            end.is_dead = True
            self._forget(end)
            if end.peer is not None:
                self._reset_later(end, end.peer, silent_s)

    def switch_off(self, host: str) -> None:
        self._machines[host] = 1

    def switch_on(self, host: str) -> None:
        self._machines.pop(host, None)

    # -- what sockets use ----------------------------------------------------------------------------------------------

    def number(self) -> int:
        return next(self._numbers)

    def remember(self, end: "SimSocket") -> None:
        self._ends[end.descriptor] = end

    def _forget(self, end: "SimSocket") -> None:
        self._ends.pop(end.descriptor, None)

    def _latency_s(self) -> float:
        return self.random.uniform(*self.quality.latency_s)

    def carry(self, source: "SimSocket", data: bytes) -> None:
        """Towards the other end, in order, in one piece or two."""
        quality, random = self.quality, self.random
        self.bytes_sent += len(data)
        if quality.reset and random.random() < quality.reset:
            self.break_off(source)
            return
        pieces = [data]
        if quality.split and len(data) > 1 and random.random() < quality.split:
            at = random.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            delay = self._latency_s()
            if quality.stall and random.random() < quality.stall:
                delay += random.uniform(0, quality.stall_s)
            source.due = max(source.due, self.clock.current_time() + delay)
            self._deliver(source, source.due, lambda piece=piece: source.arrive(piece))  # type: ignore[misc]

    def _deliver(self, source: "SimSocket", due: float, event: Callable[[], None]) -> None:
        """At its time, if nothing is cut then; else when it is healed."""
        peer = source.peer
        assert peer is not None
        route = (source.host, peer.host)

        def now() -> None:
            if route in self._cuts:
                self._held.setdefault(route, []).append(event)
            else:
                event()

        self.clock.at(due, now)

    def break_off(self, end: "SimSocket") -> None:
        """Both ends detect it, one after the other."""
        if end.peer is not None:
            self._reset_later(end, end.peer)
            self._reset_later(end.peer, end)

    def _reset_later(self, source: "SimSocket", target: "SimSocket", silent_s: float = 0.0) -> None:
        source.due = max(source.due, self.clock.current_time() + self._latency_s() + silent_s)
        self._deliver(source, source.due, target.reset)

    def close(self, end: "SimSocket") -> None:
        self._forget(end)
        peer = end.peer
        if peer is not None and not end.is_dead:
            end.due = max(end.due, self.clock.current_time() + self._latency_s())
            self._deliver(end, end.due, peer.end)

    # -- the asking side -----------------------------------------------------------------------------------------------

    def dial_from(self, host: str) -> Dial:
        async def dial(target: str, port: int, timeout_s: float) -> PeerConnection:
            with trio.move_on_after(timeout_s):
                return PeerConnection(await self.connect(host, (target, port)))  # type: ignore[arg-type]
            raise OSError(errno.ETIMEDOUT, "it does not accept connections")

        return dial

    async def connect(self, host: str, address: Address) -> "SimStream":
        """One round trip. A node that is cut off or down never answers; a node without a listener refuses."""
        target = address[0]
        await trio.sleep(self._latency_s())
        if self.refuses_connections(host, target) or target in self._machines:
            await trio.sleep(NEVER_S)
        listener = self.listeners.get(address)
        near = far = None
        if listener is not None:
            near, far = SimSocket(self), SimSocket(self)
            near.host, far.host = host, target
            near.peer, far.peer = far, near
            far.origin = (host, near.descriptor)
            self.remember(near)
            self.remember(far)
            listener.queue.append(far)
            listener.changed()
        if self.refuses_connections(target, host):
            await trio.sleep(NEVER_S)
        await trio.sleep(self._latency_s())
        if near is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens at {address}")
        return SimStream(near)


class SimSocket:
    """One end of a connection, or a listener; never waits. What a `socket.socket` is to the broker's network."""

    def __init__(self, net: SimNet) -> None:
        self._net = net
        self.descriptor = net.number()
        self.host = ""
        self.origin: Address = ("", 0)
        self.peer: SimSocket | None = None
        self.queue: deque[SimSocket] = deque()  # of a listener
        self.is_listener = False
        self.is_dead = False  # its process has ended
        self.due = 0.0  # nothing that is sent from here arrives before that
        self._received = bytearray()
        self._unread = 0  # bytes that were sent from here
        self._has_ended = False  # the other side sends no more
        self._is_reset = False
        self._is_closed = False
        self.on_change: Callable[[], None] = _nothing

    # What arrives.

    def arrive(self, data: bytes) -> None:
        """At the other end."""
        peer = self.peer
        assert peer is not None
        if not (peer._is_closed or peer.is_dead or peer._is_reset):
            peer._received += data
            peer.changed()
        elif not self.is_dead and peer._is_closed:
            self._net._reset_later(peer, self)  # no task reads it there

    def end(self) -> None:
        self._has_ended = True
        self.changed()

    def reset(self) -> None:
        if not self._is_closed:
            self._is_reset = True
            self._received.clear()
            self.changed()

    def changed(self) -> None:
        if not self.is_dead:
            self.on_change()

    # What a socket does.

    def fileno(self) -> int:
        return self.descriptor

    def setsockopt(self, *_: Any) -> None: ...

    def getsockopt(self, *_: Any) -> bytes:
        return b""

    def setblocking(self, _: bool) -> None: ...

    def bind(self, address: Address) -> None:
        if address in self._net.listeners:
            raise OSError(errno.EADDRINUSE, "in use")
        self.origin, self.host = address, address[0]

    def listen(self, _: int) -> None:
        self.is_listener = True
        self._net.listeners[self.origin] = self

    def getsockname(self) -> Address:
        return self.origin

    def accept(self) -> "tuple[SimSocket, Address]":
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, "no node is there")
        accepted = self.queue.popleft()
        return accepted, accepted.origin

    def recv_into(self, room: memoryview) -> int:
        self._check()
        if not self._received:
            if self._has_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing has come")
        size = min(len(room), len(self._received))
        room[:size] = self._received[:size]
        del self._received[:size]
        peer = self.peer
        assert peer is not None
        peer._unread -= size
        peer.changed()
        return size

    def send(self, data: Any) -> int:
        self._check()
        room = self._net.quality.window_bytes - self._unread
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        taken = bytes(data[:room])
        self._unread += len(taken)
        self._net.carry(self, taken)
        return len(taken)

    def sendmsg(self, buffers: Sequence[Any], ancillary: object = (), flags: int = 0) -> int:
        return self.send(buffers[0] if len(buffers) == 1 else b"".join(buffers))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self.is_listener:
            if self._net.listeners.get(self.origin) is self:
                del self._net.listeners[self.origin]
            for waiting in self.queue:
                waiting.close()
            return
        self._net.close(self)

    def _check(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "it is closed")
        if self._is_reset or self.is_dead:
            raise ConnectionResetError(errno.ECONNRESET, "it was reset")

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def events(self) -> int:
        """The events that an epoll would return."""
        if self.is_listener:
            return real_select.EPOLLIN if self.queue else 0
        if self._is_reset or self.is_dead:
            return GONE | real_select.EPOLLIN
        found = real_select.EPOLLIN if self._received or self._has_ended else 0
        if self._has_ended:
            found |= real_select.EPOLLRDHUP
        if self._unread < self._net.quality.window_bytes:
            found |= real_select.EPOLLOUT
        return found


class SimStream:
    """The same for tasks that wait: what `trio.socket` is to a `PeerConnection`."""

    def __init__(self, end: SimSocket) -> None:
        self._end = end
        self._changed = trio.Event()
        end.on_change = self._wake

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def send(self, data: Any) -> int:
        return await self._when_possible(lambda: self._end.send(data))

    async def recv_into(self, room: memoryview) -> int:
        return await self._when_possible(lambda: self._end.recv_into(room))

    async def _when_possible(self, do: Callable[[], int]) -> int:
        while True:
            if self._end.is_closed:
                raise trio.ClosedResourceError
            try:
                return do()
            except BlockingIOError:
                await self._changed.wait()

    def close(self) -> None:
        self._end.close()
        self._wake()


class SimEpoll:
    """Level-triggered, as the broker uses it."""

    def __init__(self, net: SimNet) -> None:
        self._net = net
        self._interest: dict[int, tuple[SimSocket, int]] = {}
        self._candidates: dict[int, None] = {}  # sockets that may be ready, the longest waiting first
        self._changed = trio.Event()

    def fileno(self) -> "SimEpoll":
        return self

    def register(self, descriptor: int, events: int) -> None:
        end = self._net._ends.get(descriptor) or self._listener(descriptor)
        self._interest[descriptor] = (end, events)
        end.on_change = lambda: self._note(descriptor)
        self._note(descriptor)

    def _listener(self, descriptor: int) -> SimSocket:
        return next(each for each in self._net.listeners.values() if each.descriptor == descriptor)

    def modify(self, descriptor: int, events: int) -> None:
        self._interest[descriptor] = (self._interest[descriptor][0], events)
        self._note(descriptor)

    def unregister(self, descriptor: int) -> None:
        end, _ = self._interest.pop(descriptor)
        end.on_change = _nothing
        self._candidates.pop(descriptor, None)

    def _note(self, descriptor: int) -> None:
        self._candidates[descriptor] = None
        self._changed.set()

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        """Returns the ready sockets at once, without any wait."""
        found = []
        for descriptor in list(self._candidates):
            end, interest = self._interest[descriptor]
            events = end.events() & (interest | GONE)
            if events:
                found.append((descriptor, events))
            else:
                del self._candidates[descriptor]
        return found[:most]

    async def wait(self) -> None:
        while not self.poll(0, 1):
            self._changed = trio.Event()
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        for descriptor in list(self._interest):
            self.unregister(descriptor)


class _Part:
    """A module in which some names mean something else."""

    def __init__(self, whole: Any, **others: Any) -> None:
        self._whole = whole
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


@contextmanager
def simulated_network(net: SimNet) -> Iterator[None]:
    """While it lasts, the broker's network opens sockets of this one."""
    lowlevel = _Part(trio.lowlevel, wait_readable=SimEpoll.wait)
    sockets = {"socket": _Part(real_socket, socket=lambda *_: SimSocket(net))}
    replaced: dict[ModuleType, dict[str, Any]] = {
        listener: sockets,
        network: {
            **sockets,
            "select": _Part(real_select, epoll=lambda: SimEpoll(net)),
            "trio": _Part(trio, lowlevel=lowlevel),
            "MULTI_CPU": False,  # no busy-polling: the seed decides what happens first
        },
    }
    kept = {module: {name: getattr(module, name) for name in names} for module, names in replaced.items()}
    for module, names in replaced.items():
        vars(module).update(names)
    try:
        yield
    finally:
        for module, names in kept.items():
            vars(module).update(names)


def _nothing() -> None:
    pass
