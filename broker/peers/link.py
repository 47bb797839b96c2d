"""Links to other nodes: the asking side of sockets. A task sends a request and waits for its answer, one at a time."""

import errno
import socket
from typing import Final

import trio

from .peer_socket import QuickSocket

MAX_ANSWER_BYTES: Final = 128 * 1024 * 1024  # a fetch has fetch.max.bytes at most, 55 MiB, and one batch more
FIRST_ANSWER_BYTES: Final = 64 * 1024


class Link:
    """A connection to another node: whole frames out, whole frames in."""

    __slots__ = ("_socket",)

    def __init__(self, sock: "trio.socket.SocketType") -> None:
        self._socket = sock

    async def exchange(self, frame: bytes | bytearray) -> memoryview:
        """Sends a request, its size first; the answer's bytes, without their size. Nobody else has that memory."""
        left = memoryview(frame)
        while left:
            left = left[await self._socket.send(left) :]
        size = int.from_bytes(await self._receive(4), signed=True)
        if not 4 <= size <= MAX_ANSWER_BYTES:
            raise OSError(errno.EBADMSG, f"an answer of {size} bytes")
        return await self._receive(size)

    async def _receive(self, size: int) -> memoryview:
        """A size is a claim: memory grows with what has come."""
        buffer, came = bytearray(min(size, FIRST_ANSWER_BYTES)), 0
        while came < size:
            if came == len(buffer):
                buffer += bytes(min(size - came, came))
            with memoryview(buffer) as view:
                more = await self._socket.recv_into(view[came:])
            if more == 0:
                raise OSError(errno.ECONNRESET, "the other side has hung up")
            came += more
        return memoryview(buffer)

    def size_receive_buffer(self, size: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def close(self) -> None:
        """Whoever waits for an answer gets an error."""
        self._socket.close()


async def dial(host: str, port: int, timeout_s: float) -> Link:
    """Connects to another node. OSError if that cannot be done in time."""
    with trio.move_on_after(timeout_s):
        stream = await trio.open_tcp_stream(host, port)  # which does not wait for more before it sends
        return Link(QuickSocket(socket.socket(fileno=stream.socket.detach())))  # type: ignore[arg-type]
    raise OSError(errno.ETIMEDOUT, "it does not accept connections")
