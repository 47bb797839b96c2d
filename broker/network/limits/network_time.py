"""The network's part of request_percentage: receiving, decrypting, decoding, encoding, encrypting and sending.

As in Kafka it is recorded without a check, so that it counts when the client's next request is checked. It is measured
only while the metadata has a quota of this kind: otherwise `SocketServer` serves sockets without this module. What the
handlers of a socket's requests took meanwhile is recorded by request_quotas.py, and subtracted here.
"""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from ...security.client_quotas import ClientQuotas

if TYPE_CHECKING:
    from ...broker import Broker
    from ..channel import Channel
    from ..connection import Connection


class NetworkTime:
    def __init__(
        self,
        clients: ClientQuotas,
        serve: Callable[[int, int], None],
        connection_of: Callable[[int], "Connection | None"],
        flush: Callable[["Channel"], None],
    ) -> None:
        self._clients = clients
        self._serve = serve
        self._connection_of = connection_of
        self._flush = flush

    def serve(self, ready: int, events: int) -> None:
        """Serves a socket, and records the time that was not recorded meanwhile."""
        connection = self._connection_of(ready)
        if connection is None:
            self._serve(ready, events)
            return
        began, before = perf_counter(), self._clients.seconds
        self._serve(ready, events)
        self._record(connection, perf_counter() - began - (self._clients.seconds - before))

    def flush(self, channel: "Channel") -> None:
        """Sends what is ready."""
        began = perf_counter()
        self._flush(channel)
        self._record(channel.connection, perf_counter() - began)

    def _record(self, connection: "Connection", seconds: float) -> None:
        gate = connection.gate
        if seconds <= 0 or (gate is not None and gate.is_before_login):  # as in Kafka, a login does not count
            return
        if connection.is_exempt:
            self._clients.record_exempt_time(seconds)
        else:
            self._clients.record_network_time(connection.principal, connection.client_id, seconds)


def measure_network_time(broker: "Broker") -> None:
    """Begins or ends measuring, as the quotas demand."""
    network, clients = broker.network, broker.client_quotas
    network.serve_socket, network.flush = network.serve_ready, lambda channel: channel.flush(network)
    if clients.request.levels:
        measured = NetworkTime(clients, network.serve_socket, network.connection_of, network.flush)
        network.serve_socket, network.flush = measured.serve, measured.flush
