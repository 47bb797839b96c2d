"""Delegation tokens (KIP-48): how a token, its HMAC and its password belong together.

    id         a random UUID, which is in the metadata
    HMAC       HMAC-SHA512(delegation.token.secret.key, id), known only to clients and to holders of the key
    login      SCRAM with the extension tokenauth=true: the name is the id, the password the HMAC in base64

The metadata contains no secret: every node that has the key can compute the rest, as Apache Kafka does, so that
either can serve the tokens of the other.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.sasl.scram import (
    MIN_ITERATIONS,
    SALT_RANDOM_BYTES,
    Credential,
    ScramMechanism,
    salt_text,
    salted_password,
    scram_keys,
)

from .security_image import DelegationToken

USER: Final = "User"
DIGEST: Final = "sha512"


@frozen
class TokenSettings:
    """The token settings of the configuration. An empty `secret_key` disables tokens."""

    secret_key: bytes = field(default=b"", repr=False)
    max_lifetime_ms: int
    expiry_time_ms: int


class TokenHmacs:
    """The HMACs of tokens, each computed once: a request names a token by its HMAC alone."""

    def __init__(self, secret_key: bytes) -> None:
        self._secret_key = secret_key
        self._by_id: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    def of(self, token_id: str) -> bytes:
        return token_hmac(self._secret_key, token_id)

    def find(self, tokens: Mapping[str, DelegationToken], wanted: bytes) -> DelegationToken | None:
        """The token with this HMAC. The cache is bounded by the number of tokens."""
        token_id = self._ids.get(wanted)
        if token_id is None or token_id not in tokens:
            self._update(tokens)
            token_id = self._ids.get(wanted)
        return None if token_id is None else tokens.get(token_id)

    def _update(self, tokens: Mapping[str, DelegationToken]) -> None:
        for token_id in self._by_id.keys() - tokens.keys():
            del self._ids[self._by_id.pop(token_id)]
        for token_id in tokens.keys() - self._by_id.keys():
            self._by_id[token_id] = self.of(token_id)
            self._ids[self._by_id[token_id]] = token_id


def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    return hmac.digest(secret_key, token_id.encode(), DIGEST)


def is_expired(token: DelegationToken, now_ms: int) -> bool:
    return min(token.max_ms, token.expiry_ms) < now_ms


def ends_at_ms(token: DelegationToken) -> int:
    """The last millisecond in which the token is valid, and a session that logged in with it."""
    return min(token.max_ms, token.expiry_ms)


def is_owner_or_renewer(token: DelegationToken, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def token_keys(secret_key: bytes, token_id: str, mechanism: ScramMechanism) -> Credential:
    """The keys that SCRAM checks a login with the token against. This runs PBKDF2, which takes milliseconds. The salt
    is the same on every node that has the key, and reveals nothing about the password."""
    password = b64encode(token_hmac(secret_key, token_id)).decode()
    salt = salt_text(token_hmac(secret_key, f"salt of {mechanism.name} {token_id}")[:SALT_RANDOM_BYTES])
    keys = scram_keys(mechanism, salted_password(mechanism, password, salt, MIN_ITERATIONS))
    return Credential(salt, keys.stored_key, keys.server_key, MIN_ITERATIONS)


def token_credential(keys: Credential, token: DelegationToken, now_ms: int) -> Credential | None:
    """The same for the current token; None if it has expired, or if its owner is no user with a name."""
    kind, _, name = token.owner.partition(":")
    if is_expired(token, now_ms) or kind != USER or not name:
        return None
    return keys._replace(principal=token.owner, expires_at_ms=ends_at_ms(token))
