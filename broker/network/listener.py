"""Where connections arrive: listening sockets, and what their connections have from the first byte on.

Kafka's own are served all together (network/server.py). What is not Kafka's protocol, and seldom used, is served here,
with a task for each connection.
"""

import contextlib
import errno
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from trioka.cluster.host_address import client_host

log = logging.getLogger("trioka.network")

BACKLOG: Final = 128
ACCEPT_AGAIN_S: Final = 0.1  # after a failure, such as too many open files


class PortInUse(OSError):
    """Somebody else listens there."""

    port = 0


def listen(name: str, host: str, port: int, backlog: int = BACKLOG) -> "Listener":
    """Opens a listening socket. Port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((host, port))
        _spare_pacing(sock)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            in_use = PortInUse(error.errno, f"{host}:{port} is in use")
            in_use.port = port
            raise in_use from None
        raise
    return Listener(name, sock)


def _spare_pacing(sock: socket.socket) -> None:
    """Where only this machine can connect there is no congestion, and a system's choice that sends by the clock, as BBR
    does, only costs timers. What a listener has, its connections have from their first byte on."""
    if sock.getsockname()[0].startswith(("127.", "::1")) and sys.platform == "linux":
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # which everybody may have


def local_host_name() -> str:
    """What this machine calls itself: where clients are sent when nobody says otherwise."""
    return socket.getfqdn()


class Listener:
    """A socket at which connections arrive."""

    __slots__ = ("name", "socket")

    def __init__(self, name: str, sock: socket.socket) -> None:
        self.name = name
        self.socket = sock

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.socket.getsockname()[:2]
        return host, port


async def serve_streams(listener: Listener, serve: Callable[[trio.abc.Stream, str], Awaitable[None]]) -> None:
    """For what is not Kafka's protocol, and seldom used: a task for each connection, which is told where it comes from.
    Until cancelled; closes the listener. How many there may be is for `serve` to say."""
    with trio.socket.from_stdlib_socket(listener.socket) as arriving:
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    accepted, address = await arriving.accept()
                except OSError as error:
                    log.warning("cannot accept on %s: %s", listener.name, error)
                    await trio.sleep(ACCEPT_AGAIN_S)
                    continue
                nursery.start_soon(serve, trio.SocketStream(accepted), client_host(address))
