"""How the bytes of one connection are received and sent.

`Channel` and the server use sockets through this interface only. The plain socket is implemented here, TLS in
tls/transport.py. A transport that transforms bytes cannot send a file without reading it: its `can_sendfile` is false,
and the channel passes the bytes of file ranges in chunks.

All calls are non-blocking: BlockingIOError means that the kernel cannot take bytes or has none now.
"""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

CORK: Final = getattr(socket, "TCP_CORK", None)  # Linux only

Buffer = bytes | bytearray | memoryview


class Transport(Protocol):
    descriptor: int  # for the epoll
    can_sendfile: bool
    has_more: bool  # received bytes can be read without an event

    @property
    def receive_into(self) -> Callable[[memoryview], int]:
        """Returns how many bytes were received; 0 if the client has closed the connection."""

    @property
    def send(self) -> Callable[[bytes], int]:
        """Sends one buffer. Returns how many bytes were sent."""

    def send_pieces(self, pieces: Sequence[Buffer], more: bool) -> int:
        """Sends several buffers by one call. Returns how many bytes were sent. `more` follows at once."""

    def sendfile(self, file: int, position: int, size: int) -> int:
        """Sends from a file; only if `can_sendfile`. Returns how many bytes were sent."""

    def cork(self, is_corked: bool) -> None:
        """While corked, only full segments are sent."""

    def close(self) -> None: ...


class SocketTransport:
    __slots__ = ("_socket", "descriptor", "receive_into", "send")

    can_sendfile = True
    has_more = False

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.descriptor = sock.fileno()
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[bytes], int] = sock.send

    def send_pieces(self, pieces: Sequence[Buffer], more: bool) -> int:
        return self._socket.sendmsg(pieces, (), socket.MSG_MORE if more else 0)

    def sendfile(self, file: int, position: int, size: int) -> int:
        return os.sendfile(self.descriptor, file, position, size)

    def cork(self, is_corked: bool) -> None:
        if CORK is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, CORK, is_corked)

    def close(self) -> None:
        self._socket.close()
