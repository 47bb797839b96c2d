"""Where the broker listens, which may change while it runs.

`listeners` can be changed for one broker: a name that is new is opened, and one that is gone is closed, with everybody
who came by it. What another port means for a name that stays is a matter of the next start, as in Kafka; and so is what
clients are told, since a broker registers its addresses once in its life.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..config.addresses import Endpoint
from ..config.layers import ConfigError
from ..config.listeners import node_of
from ..config.network_keys import SOCKET_LISTEN_BACKLOG_SIZE
from .listener import Listener, listen, local_host_name

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.listening")


class Listening:
    """The listeners of clients."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._listeners: dict[str, Listener] = {}
        self.is_open = False  # clients are answered

    def bind(self) -> None:
        """At the start: ports are taken, and nobody is let in yet."""
        for endpoint in self._broker.node.broker_listeners:
            self._listeners[endpoint.name] = self.listen(endpoint)

    def open(self) -> None:
        """Clients may come."""
        for listener in self._listeners.values():
            self._broker.network.add(listener)
        self.is_open = True
        self.follow()

    def close(self) -> None:
        """Also of a broker that was never let in, whose ports nobody else knows of."""
        for listener in self._listeners.values():
            listener.socket.close()

    def listen(self, endpoint: Endpoint) -> Listener:
        backlog = self._broker.config[SOCKET_LISTEN_BACKLOG_SIZE]
        return listen(endpoint.name, endpoint.host or "0.0.0.0", endpoint.port, backlog)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each listener really is: a port of 0 has become a number."""
        return {name: listener.address for name, listener in self._listeners.items()}

    def reachable(self) -> Iterator[Endpoint]:
        """What clients are told: the port that a port of 0 has become, and a host that they can connect to."""
        for endpoint in self._broker.node.advertised:
            port = endpoint.port or self.addresses[endpoint.name][1]
            yield endpoint._replace(host=endpoint.host or local_host_name(), port=port)

    def follow(self) -> None:
        """Opens and closes what the configuration says by now."""
        try:
            wanted = {endpoint.name: endpoint for endpoint in node_of(self._broker.config).broker_listeners}
        except ConfigError as error:
            log.warning("listeners stay as they are: %s", error)
            return
        for name in self._listeners.keys() - wanted.keys():
            del self._listeners[name]
            self._broker.network.close_listener(name)
            log.info("does not listen any more: %s", name)
        for name in sorted(wanted.keys() - self._listeners.keys()):
            try:
                listener = self.listen(wanted[name])
            except OSError as error:
                log.error("cannot listen at %s: %s", wanted[name], error)
                continue
            self._listeners[name] = listener
            self._broker.network.add(listener)
            log.info("listens: %s", wanted[name])
