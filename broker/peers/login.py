"""The SASL login of this node at another one, as a client (protocol/sasl/client.py has the exchanges)."""

import errno
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from trioka.protocol.errors import NONE, error_class
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.sasl.exchange import ServerNotAuthenticated
from trioka.protocol.sasl.scram import NONCE_BYTES
from trioka.protocol.sasl.token_request import NoToken
from trioka.protocol.schema import Request

from ..config.sasl import NodeLogin
from ..logs.lines import in_a_line
from .peer_socket import NotSecured

if TYPE_CHECKING:
    from ..security.sasl.token_source import TokenSource

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
MIN_REFRESH, REFRESH_SPREAD = 0.85, 0.10  # fraction of the session lifetime after which this node logs in again

Send: TypeAlias = Callable[[Request, int], Awaitable[Any]]


class LoginFailed(NotSecured):
    """The other node rejects the login, or does not prove that it knows the password; or there is no bearer token."""


async def log_in(send: Send, login: NodeLogin, address: str, tokens: "TokenSource | None" = None) -> float | None:
    """Logs in on a connection. Returns the time until the next login; None if the session has no end."""
    by = f"log in to {address}{f' as {login.username}' if login.username else ''} by {login.mechanism}"
    password = login.password.value
    if tokens is not None:
        try:
            password = await tokens.token()
        except NoToken as error:
            raise LoginFailed(errno.EACCES, f"cannot {by}: {error}") from None
    try:
        return await _exchange(send, login, password, by)
    except LoginFailed:
        if tokens is not None:
            tokens.discard(password)
        raise


async def _exchange(send: Send, login: NodeLogin, password: str, by: str) -> float | None:
    handshake = await send(SaslHandshakeRequest(mechanism=login.mechanism), HANDSHAKE_VERSION)
    if handshake.error_code != NONE:
        offered = in_a_line(", ".join(handshake.mechanisms)) or "no mechanism"
        raise LoginFailed(
            errno.EACCES, f"cannot {by}: {error_class(handshake.error_code).name}, the node offers {offered}"
        )
    random = secrets.token_bytes(NONCE_BYTES)
    exchange = client_exchange(login.mechanism, login.username, password, random=random)
    challenge, lifetime_ms = b"", 0
    try:
        # SCRAM derives a key from the password, which takes milliseconds.
        while (message := await trio.to_thread.run_sync(exchange.respond, challenge)) is not None:
            response = await send(SaslAuthenticateRequest(auth_bytes=message), AUTHENTICATE_VERSION)
            if response.error_code != NONE:
                reason = in_a_line(response.error_message or "") or error_class(response.error_code).name
                raise LoginFailed(errno.EACCES, f"cannot {by}: {reason}")
            challenge, lifetime_ms = bytes(response.auth_bytes), response.session_lifetime_ms
    except ServerNotAuthenticated:
        raise LoginFailed(errno.EACCES, f"cannot {by}: the node does not prove that it knows the password") from None
    if lifetime_ms <= 0:
        return None
    return lifetime_ms / 1000 * (MIN_REFRESH + REFRESH_SPREAD * secrets.randbelow(1000) / 1000)
