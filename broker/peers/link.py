"""Links to other nodes: the asking side of sockets. A task sends a request and waits for its answer, one at a time."""

import errno
import socket
from typing import Final

import trio

from .peer_socket import QuickSocket

MAX_ANSWER_BYTES: Final = 128 * 1024 * 1024  # a fetch has fetch.max.bytes at most, 55 MiB, and one batch more
FIRST_ANSWER_BYTES: Final = 64 * 1024
KEPT_BYTES: Final = 16 * 1024 * 1024  # a buffer up to this size is used again; a follower's responses have 10 MiB
SMALL_RESPONSES: Final = 100  # after so many in a row that need little, a large buffer is given back


class Link:
    """A connection to another node: whole frames out, whole frames in."""

    __slots__ = ("_buffer", "_size_bytes", "_small_responses", "_socket")

    def __init__(self, sock: "trio.socket.SocketType") -> None:
        self._socket = sock
        self._size_bytes = bytearray(4)
        self._buffer = bytearray(FIRST_ANSWER_BYTES)
        self._small_responses = 0

    async def exchange(self, frame: bytes | bytearray) -> memoryview:
        """Sends a request, its size first, and returns the response without its size. The memory belongs to the caller
        for as long as any view of it exists."""
        await self.send(frame)
        return await self.receive()

    async def send(self, frame: bytes | bytearray) -> None:
        left = memoryview(frame)
        while left:
            left = left[await self._socket.send(left) :]

    async def receive(self) -> memoryview:
        await self._receive_into(self._size_bytes, 4)
        size = int.from_bytes(self._size_bytes, signed=True)
        if not 4 <= size <= MAX_ANSWER_BYTES:
            raise OSError(errno.EBADMSG, f"an answer of {size} bytes")
        buffer = self._free_buffer(size)
        await self._receive_into(buffer, size)
        self._buffer = buffer if len(buffer) <= KEPT_BYTES else bytearray(FIRST_ANSWER_BYTES)
        return memoryview(buffer)[:size]

    def _free_buffer(self, size: int) -> bytearray:
        """The buffer of the last response, unless a view of it still exists or its size was not needed for long: then a
        new, small one."""
        self._small_responses = self._small_responses + 1 if size <= FIRST_ANSWER_BYTES else 0
        if self._small_responses <= SMALL_RESPONSES or len(self._buffer) <= FIRST_ANSWER_BYTES:
            try:
                self._buffer.append(0)  # a bytearray of which a view exists cannot be resized
            except BufferError:
                pass
            else:
                self._buffer.pop()
                return self._buffer
        return bytearray(FIRST_ANSWER_BYTES)

    async def _receive_into(self, buffer: bytearray, size: int) -> None:
        """A size is a claim of the other side, so the buffer grows only with the bytes that arrive."""
        received = 0
        while received < size:
            if received == len(buffer):
                buffer += bytes(min(size - received, received))
            with memoryview(buffer) as view:
                more = await self._socket.recv_into(view[received : min(size, len(view))])
            if more == 0:
                raise OSError(errno.ECONNRESET, "the other side has hung up")
            received += more

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
