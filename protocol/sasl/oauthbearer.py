"""OAUTHBEARER (RFC 7628): one message with a bearer token, which must be a signed JWT (jwt.py).

    client   n,[a=authzid],^A auth=Bearer TOKEN ^A [key=value ^A]... ^A        (^A is the byte 1, without spaces)
    server   nothing, or {"status":"invalid_token"}, to which the client answers ^A before the login fails

The texts for clients are those of Apache Kafka 4.3.1, which do not contain why a token is refused. Kafka accepts
another token in place of the ^A; this server does not.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from .exchange import Authenticated, Challenge, Computation, Failed, Step, user_principal
from .jwt import MAX_TOKEN_BYTES, InvalidToken, Rules, UnknownKey, VerificationKey, verify

SEPARATOR: Final = "\x01"
INVALID_TOKEN: Final = '{"status":"invalid_token"}'
MAX_MESSAGE_BYTES: Final = MAX_TOKEN_BYTES + 4 * 1024  # for authorization id and extensions
MAX_EXTENSIONS: Final = 20

_HEADER: Final = re.compile(r"n,(?:a=((?:[^=,\x00\x01]|=2C|=3D)+))?,")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([-_~+/.A-Za-z0-9]+=*)")


class InitialResponse(NamedTuple):
    token: str
    authorization_id: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"InitialResponse(authorization_id={self.authorization_id!r})"


def read_initial_response(message: bytes) -> InitialResponse:
    """ValueError, with the reason, for a malformed first message of a client. The reason repeats nothing of it."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise ValueError(f"the message has {len(message)} bytes, more than {MAX_MESSAGE_BYTES}")
    text = message.decode()
    header, *pairs = text.split(SEPARATOR, MAX_EXTENSIONS + 3)
    matched = _HEADER.fullmatch(header)
    if matched is None:
        raise ValueError("the message has no header of the form n,[a=authzid],")
    if len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise ValueError(f"the message does not end as it should, or has more than {MAX_EXTENSIONS} extensions")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or key in found:
            raise ValueError("the message has a key without a value, or twice, or with other characters than ASCII")
        found[key] = value
    bearer = _BEARER.fullmatch(found.pop("auth", ""))
    if bearer is None:
        raise ValueError("the message has no auth=Bearer TOKEN")
    authorization_id = (matched[1] or "").replace("=2C", ",").replace("=3D", "=")
    return InitialResponse(bearer[1], authorization_id, found)


def initial_response(token: str) -> bytes:
    """The first message of a client."""
    return f"n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}{SEPARATOR}".encode()


class OAuthBearerClient:
    """The client side of one login."""

    __slots__ = ("_is_sent", "_token")

    def __init__(self, token: str) -> None:
        self._token = token
        self._is_sent = False

    def respond(self, challenge: bytes) -> bytes | None:
        if not self._is_sent:
            self._is_sent = True
            return initial_response(self._token)
        return SEPARATOR.encode() if challenge else None  # the server has refused the token, and says so after this


class OAuthBearerServer:
    """The server side of one login. `keys` are the keys of the issuer as they are now, `now_s` the time since 1970;
    `unknown_key` is called, in the worker thread, if a token names a key that is not among them."""

    __slots__ = ("_is_refused", "_keys", "_now_s", "_rules", "_unknown_key")

    def __init__(
        self,
        rules: Rules,
        keys: Callable[[], Sequence[VerificationKey]],
        now_s: Callable[[], float],
        unknown_key: Callable[[], None],
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._now_s = now_s
        self._unknown_key = unknown_key
        self._is_refused = False

    def respond(self, message: bytes) -> Step:
        if self._is_refused:
            is_expected = message == SEPARATOR.encode()
            return Failed("" if is_expected else "after a refused token another message than ^A", INVALID_TOKEN)
        try:
            first = read_initial_response(message)
        except ValueError as error:
            return Failed("the message is not UTF-8" if isinstance(error, UnicodeError) else str(error))
        return Computation(lambda: self._verified(first))

    def _verified(self, first: InitialResponse) -> Challenge | Authenticated | Failed:
        try:
            claims = verify(first.token, self._keys(), self._rules, self._now_s())
        except InvalidToken as error:
            if isinstance(error, UnknownKey):
                self._unknown_key()
            self._is_refused = True
            return Challenge(INVALID_TOKEN.encode(), f"the token is refused: {error}")  # not all clients answer ^A
        if first.authorization_id and first.authorization_id != claims.subject:
            text = (
                f"Authentication failed: Client requested an authorization id ({first.authorization_id}) that is "
                f"different from the token's principal name ({claims.subject})"
            )
            return Failed("the authorization id is not the subject of the token", text, claims.subject)
        return Authenticated(user_principal(claims.subject), expires_at_ms=claims.expires_at_ms)
