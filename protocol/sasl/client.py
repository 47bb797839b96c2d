"""Makes the client side of a login by its mechanism's name."""

from base64 import b64encode
from typing import Final

from .exchange import ClientExchange
from .jaas import OAUTHBEARER
from .oauthbearer import OAuthBearerClient
from .plain import PLAIN, PlainClient
from .scram import SCRAM_MECHANISMS, ScramClient

CLIENT_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


def nonce_text(random: bytes) -> str:
    """A nonce for either side, from `NONCE_BYTES` random bytes."""
    return b64encode(random).decode()


def client_exchange(
    mechanism: str, name: str, password: str, *, random: bytes, is_token: bool = False
) -> ClientExchange:
    """KeyError for a mechanism that is not among `CLIENT_MECHANISMS`. `random` are `NONCE_BYTES` bytes; `is_token` is
    true if name and password are those of a delegation token. For OAUTHBEARER the password is the bearer token."""
    if mechanism == PLAIN:
        return PlainClient(name, password)
    if mechanism == OAUTHBEARER:
        return OAuthBearerClient(password)
    return ScramClient(SCRAM_MECHANISMS[mechanism], name, password, nonce=nonce_text(random), is_token=is_token)
