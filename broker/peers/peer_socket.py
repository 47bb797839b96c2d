"""A client socket with fewer checkpoints than trio's own.

trio's socket passes a checkpoint in each call, even if the call does not block, so that no task starves others. A
checkpoint costs as much CPU time as a small request. A client waits for its response in any case, and that is a
checkpoint; here it is the only one. `send` passes none while the kernel takes the data, and `recv_into` returns data
that has already been received without waiting.
"""

from typing import Final, Protocol

import trio

AHEAD_BYTES: Final = 16 * 1024  # read-ahead buffer for small receives


class NotSecured(OSError):
    """TLS or the login has failed: a node cannot prove its identity, or the settings of the nodes do not match."""


class RawSocket(Protocol):
    """The methods of socket.socket that are used here."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def send(self, data: memoryview, /) -> int: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def getsockopt(self, level: int, option: int, /) -> int: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def close(self) -> None: ...


class PeerSocket:
    __slots__ = ("_ahead", "_came", "_socket", "_taken")

    def __init__(self, sock: RawSocket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._ahead = memoryview(bytearray(AHEAD_BYTES))
        self._came = self._taken = 0  # bytes in the read-ahead buffer: received, and handed out

    async def send(self, data: memoryview) -> int:
        while True:
            try:
                return self._socket.send(data)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def recv_into(self, buffer: memoryview) -> int:
        """Returns how many bytes were received; 0 if the peer closed the connection. Does not wait if the read-ahead
        buffer has data."""
        if self._taken == self._came:
            if len(buffer) >= AHEAD_BYTES:
                return await self._receive(buffer)
            self._came = await self._receive(self._ahead)
            self._taken = 0
        size = min(len(buffer), self._came - self._taken)
        buffer[:size] = self._ahead[self._taken : self._taken + size]
        self._taken += size
        return size

    async def _receive(self, buffer: memoryview) -> int:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv_into(buffer)
            except BlockingIOError:
                continue

    def getsockopt(self, level: int, option: int) -> int:
        return self._socket.getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        """Tasks that wait for this socket get a ClosedResourceError."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
