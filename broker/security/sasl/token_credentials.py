"""Delegation tokens on a broker: which connections may send token requests, and logins with a token.

A login with a token is SCRAM with the token's HMAC as the password. Deriving the two SCRAM keys takes PBKDF2, 4 to 13
ms of CPU time. Kafka derives them when a token is replayed, which would block the network task for seconds at a start
with many tokens. Here they are derived at the first login, in a worker thread, and cached.
"""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.delegation_tokens import TokenHmacs, TokenSettings, ends_at_ms, token_credential, token_keys
from trioka.cluster.image.image_delta import Change, TokenChanged
from trioka.protocol.sasl.scram import Credential, ScramMechanism

from ...config.addresses import SecurityProtocol
from ...config.layers import Config
from ...config.security_keys import (
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
    DELEGATION_TOKEN_SECRET_KEY,
)
from ..guard import ANONYMOUS

if TYPE_CHECKING:
    from ...broker import Broker
    from ...network.connection import Call, Connection

MAX_CACHED_CREDENTIALS: Final = 10_000  # about 500 bytes each


class DelegationTokens:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.settings = token_settings(broker.config)
        self.hmacs = TokenHmacs(self.settings.secret_key)
        self._keys: OrderedDict[tuple[str, str], Credential] = OrderedDict()
        self._lock = Lock()  # guards the cached keys: logins are checked in worker threads

    def credential(self, mechanism: ScramMechanism, token_id: str) -> Credential | None:
        """The credential of a token for a login; None if the token does not exist. Runs in a worker thread."""
        token = self._broker.metadata.access.tokens.get(token_id)
        if not self.settings.secret_key or token is None:
            return None
        keys = self._derived(token_id, mechanism)
        token = self._broker.metadata.access.tokens.get(token_id)  # the token may have been removed meanwhile
        return None if token is None else token_credential(keys, token, self._broker.clock.now_ms())

    def end_sessions(self, changes: Iterable[Change], connections: Iterable["Connection"]) -> None:
        """Ends the sessions of tokens that were removed or expire earlier than before. A later expiry applies from the
        next login on."""
        changed = {change.token_id: change.after for change in changes if isinstance(change, TokenChanged)}
        clock = self._broker.clock
        for connection in connections:
            if connection.token_id not in changed:
                continue
            token = changed[connection.token_id]
            left_ms = -1 if token is None else ends_at_ms(token) - clock.now_ms()
            if left_ms < 0:
                connection.abort()
            else:
                connection.shorten_session(clock.now() + left_ms / 1000)

    def _derived(self, token_id: str, mechanism: ScramMechanism) -> Credential:
        name = (token_id, mechanism.name)
        with self._lock:
            if name in self._keys:
                self._keys.move_to_end(name)
                return self._keys[name]
        keys = token_keys(self.settings.secret_key, token_id, mechanism)
        with self._lock:
            self._keys[name] = keys
            if len(self._keys) > MAX_CACHED_CREDENTIALS:
                self._keys.popitem(last=False)
        return keys


def token_settings(config: Config) -> TokenSettings:
    secret = config[DELEGATION_TOKEN_SECRET_KEY]
    return TokenSettings(
        secret_key=b"" if secret is None else secret.value.encode(),
        max_lifetime_ms=config[DELEGATION_TOKEN_MAX_LIFETIME_MS],
        expiry_time_ms=config[DELEGATION_TOKEN_EXPIRY_TIME_MS],
    )


def is_allowed_to_ask(call: "Call") -> bool:
    """Rejects a token request unless the client has authenticated itself on this connection by other means than a
    token. Over PLAINTEXT, or TLS without a client certificate, it has not.

    The node with the client's connection checks this before it forwards a request. An envelope does not contain the
    security protocol of that connection, so the controller relies on the principal.
    """
    connection = call.connection
    if connection.is_token_authenticated or connection.security_protocol == SecurityProtocol.PLAINTEXT:
        return False
    is_named = connection.security_protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
    return is_named or connection.principal != ANONYMOUS
