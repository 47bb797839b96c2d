"""The public keys of a token issuer: fetched at the start, at intervals, and for a token with an unknown key.

A failed fetch changes nothing: the previous keys stay. Until the first successful one there are no keys, and every
token is rejected. The cost of a fetch is bounded: `FETCH_TIMEOUT_S` in all, `MAX_KEY_SET_BYTES`, one at a time,
no redirects, no proxy. Keys come over https, over http from a loopback address, or from a file.
"""

import logging
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

import trio

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.sasl.issuer_url import check_issuer_url
from trioka.protocol.sasl.jwks import MAX_KEY_SET_BYTES, InvalidKeySet, read_key_set
from trioka.protocol.sasl.jwt import VerificationKey
from trioka.storage.files.disk import read_settings_file

from .http_request import RequestFailed, http_request

log = logging.getLogger("trioka.oauth")

FETCH_TIMEOUT_S: Final = 10.0
MAX_LOGGED_CHARS: Final = 200
OK: Final = 200


class FetchFailed(Exception):
    """The key set could not be fetched; the message gives the reason."""


@frozen
class FetchIntervals:
    refresh_s: float
    first_retry_s: float
    max_retry_s: float  # also the minimum time between two fetches for unknown keys
    timeout_s: float = FETCH_TIMEOUT_S


class IssuerKeys:
    def __init__(self, url: str, intervals: FetchIntervals, now: Callable[[], float] = trio.current_time) -> None:
        self.url = url
        self.keys: tuple[VerificationKey, ...] = ()
        self.fetches = 0
        self.tried = trio.Event()  # set after the first fetch, successful or not
        self._intervals = intervals
        self._now = now
        self._wanted = trio.Event()
        self._loop: trio.lowlevel.TrioToken | None = None

    def want(self) -> None:
        """A token names an unknown key: fetch soon, but at most once in `max_retry_s`. Thread-safe."""
        loop = self._loop
        if loop is not None:
            try:
                loop.run_sync_soon(self._set_wanted, idempotent=True)
            except trio.RunFinishedError:
                return

    async def run(self) -> None:
        self._loop = trio.lowlevel.current_trio_token()
        context: ssl.SSLContext | None = None
        if self.url.startswith("https:"):  # loading the system's certificates takes tens of milliseconds
            context = await trio.to_thread.run_sync(ssl.create_default_context)
        retry_s = self._intervals.first_retry_s
        while True:
            is_fetched = await self._fetch(context)
            self.tried.set()
            if is_fetched:
                retry_s = self._intervals.first_retry_s
                await self._wait()
            else:
                await trio.sleep(retry_s)
                retry_s = min(2 * retry_s, self._intervals.max_retry_s)

    async def _fetch(self, context: ssl.SSLContext | None) -> bool:
        self.fetches += 1
        try:
            data = await key_set_document(self.url, context, self._intervals.timeout_s)
            self.keys = await trio.to_thread.run_sync(read_key_set, data)
        except (FetchFailed, InvalidKeySet) as error:
            log.error(
                "the key set of sasl.oauthbearer.jwks.endpoint.url is not renewed: %s; %d earlier keys stay",
                str(error)[:MAX_LOGGED_CHARS],
                len(self.keys),
            )
            return False
        log.info("the key set of sasl.oauthbearer.jwks.endpoint.url has %d keys", len(self.keys))
        return True

    async def _wait(self) -> None:
        """Waits for the next interval, or for a token with an unknown key."""
        began = self._now()
        self._wanted = trio.Event()
        with trio.move_on_after(self._intervals.refresh_s):
            await self._wanted.wait()
            await trio.sleep(max(0.0, began + self._intervals.max_retry_s - self._now()))

    def _set_wanted(self) -> None:
        self._wanted.set()


async def key_set_document(url: str, context: ssl.SSLContext | None, timeout_s: float = FETCH_TIMEOUT_S) -> bytes:
    """Raises FetchFailed, with the reason, unless the keys arrive in time, completely and without a redirect."""
    parts = check_issuer_url(url)
    try:
        with trio.fail_after(timeout_s):
            if parts.scheme == "file":  # reading an endless file, such as a pipe, must only block its own thread
                path = unquote(parts.path)
                return await trio.to_thread.run_sync(read_settings_file, path, abandon_on_cancel=True)
            status, body = await http_request(parts, context, max_bytes=MAX_KEY_SET_BYTES)
    except trio.TooSlowError:
        raise FetchFailed(f"it did not come within {timeout_s:g} s") from None
    except (RequestFailed, OSError) as error:
        raise FetchFailed(str(error)) from None
    if status != OK:
        raise FetchFailed(f"it is answered with status {status}; redirects are not followed")
    return body
