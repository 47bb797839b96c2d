"""Who calls: the `authorization` header becomes a login of that user at the cluster.

    authorization: Basic base64(name:password)    SASL with the mechanism of the gateway's client.properties
    authorization: Bearer TOKEN                   SASL OAUTHBEARER

A cluster without SASL has no users, and the header is ignored. The gateway never uses its own login for a caller.
"""

import base64
import binascii
import re
from typing import Final

import grpc

from .cluster_access import OAUTHBEARER, ClusterAccess, Login
from .failures import Refused

MAX_HEADER_CHARS: Final = 12 * 1024
TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


def login_of(authorization: str | None, access: ClusterAccess) -> Login | None:
    """The caller's login; None for a cluster that has no users. Raises Refused."""
    if not access.is_authenticated:
        return None
    if authorization is None:
        raise _refused("the cluster wants a login: send 'authorization: Basic …' or 'authorization: Bearer …'")
    scheme, _, value = authorization[:MAX_HEADER_CHARS].strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "basic":
        return _basic(value, access.mechanism)
    if scheme.lower() == "bearer":
        if TOKEN.fullmatch(value) is None:
            raise _refused("the bearer token has characters that no token has")
        return Login(mechanism=OAUTHBEARER, username="", password=value)
    raise _refused("the scheme of the authorization header must be Basic or Bearer")


def _basic(value: str, mechanism: str) -> Login:
    try:
        name, mark, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise _refused("the Basic credentials are not base64 of name:password in UTF-8") from None
    if not mark or not name or "\0" in name + password:
        raise _refused("the Basic credentials must be base64 of name:password, with a name")
    return Login(mechanism=mechanism if mechanism != OAUTHBEARER else "PLAIN", username=name, password=password)


def _refused(sentence: str) -> Refused:
    return Refused(grpc.StatusCode.UNAUTHENTICATED, sentence)
