"""TLS of the gRPC and HTTP listeners. Certificate, key and authorities are loaded again when their files change.

New connections use what was loaded last, existing ones go on. Files that cannot be used change nothing, and are
reported once.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from ..settings import TLS_CERTIFICATE, TLS_CLIENT_CA, TLS_KEY, TLS_RELOAD_INTERVAL_MS, Settings, SettingsError

LOG: Final = logging.getLogger("trioka.gateway")


class FileState(NamedTuple):
    """What changes when a file is written or replaced."""

    inode: int
    size: int
    modified_ns: int


class _Loaded(NamedTuple):
    http: ssl.SSLContext
    grpc: grpc.ServerCertificateConfiguration


class ListenerTls:
    """Made by `listener_tls`. Raises SettingsError if the files cannot be used."""

    def __init__(self, certificate: str, key: str, client_ca: str | None, *, interval_s: float) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._interval_s = interval_s
        self._states = self._file_states()
        self._loaded = self._load()
        self._given_to_grpc = self._loaded
        # uvicorn keeps the context that it begins with, and each handshake moves on to the newest.
        self.http_context = self._load().http
        self.http_context.sni_callback = self._use_newest

    def _use_newest(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._loaded.http

    def grpc_credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._loaded.grpc, self._newest_for_grpc, require_client_authentication=self._client_ca is not None
        )

    def _newest_for_grpc(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by grpc for each handshake, in a thread of its own. None: as before."""
        newest = self._loaded
        if newest is self._given_to_grpc:
            return None
        self._given_to_grpc = newest
        return newest.grpc

    async def watch(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            states = self._file_states()
            if states == self._states:
                continue
            self._states = states
            try:
                self._loaded = await asyncio.to_thread(self._load)
            except SettingsError as error:
                LOG.error("the listeners keep their old certificate: %s", error)
            else:
                LOG.info("the listeners have loaded their certificate again: %s", self._certificate)

    def _load(self) -> _Loaded:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
            if self._client_ca is not None:
                context.load_verify_locations(cafile=self._client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
            chain, key = Path(self._certificate).read_bytes(), Path(self._key).read_bytes()
            authorities = None if self._client_ca is None else Path(self._client_ca).read_bytes()
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"the certificate, key or authorities of the listeners cannot be used: {error}."
            ) from None
        return _Loaded(context, grpc.ssl_server_certificate_configuration([(key, chain)], authorities))

    def _file_states(self) -> tuple[FileState | None, ...]:
        names = (self._certificate, self._key, self._client_ca)
        return tuple(None if name is None else _state_of(name) for name in names)


def _state_of(name: str) -> FileState | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns)


def listener_tls(settings: Settings) -> ListenerTls | None:
    """None without a certificate."""
    certificate, key = settings.text(TLS_CERTIFICATE), settings.text(TLS_KEY)
    if certificate is None or key is None:
        return None
    interval_s = settings.seconds(TLS_RELOAD_INTERVAL_MS)
    return ListenerTls(certificate, key, settings.text(TLS_CLIENT_CA), interval_s=interval_s)
