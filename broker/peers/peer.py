"""Requests to other nodes: one connection per address and purpose.

A connection to a listener with TLS or SASL is secured before its first request (security/peer_security.py): by a
handshake, then a login, which is repeated before its session ends. A failure of either is logged, because retries do
not repair it.

Each purpose has its own connection because responses arrive in order: a Fetch that waits for records must not delay a
heartbeat behind it. A connection is opened on first use and again after a failure, with exponential backoff up to
`MAX_BACKOFF_S`.

The first request to an address is ApiVersions, because nodes of a cluster may have different versions during an
upgrade. A request is then sent in the newest version that both nodes support. The result is shared by all purposes and
dropped when one of their connections fails, because the node may have been restarted with another version.

All failures are NetworkException: connection refused or broken, malformed or late response. Whether the request was
executed is then unknown. The connection is dropped, so that a late response is never taken for that of a later request.
"""

import errno
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

import trio

from trioka.protocol.errors import NetworkException, ProtocolError
from trioka.protocol.frame import frame_request, read_response
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trioka.protocol.schema import Request, Response

from ..api import SUPPORTED_APIS
from ..security.peer_security import PeerSecurity
from .link import PeerConnection, dial
from .peer_socket import NotSecured

FIRST_BACKOFF_S: Final = 0.02
MAX_BACKOFF_S: Final = 0.5
IDLE_S: Final = 60.0  # a connection that was idle for so long is replaced: the peer may have closed it
CONNECT_S: Final = 2.0  # connect timeout
SECURE_S: Final = 10.0  # timeout of TLS handshake and login
WARN_INTERVAL_S: Final = 60.0  # between two log lines with the same sentence about an address
API_VERSIONS_VERSION: Final = 0  # every node supports it, and it has all that is needed here

Dial: TypeAlias = Callable[[str, int, float], Awaitable[PeerConnection]]
ApiVersions: TypeAlias = Mapping[int, tuple[int, int]]  # by API key: oldest and newest version

log = logging.getLogger("trioka.peers")

_CONNECTION_ERRORS: Final = (OSError, EOFError, ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError)


class SecurityOf(Protocol):
    def __call__(self, *, is_controller: bool) -> PeerSecurity | None:
        """How connections to brokers, or to controllers, are secured; None for plaintext without a login."""


def plaintext(*, is_controller: bool) -> PeerSecurity | None:
    return None


class PeerTraffic:
    """Requests and responses of one purpose, all nodes together."""

    __slots__ = ("answers", "bytes_in", "bytes_out", "requests")

    def __init__(self) -> None:
        self.requests = self.answers = self.bytes_out = self.bytes_in = 0


class Peer:
    """One address and purpose. Requests wait for the responses of earlier ones."""

    def __init__(self, peers: "Peers", host: str, port: int, purpose: str, *, is_controller: bool) -> None:
        self.is_controller = is_controller
        self.host = host
        self.port = port
        self.purpose = purpose
        self.receive_buffer_bytes = 0  # SO_RCVBUF; 0: the kernel decides
        self._peers = peers
        self._traffic = peers.traffic.setdefault(purpose, PeerTraffic())
        self._lock = trio.Lock()
        self._connection: PeerConnection | None = None
        self._correlation_id = 0
        self._backoff_s = 0.0
        self._failed = 0.0
        self._login_at = math.inf  # when the session of the login is to be renewed
        self._used = 0.0  # time of the connect or of the last response

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def send_request(self, request: Request, version: int | None = None, *, timeout_s: float) -> Any:
        """Returns the response, in the newest version that both nodes support, at most `version`."""
        version = newest_version(request) if version is None else version
        with trio.move_on_after(timeout_s):
            if self._lock.locked():
                await self._lock.acquire()
            else:
                self._lock.acquire_nowait()  # without a checkpoint: waiting for the response is one
            try:
                return await self._exchange(request, version)
            finally:
                self._lock.release()
        raise NetworkException(f"{self} did not respond within {timeout_s:.1f} s")

    async def _exchange(self, request: Request, version: int) -> Response:
        try:
            if self._connection is not None and trio.current_time() - self._used > IDLE_S:
                self._drop()
            if self._connection is None:
                await trio.sleep_until(self._failed + self._backoff_s)
                self._connection = await self._peers.dial(self.host, self.port, CONNECT_S)
                self._used = trio.current_time()
                if self.receive_buffer_bytes > 0:
                    self._connection.set_receive_buffer(self.receive_buffer_bytes)
                await self._secure(self._connection)
            elif trio.current_time() >= self._login_at:
                await self._log_in(self._connection)
            served = self._peers.served.get((self.host, self.port)) or await self._fetch_api_versions(self._connection)
            response = await self._send(self._connection, request, self._common_version(request, version, served))
        except NetworkException:
            raise  # by `_common_version`: nothing was sent, so the connection stays usable
        except _CONNECTION_ERRORS as error:
            if isinstance(error, NotSecured):
                self._peers.warn_once(self, error.strerror or str(error))
            self._drop()
            self._back_off()
            self._peers.served.pop((self.host, self.port), None)
            raise NetworkException(f"{self}: {str(error) or type(error).__name__}") from None
        except BaseException:
            self._drop()  # cancelled: a late response would be taken for that of the next request
            raise
        self._backoff_s = 0.0
        self._used = trio.current_time()
        return response

    async def _secure(self, connection: PeerConnection) -> None:
        """The TLS handshake and the login of a new connection, as its listener demands them."""
        self._login_at = math.inf
        security = self._peers.security(is_controller=self.is_controller)
        if security is None:
            return
        with trio.move_on_after(SECURE_S):
            if security.tls is not None:
                await connection.start_tls(security.tls, self.host)
            await self._log_in(connection)
            return
        raise NotSecured(errno.ETIMEDOUT, f"the TLS handshake or the login took longer than {SECURE_S:g} s")

    async def _log_in(self, connection: PeerConnection) -> None:
        security = self._peers.security(is_controller=self.is_controller)
        if security is None or security.login is None:
            return
        module = import_module(".login", __package__)
        send = partial(self._send, connection)
        after_s: float | None = await module.log_in(send, security.login, str(self))
        self._login_at = math.inf if after_s is None else trio.current_time() + after_s

    async def _send(self, connection: PeerConnection, request: Request, version: int) -> Response:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        sent = frame_request(self._correlation_id, self._peers.client_id, request, version)
        traffic = self._traffic
        traffic.requests += 1
        traffic.bytes_out += len(sent)
        frame = await connection.exchange(sent)
        traffic.answers += 1
        traffic.bytes_in += len(frame)
        return read_response(type(request), version, frame, self._correlation_id)

    async def _fetch_api_versions(self, connection: PeerConnection) -> ApiVersions:
        response = await self._send(connection, ApiVersionsRequest(), API_VERSIONS_VERSION)
        assert isinstance(response, ApiVersionsResponse)
        served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self._peers.served[self.host, self.port] = served
        return served

    def _common_version(self, request: Request, version: int, served: ApiVersions) -> int:
        key = type(request).__key__
        assert key is not None
        oldest, newest = served.get(key, (0, -1))
        found = min(version, newest)
        if found < max(oldest, type(request).__versions__.first):
            raise NetworkException(
                f"{self} supports versions {oldest} to {newest} of {type(request).__name__}, not {version}"
            )
        return found

    def _back_off(self) -> None:
        self._failed = trio.current_time()
        self._backoff_s = min(max(2 * self._backoff_s, FIRST_BACKOFF_S), MAX_BACKOFF_S)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Tasks that wait for a response get a NetworkException."""
        self._drop()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class Peers:
    """All connections of a node to other nodes. Tests may pass a `dial` that fails."""

    def __init__(self, client_id: str, dial: Dial = dial, security: SecurityOf = plaintext) -> None:
        self.client_id = client_id
        self.security = security
        self.dial = dial
        self.traffic: dict[str, PeerTraffic] = {}  # by purpose
        self.served: dict[tuple[str, int], ApiVersions] = {}  # supported versions by address
        self._complaints: dict[str, tuple[str, float]] = {}  # by address, the last sentence and its time
        self._peers: dict[tuple[str, int, str], Peer] = {}

    def peer(self, host: str, port: int, purpose: str, *, is_controller: bool = False) -> Peer:
        """A broker at its inter-broker listener, or a controller at its controller listener."""
        found = self._peers.get((host, port, purpose))
        if found is None or found.is_controller is not is_controller:
            found = self._peers[host, port, purpose] = Peer(self, host, port, purpose, is_controller=is_controller)
        return found

    def warn_once(self, peer: Peer, why: str) -> None:
        """Logs that connections to an address cannot be secured: once, though all purposes try again and again."""
        now = trio.current_time()
        last = self._complaints.get(str(peer))
        if last is None or last[0] != why or now - last[1] >= WARN_INTERVAL_S:
            self._complaints[str(peer)] = why, now
            log.error("no connection to %s: %s", peer, why)

    async def forget(self, host: str, port: int, purpose: str) -> None:
        """Closes a connection that is no longer needed: the leader has moved, or the node has left."""
        found = self._peers.pop((host, port, purpose), None)
        self.served.pop((host, port), None)
        if found is not None:
            await found.aclose()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


def newest_version(request: Request) -> int:
    """The newest version of a request that this node supports."""
    key = type(request).__key__
    assert key is not None
    last = type(request).__versions__.last
    return min(last, SUPPORTED_APIS[key].last) if key in SUPPORTED_APIS else last
