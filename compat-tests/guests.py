"""A client with another address. On one machine access rules can distinguish clients only by loopback addresses, of
which there are several."""

import socket
import time
from collections.abc import Callable, Collection
from typing import Any

from side_by_side import PATIENCE_S, POLL_S, Order, RequestFor, Side, SideBySide
from support.serving import TIMEOUT_S, Client

from trioka.cli.client import connection

GUEST = "127.0.0.2"


class _FromElsewhere(connection.Connection):
    def _connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), TIMEOUT_S, source_address=(GUEST, 0))


class Guest(Client):
    """The same as a `Client`, from `GUEST`."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = _FromElsewhere(host, port, timeout_s=TIMEOUT_S)
        self._connection.open()


class Guests(SideBySide):
    """A guest on both sides. Changed rules reach the parts of Apache Kafka one after another, so a request is repeated
    until both answers agree, and `until` confirms that the change is visible."""

    def __init__(self, hosts: SideBySide) -> None:
        super().__init__(_guest(hosts.kafka), _guest(hosts.trioka))

    def agree(
        self,
        requested: RequestFor,
        version: int,
        *,
        until: Callable[[Any], bool],
        ignoring: Collection[str] = (),
        order: Order | None = None,
    ) -> Any:
        """The answer, once both sides agree."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            kafka, trioka = self.both(requested, version)
            if until(kafka) and until(trioka):
                return self.same(requested, version, ignoring=ignoring, order=order)[1]
            assert time.monotonic() < deadline, f"Apache Kafka says {kafka}, trioka {trioka}"
            time.sleep(POLL_S)

    def close(self) -> None:
        self.kafka.client.close()
        self.trioka.client.close()


def _guest(host: Side) -> Side:
    """It uses the host's topic ids, because it may not request them."""
    side = Side(host.name, host.port, host.cluster_id)
    side.client.close()
    side.client = Guest("127.0.0.1", host.port)
    side.ids = host.ids
    return side
