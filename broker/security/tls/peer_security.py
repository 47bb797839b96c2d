"""How this node secures its connections to other nodes: TLS and a SASL login, by the listener that it connects to.

    inter.broker.listener.name    sasl.mechanism.inter.broker.protocol    brokers
    controller.listener.names     sasl.mechanism.controller.protocol      controllers: the first name

The node is a client of these listeners, with the listener's `ssl.*` keys and with `username` and `password` of its JAAS
configuration, or with a bearer token (token_source.py). A setting that cannot be honoured raises ConfigError at the
start: a node never connects with less security than its configuration demands.
"""

import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from ...config import security_keys as keys
from ...config.addresses import SecurityProtocol
from ...config.layers import Config, ConfigError
from ...config.listeners import Node
from .store_files import STORE_KEYS, FileState, file_state

if TYPE_CHECKING:
    from ...config.sasl import NodeLogin
    from ..sasl.token_source import TokenSource
    from .context import ClientTls

log = logging.getLogger("trioka.peers")

PLAINTEXT: Final = SecurityProtocol.PLAINTEXT


class PeerSecurity(NamedTuple):
    listener: str
    tls: "ClientTls | None"
    login: "NodeLogin | None"
    tokens: "TokenSource | None" = None  # for a login by OAUTHBEARER


def peer_security(config: Config, listener: str, protocol: SecurityProtocol, mechanism: str) -> PeerSecurity | None:
    """None if connections to this listener are plaintext without a login. Raises ConfigError. Modules of TLS and SASL
    are imported when they are needed."""
    if protocol is PLAINTEXT:
        return None
    tls = login = tokens = None
    if protocol.tls:
        tls = import_module(".context", __package__).client_context(config, listener)
    if protocol.sasl:
        login = import_module("...config.sasl", __package__).login_of(config, listener, mechanism)
        if login.token is not None:
            tokens = import_module("..sasl.token_source", __package__).TokenSource(login.token)
    return PeerSecurity(listener, tls, login, tokens)


class _Loaded(NamedTuple):
    config: Config
    files: tuple[FileState | None, ...]  # state of key store and trust store before they were read
    security: PeerSecurity | None


class NodeSecurity:
    """The security of connections to brokers and to controllers. It follows changes of the configuration, key stores
    and trust stores; if a change cannot be honoured, the last valid settings stay in force.

    Files are compared when a connection is opened. They are read only if they have changed.
    """

    def __init__(self, node: Node, config: Callable[[], Config]) -> None:
        self._node = node
        self._config = config
        self._loaded: dict[bool, _Loaded] = {}  # by whether it is for controllers

    def check(self) -> None:
        """Reads the settings at the start; raises ConfigError."""
        self.of(is_controller=True)
        if self._node.is_broker:
            self.of(is_controller=False)

    def of(self, *, is_controller: bool) -> PeerSecurity | None:
        config, loaded = self._config(), self._loaded.get(is_controller)
        listener, protocol = self._listener(is_controller)
        files = tuple(file_state(config.of_listener(listener, key)) for key in STORE_KEYS) if protocol.tls else ()
        if loaded is not None and loaded.config is config and loaded.files == files:
            return loaded.security
        mechanism = config[keys.SASL_MECHANISM_INTER_BROKER_PROTOCOL]
        if is_controller:
            mechanism = config[keys.SASL_MECHANISM_CONTROLLER_PROTOCOL]
        try:
            found = peer_security(config, listener, protocol, mechanism)
        except ConfigError as error:
            if loaded is None:
                raise
            log.error("connections to other nodes keep their security settings: %s", error)
            found = loaded.security
        else:
            if loaded is not None and loaded.files != files:
                log.info("connections to other nodes by %s use stores that have changed", listener)
        self._loaded[is_controller] = _Loaded(config, files, found)  # a bad file is reported once
        return found

    def _listener(self, is_controller: bool) -> tuple[str, SecurityProtocol]:
        node = self._node
        if is_controller:
            return node.controller_names[0], node.controller_protocol
        return node.inter_broker, node.inter_broker_protocol
