"""How a client of OAUTHBEARER gets its bearer token: by a request with its credentials (RFC 6749, section 4.4), or from
a file. Without I/O.

    POST …          Authorization: Basic base64(client id:client secret)
                    grant_type=client_credentials&scope=…
    200             {"access_token": "…", "expires_in": 300}

The request is that of Apache Kafka's clients. A token is not checked here, except that it can be sent: the other side
checks it.
"""

import json
import re
from base64 import b64encode
from math import isfinite
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from .jwt import MAX_TOKEN_BYTES

MAX_RESPONSE_BYTES: Final = 64 * 1024
SUCCESSES: Final = (200, 201)
CONTENT_TYPE: Final = "application/x-www-form-urlencoded"

_TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")


class NoToken(ValueError):
    """There is no token to log in with; the message gives the reason and repeats nothing secret."""


class Token(NamedTuple):
    text: str
    lifetime_s: float | None = None  # from its issue; None if it must not be kept

    def __repr__(self) -> str:
        return f"Token(lifetime_s={self.lifetime_s})"


class ClientCredentials(NamedTuple):
    client_id: str
    client_secret: str
    scope: str = ""

    def __repr__(self) -> str:
        return f"ClientCredentials({self.client_id!r})"

    @property
    def authorization(self) -> str:
        return "Basic " + b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()

    @property
    def body(self) -> bytes:
        fields = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        return urlencode(fields).encode()


def checked_token(text: str) -> str:
    """Without blanks around it; NoToken if it could not be sent."""
    token = text.strip()
    if len(token) > MAX_TOKEN_BYTES:
        raise NoToken(f"the token has more than {MAX_TOKEN_BYTES} bytes")
    if not _TOKEN.fullmatch(token):
        raise NoToken("there is no token, or it has characters that no bearer token has")
    return token


def token_in_response(status: int, data: bytes) -> Token:
    """NoToken for any other response than a success with a token."""
    if status not in SUCCESSES:
        raise NoToken(f"the token endpoint answers with status {status}; redirects are not followed")
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
        raise NoToken("the token endpoint's response is no JSON object with an access_token")
    return Token(checked_token(found["access_token"]), _lifetime_s(found.get("expires_in")))


def _lifetime_s(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        return None
    return float(value)
