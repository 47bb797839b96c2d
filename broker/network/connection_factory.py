"""Creates the connections of a broker: counts them, and passes dispatch, limits and security protocol to each."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from trioka.cluster.image.image_delta import Change, QuotaChanged, TokenChanged

from ..config.addresses import SecurityProtocol
from ..config.layers import Config, ConfigError
from ..config.listeners import node_of
from ..config.network_keys import SOCKET_REQUEST_MAX_BYTES
from ..config.security_keys import SASL_SERVER_MAX_RECEIVE_SIZE
from .connection import Connection
from .limits.request_quotas import follow_quotas

if TYPE_CHECKING:
    from ..broker import Broker


class Connections:
    """Creates connections of all listeners of a broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._config: Config | None = None  # from which `_protocols` were read
        self._protocols: dict[str, SecurityProtocol] = {}

    def new(self, *, host: str, port: int, listener: str) -> Connection | None:
        """Creates a connection; None to refuse it."""
        broker = self._broker
        protocol = self._protocol(listener)
        if protocol is None:
            broker.dispatch.warn_once(host, "refused %s on %s: the listener is not configured", host, listener)
            return None
        if not broker.admission.admit(host, listener):
            broker.dispatch.warn_once(host, "refused %s on %s: too many connections", host, listener)
            return None
        dispatch = broker.controller_dispatch if listener in broker.node.controller_names else broker.dispatch
        return Connection(
            dispatch,
            broker.coalescer.scratch,
            host=host,
            port=port,
            listener=listener,
            max_bytes=broker.config[SOCKET_REQUEST_MAX_BYTES],
            security_protocol=protocol,
            max_login_bytes=broker.config[SASL_SERVER_MAX_RECEIVE_SIZE],
            now=broker.clock.now(),
        )

    def gone(self, connection: Connection) -> None:
        self._broker.admission.release(connection.host, connection.listener)

    def apply(self, changes: Sequence[Change]) -> None:
        """Applies changes of the metadata that concern connections: delegation tokens and quotas."""
        broker = self._broker
        if any(isinstance(change, TokenChanged) for change in changes):
            broker.tokens.end_sessions(changes, broker.network.connections)
        if any(isinstance(change, QuotaChanged) for change in changes):
            self.apply_quotas()

    def apply_quotas(self) -> None:
        follow_quotas(self._broker)

    def _protocol(self, listener: str) -> SecurityProtocol | None:
        """The security protocol of a listener, which may have been added at run time. It is fixed until the next start,
        so that a listener never becomes less secure."""
        config = self._broker.config
        if config is not self._config:
            self._config = config
            with suppress(ConfigError):  # the listeners stay as they are
                self._protocols = {each.name: each.protocol for each in node_of(config).listeners}
            self._protocols |= {each.name: each.protocol for each in self._broker.node.listeners}
        return self._protocols.get(listener)
