"""PLAIN (RFC 4616): one message with name and password.

    [authzid] NUL authcid NUL password

The texts for clients are those of Apache Kafka 4.3.1. The server side keeps digests of passwords and compares digests,
so that neither the length of a password nor the existence of a user changes the time of a comparison.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from .exchange import Authenticated, Failed, user_principal

PLAIN: Final = "PLAIN"
INVALID: Final = "Authentication failed: Invalid username or password"
OTHER_AUTHZID: Final = "Authentication failed: Client requested an authorization id that is different from username"
MAX_MESSAGE_BYTES: Final = 8 * 1024
TOKENS: Final = 3
_UNKNOWN: Final = bytes(hashlib.sha256().digest_size)


class PlainUsers:
    """Names and digests of passwords. The clear text is not kept."""

    __slots__ = ("_digests",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: hashlib.sha256(password.encode()).digest() for name, password in passwords.items()}

    def verify(self, name: str, password: str) -> bool:
        expected = self._digests.get(name, _UNKNOWN)
        is_equal = hmac.compare_digest(hashlib.sha256(password.encode()).digest(), expected)
        return is_equal and expected is not _UNKNOWN


class PlainServer:
    """The server side of one login."""

    __slots__ = ("_users",)

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def respond(self, message: bytes) -> Authenticated | Failed:
        if len(message) > MAX_MESSAGE_BYTES:
            return Failed(f"the message has {len(message)} bytes, more than {MAX_MESSAGE_BYTES}", INVALID)
        try:
            tokens = message.decode().split("\0", TOKENS)
        except UnicodeDecodeError:
            return Failed("the message is not UTF-8", INVALID)
        if len(tokens) != TOKENS:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}"
            return Failed(f"{len(tokens)} tokens instead of {TOKENS}", text)
        authorization_id, name, password = tokens
        if not name:
            return Failed("no user name", "Authentication failed: username not specified")
        if not password:
            return Failed("no password", "Authentication failed: password not specified", name)
        if not self._users.verify(name, password):
            return Failed("unknown user or wrong password", INVALID, name)
        if authorization_id and authorization_id != name:
            return Failed("the authorization id is not the user name", OTHER_AUTHZID, name)
        return Authenticated(user_principal(name))


class PlainClient:
    """The client side of one login."""

    __slots__ = ("_is_sent", "_message")

    def __init__(self, name: str, password: str) -> None:
        self._message = f"\0{name}\0{password}".encode()
        self._is_sent = False

    def respond(self, challenge: bytes) -> bytes | None:
        if self._is_sent:
            return None
        self._is_sent = True
        return self._message
