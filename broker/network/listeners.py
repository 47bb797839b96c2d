"""The broker's client listeners, which may change while it runs.

`listeners` is a dynamic key of one broker: a new name is opened, and a removed name is closed with all its connections.
A changed port of a name that stays takes effect at the next start, as in Kafka. So do advertised addresses, because a
broker registers them once, at its start.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trioka.protocol.errors import InvalidRequest

from ..config.addresses import Endpoint
from ..config.layers import Config, ConfigError
from ..config.listeners import node_of
from ..config.network_keys import (
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
)
from ..config.trioka_keys import TLS_HANDSHAKE_TIMEOUT_MS
from .listener import Listener, listen, local_host_name
from .server import RECEIVE_BUFFER, SEND_BUFFER

if TYPE_CHECKING:
    from ..broker import Broker
    from .tls.reload import TlsReload

log = logging.getLogger("trioka.listening")


class ListenerManager:
    """Opens, changes and closes the listeners for clients."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._listeners: dict[str, Listener] = {}
        self.is_open = False  # connections are accepted
        self._is_watching = False
        self.tls: TlsReload | None = None  # with a TLS listener

    def bind(self) -> None:
        """At the start: binds all ports. Connections are not accepted before `open`."""
        for endpoint in self._broker.node.broker_listeners:
            self._listeners[endpoint.name] = self.listen(endpoint)

    def open(self) -> None:
        """Accepts connections from now on."""
        for listener in self._listeners.values():
            self._broker.network.add(listener)
        self.is_open = True
        self.apply_config()

    def close(self) -> None:
        """Closes all sockets, also before `open`, when the server does not know them yet."""
        for listener in self._listeners.values():
            listener.socket.close()

    def size_buffers(self) -> None:
        """Sets the socket buffer sizes of connections and the memory limit of incomplete requests."""
        config, network = self._broker.config, self._broker.network
        if config[QUEUED_MAX_REQUEST_BYTES] > 0:
            network.max_pool_bytes = config[QUEUED_MAX_REQUEST_BYTES]
        for option, key in (
            (SEND_BUFFER, SOCKET_SEND_BUFFER_BYTES),
            (RECEIVE_BUFFER, SOCKET_RECEIVE_BUFFER_BYTES),
        ):
            if config.is_set(key) and config[key] > 0:
                network.buffer_sizes[option] = config[key]

    def listen(self, endpoint: Endpoint) -> Listener:
        backlog = self._broker.config[SOCKET_LISTEN_BACKLOG_SIZE]
        if not endpoint.protocol.tls:
            return listen(endpoint.name, endpoint.host or "0.0.0.0", endpoint.port, backlog)
        from ..security.tls.context import server_context  # ssl is imported only if it is used
        from .tls.reload import TlsReload

        tls = server_context(self._broker.config, endpoint.name, is_sasl=endpoint.protocol.sasl)
        listener = listen(endpoint.name, endpoint.host or "0.0.0.0", endpoint.port, backlog)
        listener.tls = tls
        if self.tls is None:
            self.tls = TlsReload(self._broker)
            self._broker.network.warn_once = self._broker.dispatch.warn_once
            self._broker.network.handshake_timeout_s = self._broker.config[TLS_HANDSHAKE_TIMEOUT_MS] / 1000
        self.tls.add(listener)
        return listener

    def check_tls(self, after: Config) -> None:
        """Whether a configuration of this broker can be applied to its TLS listeners; raises InvalidRequest."""
        try:
            if self.tls is not None:
                self.tls.check(after)
            for endpoint in node_of(after).broker_listeners:
                if endpoint.protocol.tls and endpoint.name not in self._listeners:
                    from ..security.tls.context import server_context

                    server_context(after, endpoint.name, is_sasl=endpoint.protocol.sasl)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None

    def watch_stores(self) -> None:
        """Starts watching the key and trust store files, if there is a TLS listener."""
        if self.tls is not None and not self._is_watching:
            self._is_watching = True
            self._broker.nursery.start_soon(self.tls.watch)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The bound address of each listener, with a real port where 0 was configured."""
        return {name: listener.address for name, listener in self._listeners.items()}

    def advertised_endpoints(self) -> Iterator[Endpoint]:
        """The endpoints for clients, with a real port where 0 was configured and a host name they can connect to."""
        for endpoint in self._broker.node.advertised:
            port = endpoint.port or self.addresses[endpoint.name][1]
            yield endpoint._replace(host=endpoint.host or local_host_name(), port=port)

    def apply_config(self) -> None:
        """Opens and closes listeners as the current configuration says, and reloads changed stores."""
        if self.tls is not None:
            self.tls.apply()
        try:
            wanted = {endpoint.name: endpoint for endpoint in node_of(self._broker.config).broker_listeners}
        except ConfigError as error:
            log.warning("listeners not changed, the configuration is invalid: %s", error)
            return
        for name in self._listeners.keys() - wanted.keys():
            del self._listeners[name]
            self._broker.network.close_listener(name)
            if self.tls is not None:
                self.tls.discard(name)
            log.info("closed listener %s", name)
        for name in sorted(wanted.keys() - self._listeners.keys()):
            try:
                listener = self.listen(wanted[name])
            except (OSError, ConfigError) as error:
                log.error("cannot open listener %s: %s", wanted[name], error)
                continue
            self._listeners[name] = listener
            self._broker.network.add(listener)
            log.info("opened listener %s", wanted[name])
        self.watch_stores()
