"""The bearer token with which a command logs in by OAUTHBEARER, as the keys of a client.properties say.

    sasl.oauthbearer.token.endpoint.url                 file:///path of a token, or the https address of a provider
    sasl.oauthbearer.client.credentials.client.id       or clientId in sasl.jaas.config
    sasl.oauthbearer.client.credentials.client.secret   or clientSecret
    sasl.oauthbearer.scope                              or scope

One command requests one token, whatever number of connections it opens.
"""

import http.client
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import unquote

from trioka.protocol.sasl.issuer_url import check_issuer_url
from trioka.protocol.sasl.jwt import MAX_TOKEN_BYTES
from trioka.protocol.sasl.token_request import (
    CONTENT_TYPE,
    MAX_RESPONSE_BYTES,
    ClientCredentials,
    NoToken,
    checked_token,
    token_in_response,
)

from ..terminal.failure import Exit, Failure

URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
TIMEOUT_S: Final = 10.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the secret to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def bearer_token(properties: Mapping[str, str], options: Mapping[str, str]) -> str:
    """`options` are those of sasl.jaas.config. `Failure` with one sentence if there is no token."""
    url = properties.get(URL, "").strip()
    if not url:
        raise Failure(f"sasl.mechanism is OAUTHBEARER, and {URL} is not set", exit_code=Exit.USAGE)
    try:
        parts = check_issuer_url(url)
    except ValueError as error:
        raise Failure(f"{URL} {error}", exit_code=Exit.USAGE) from None
    try:
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                return checked_token(file.read(MAX_TOKEN_BYTES + 2).decode(errors="replace"))
        return _requested(url, _credentials(properties, options))
    except NoToken as error:
        raise Failure(f"{URL}: {error}", exit_code=Exit.UNAUTHORISED) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
        raise Failure(f"{URL}: {reason}", exit_code=Exit.UNREACHABLE) from None


def _credentials(properties: Mapping[str, str], options: Mapping[str, str]) -> ClientCredentials:
    client_id = properties.get(CLIENT_ID, "") or options.get("clientId", "")
    secret = properties.get(CLIENT_SECRET, "") or options.get("clientSecret", "")
    if not client_id or not secret:
        raise Failure(f"{CLIENT_ID} and {CLIENT_SECRET} are not both set", exit_code=Exit.USAGE)
    return ClientCredentials(client_id, secret, properties.get(SCOPE, "") or options.get("scope", ""))


def _requested(url: str, credentials: ClientCredentials) -> str:
    headers = {
        "Authorization": credentials.authorization,
        "Content-Type": CONTENT_TYPE,
        "Accept": "application/json",
    }
    request = urllib.request.Request(url, credentials.body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            return token_in_response(response.status, _read(response)).text
    except HTTPError as error:
        with error:
            return token_in_response(error.code, b"").text


def _read(response: Any) -> bytes:
    """The timeout of a socket is one of each read, so that a slow server could go on for ever."""
    deadline, found = time.monotonic() + TIMEOUT_S, bytearray()
    while chunk := response.read1(1 << 14):
        found += chunk
        if len(found) > MAX_RESPONSE_BYTES or time.monotonic() > deadline:
            raise NoToken(
                f"the response has more than {MAX_RESPONSE_BYTES} bytes, or takes longer than {TIMEOUT_S:g} s"
            )
    return bytes(found)
