"""The bearer tokens with which this node logs in to others: requested from the token endpoint, or read from a file.

Each login uses the token that is kept while it is younger than a part of its lifetime
(sasl.login.refresh.window.factor). Several connections that log in at the same time share one request. A token is
dropped when a node has refused it. A token of a file is read for each login, because whoever renews it replaces the
file. Connections of all purposes try again and again, so the endpoint gets one request in RETRY_S at most.
"""

import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

import trio

from trioka.protocol.sasl.issuer_url import check_issuer_url
from trioka.protocol.sasl.token_request import (
    CONTENT_TYPE,
    MAX_RESPONSE_BYTES,
    ClientCredentials,
    NoToken,
    Token,
    checked_token,
    token_in_response,
)
from trioka.storage.files.disk import read_settings_file

from ...config.oauth_client import TokenSettings
from .http_request import RequestFailed, http_request

RETRY_S: Final = 1.0  # after a request that failed, or whose token was refused
REQUEST_TIMEOUT_S: Final = 5.0  # less than a connection has for its login (peers/peer.py)


class TokenSource:
    def __init__(self, settings: TokenSettings, now: Callable[[], float] = trio.current_time) -> None:
        self.requests = 0
        self._settings = settings
        self._now = now
        self._lock = trio.Lock()
        self._kept = ""
        self._kept_until = 0.0
        self._asked_at = -RETRY_S
        self._failure = ""  # of the last request
        self._context: ssl.SSLContext | None = None

    async def token(self) -> str:
        """Raises NoToken, with the reason."""
        async with self._lock:
            now = self._now()
            if self._kept and now < self._kept_until:
                return self._kept
            if self._failure and now < self._asked_at + RETRY_S:
                raise NoToken(self._failure)
            self._asked_at, self._kept, self._failure = now, "", ""
            try:
                with trio.CancelScope(shield=True):  # others wait for it, though a caller may have less time
                    token = await self._request()
            except NoToken as error:
                self._failure = "" if self._settings.credentials is None else str(error)
                raise
            if token.lifetime_s is not None:
                self._kept, self._kept_until = token.text, now + token.lifetime_s * self._settings.refresh_factor
            return token.text

    def discard(self, refused: str) -> None:
        """A node has refused this token. A new one is requested, but not at once."""
        if self._kept == refused:
            self._kept_until = min(self._kept_until, self._asked_at + RETRY_S)

    async def _request(self) -> Token:
        self.requests += 1
        credentials = self._settings.credentials
        try:
            with trio.fail_after(REQUEST_TIMEOUT_S):
                return await (self._from_file() if credentials is None else self._from_endpoint(credentials))
        except trio.TooSlowError:
            raise NoToken(f"the token does not come within {REQUEST_TIMEOUT_S:g} s") from None
        except (RequestFailed, OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise NoToken(f"the token cannot be had: {reason}") from None

    async def _from_file(self) -> Token:
        path = unquote(check_issuer_url(self._settings.url).path)
        data = await trio.to_thread.run_sync(read_settings_file, path, abandon_on_cancel=True)
        return Token(checked_token(data.decode()))

    async def _from_endpoint(self, credentials: ClientCredentials) -> Token:
        parts = check_issuer_url(self._settings.url)
        if parts.scheme == "https" and self._context is None:
            self._context = await trio.to_thread.run_sync(ssl.create_default_context)
        status, body = await http_request(
            parts,
            self._context,
            max_bytes=MAX_RESPONSE_BYTES,
            headers=[("Authorization", credentials.authorization), ("Content-Type", CONTENT_TYPE)],
            body=credentials.body,
        )
        return token_in_response(status, body)
