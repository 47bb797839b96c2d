"""A connected socket for who asks another node, with fewer turns of trio's loop than trio's own socket takes.

A turn costs as much as the answer to a small request, and trio's socket takes one with each call, even if nothing has
to be waited for: so that tasks which never wait do not keep others from running. Whoever asks waits in any case, for
the answer; here that is the one turn that it takes. What the kernel takes is sent at once, and what has come with the
first bytes of an answer is there when the rest of it is asked for.
"""

from typing import Final, Protocol

import trio

AHEAD_BYTES: Final = 16 * 1024  # how much is received at least, where there is so much


class Connected(Protocol):
    """Of the system's socket, what is used here."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def send(self, data: memoryview, /) -> int: ...

    def recv_into(self, room: memoryview, /) -> int: ...

    def getsockopt(self, level: int, option: int, /) -> int: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def close(self) -> None: ...


class QuickSocket:
    __slots__ = ("_ahead", "_came", "_socket", "_taken")

    def __init__(self, sock: Connected) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._ahead = memoryview(bytearray(AHEAD_BYTES))
        self._came = self._taken = 0  # of what was received ahead

    async def send(self, data: memoryview) -> int:
        while True:
            try:
                return self._socket.send(data)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def recv_into(self, room: memoryview) -> int:
        """How many bytes came; 0 if the other side has hung up. It does not wait if there are some already."""
        if self._taken == self._came:
            if len(room) >= AHEAD_BYTES:
                return await self._receive(room)
            self._came = await self._receive(self._ahead)
            self._taken = 0
        size = min(len(room), self._came - self._taken)
        room[:size] = self._ahead[self._taken : self._taken + size]
        self._taken += size
        return size

    async def _receive(self, room: memoryview) -> int:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv_into(room)
            except BlockingIOError:
                continue

    def getsockopt(self, level: int, option: int) -> int:
        return self._socket.getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        """Whoever waits gets a ClosedResourceError."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
