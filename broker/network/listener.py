"""Listening sockets, and the socket options that their connections inherit.

Connections that speak Kafka's protocol are served by one task (network/server.py). Other protocols (HTTP), which are
seldom used, are served here with one task for each connection.
"""

import contextlib
import errno
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.security.host_address import client_host

if TYPE_CHECKING:
    from ..security.tls.context import ServerTls

log = logging.getLogger("trioka.network")

BACKLOG: Final = 128
ACCEPT_RETRY_S: Final = 0.1  # after a failed accept, such as too many open files


class PortInUse(OSError):
    """Another socket listens on this port."""

    port = 0


def listen(name: str, host: str, port: int, backlog: int = BACKLOG) -> "Listener":
    """Opens a listening socket. Port 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((host, port))
        _disable_pacing(sock)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            in_use = PortInUse(error.errno, f"{host}:{port} is in use")
            in_use.port = port
            raise in_use from None
        raise
    return Listener(name, sock)


def _disable_pacing(sock: socket.socket) -> None:
    """Selects Reno on loopback: there is no congestion there, and an algorithm that paces by timers, such as BBR, only
    costs CPU time. Connections inherit the option from the listening socket."""
    if sock.getsockname()[0].startswith(("127.", "::1")) and sys.platform == "linux":
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # needs no privilege


def local_host_name() -> str:
    """This machine's name, which is advertised if no host is configured."""
    return socket.getfqdn()


class Listener:
    """A socket at which connections arrive."""

    __slots__ = ("name", "socket", "tls")

    def __init__(self, name: str, sock: socket.socket) -> None:
        self.name = name
        self.socket = sock
        self.tls: ServerTls | None = None  # for new connections; None for plaintext

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.socket.getsockname()[:2]
        return host, port


async def serve_streams(listener: Listener, serve: Callable[[trio.abc.Stream, str], Awaitable[None]]) -> None:
    """Serves each connection in a task of its own, which gets the stream and the client's address. Runs until
    cancelled, then closes the listener. `serve` must limit the number of connections."""
    with trio.socket.from_stdlib_socket(listener.socket) as arriving:
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    accepted, address = await arriving.accept()
                except OSError as error:
                    log.warning("cannot accept connections on %s: %s", listener.name, error)
                    await trio.sleep(ACCEPT_RETRY_S)
                    continue
                nursery.start_soon(serve, trio.SocketStream(accepted), client_host(address))


async def addresses_of(host: str) -> set[str]:
    """The addresses of a name, spelled as those of clients. Raises OSError, or UnicodeError for what is no name."""
    found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {client_host(address) for *_, address in found}
