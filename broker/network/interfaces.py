"""The types through which the socket server (server.py) uses other parts of the broker."""

import logging
from collections.abc import Callable
from typing import Protocol

from .connection import Connection

log = logging.getLogger("trioka.network")

Poll = Callable[[float, int], list[tuple[int, int]]]  # epoll.poll: pairs of descriptor and event mask


def log_warning(peer: str, message: str, *arguments: object) -> None:
    log.warning(message, *arguments)


class ConnectionFactory(Protocol):
    def __call__(self, *, host: str, port: int, listener: str) -> Connection | None:
        """The protocol side of an accepted socket; None refuses it. `host` is spelled as in
        cluster/security/host_address.py."""


class HoldsNotifications(Protocol):
    """The purgatory (cluster/replication/purgatory.py)."""

    def hold(self) -> None: ...

    def release(self) -> None: ...
