"""Client connections to other nodes: one request at a time, whole frames."""

import errno
import socket
from importlib import import_module
from typing import TYPE_CHECKING, Final

import trio

from .peer_socket import PeerSocket

if TYPE_CHECKING:
    from ..security.tls.context import ClientTls

MAX_RESPONSE_BYTES: Final = 128 * 1024 * 1024  # a Fetch response has at most fetch.max.bytes (55 MiB) plus one batch
INITIAL_BUFFER_BYTES: Final = 64 * 1024
KEPT_BYTES: Final = 16 * 1024 * 1024  # a buffer up to this size is reused; replication fetches have 10 MiB
SMALL_RESPONSES: Final = 100  # after so many small responses in a row, a large buffer is released


class PeerConnection:
    """A connection to another node that sends and receives whole frames."""

    __slots__ = ("_buffer", "_size_bytes", "_small_responses", "_socket")

    def __init__(self, sock: "trio.socket.SocketType") -> None:
        self._socket = sock
        self._size_bytes = bytearray(4)
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._small_responses = 0

    async def start_tls(self, tls: "ClientTls", host: str) -> None:
        """From here on all bytes are encrypted. Raises OSError if the other node cannot prove its name."""
        sock = import_module(".tls_socket", __package__).TlsSocket(self._socket, tls, host)
        await sock.handshake(tls)
        self._socket = sock

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
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise OSError(errno.EBADMSG, f"a response has an impossible size: {size} bytes")
        buffer = self._free_buffer(size)
        await self._receive_into(buffer, size)
        self._buffer = buffer if len(buffer) <= KEPT_BYTES else bytearray(INITIAL_BUFFER_BYTES)
        return memoryview(buffer)[:size]

    def _free_buffer(self, size: int) -> bytearray:
        """The buffer of the last response, or a new, small one if a view of the buffer still exists or the last
        SMALL_RESPONSES did not need its size."""
        self._small_responses = self._small_responses + 1 if size <= INITIAL_BUFFER_BYTES else 0
        if self._small_responses <= SMALL_RESPONSES or len(self._buffer) <= INITIAL_BUFFER_BYTES:
            try:
                self._buffer.append(0)  # raises BufferError while a memoryview of it exists
            except BufferError:
                pass
            else:
                self._buffer.pop()
                return self._buffer
        return bytearray(INITIAL_BUFFER_BYTES)

    async def _receive_into(self, buffer: bytearray, size: int) -> None:
        """Grows the buffer only as bytes arrive, because the peer may announce any size."""
        received = 0
        while received < size:
            if received == len(buffer):
                buffer += bytes(min(size - received, received))
            with memoryview(buffer) as view:
                more = await self._socket.recv_into(view[received : min(size, len(view))])
            if more == 0:
                raise OSError(errno.ECONNRESET, "the peer closed the connection")
            received += more

    def set_receive_buffer(self, size: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def close(self) -> None:
        """A task that waits for a response gets an error."""
        self._socket.close()


async def dial(host: str, port: int, timeout_s: float) -> PeerConnection:
    """Connects to another node. Raises OSError if it does not accept in time."""
    with trio.move_on_after(timeout_s):
        stream = await trio.open_tcp_stream(host, port)  # sets TCP_NODELAY
        return PeerConnection(PeerSocket(socket.socket(fileno=stream.socket.detach())))  # type: ignore[arg-type]
    raise OSError(errno.ETIMEDOUT, f"{host}:{port} did not accept the connection within {timeout_s:g} s")
