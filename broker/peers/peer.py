"""What this node asks other nodes: one connection for each address and purpose.

A purpose has a connection of its own because answers come in order: a fetch that waits for records must not hold up the
heartbeat behind it. A connection is made when it is first needed, and again after a failure, though not at once: a node
that is away is tried less and less often, up to `MAX_BACKOFF_S`.

The first question to an address is which versions it serves: while a cluster is upgraded, node by node, some are newer
than others. What is asked is then said in the newest version that both know. That holds for all purposes, until one of
their connections breaks: the node may have been started anew, as another version.

There is one kind of failure, NetworkException: nobody listens, the line broke, the answer makes no sense or comes too
late. Whether the request was carried out is then unknown. The connection is dropped, so that a late answer is never
taken for that of another question.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import trio

from trioka.protocol.errors import NetworkException, ProtocolError
from trioka.protocol.frame import frame_request, read_response
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trioka.protocol.schema import Request, Response

from ..api import SERVED
from .link import Link, dial

FIRST_BACKOFF_S: Final = 0.02
MAX_BACKOFF_S: Final = 0.5
IDLE_S: Final = 60.0  # the other side may have closed a connection by now that was not used for so long
CONNECT_S: Final = 2.0  # so long may it take until the other side has accepted
PLAIN_VERSION: Final = 0  # of ApiVersions: every node serves it, and it says all that is needed here

Dial: TypeAlias = Callable[[str, int, float], Awaitable[Link]]
Served: TypeAlias = Mapping[int, tuple[int, int]]  # by API: the oldest and the newest version

_BROKEN: Final = (OSError, EOFError, ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError)


class PeerTraffic:
    """What was asked and answered for one purpose, of all nodes together."""

    __slots__ = ("answers", "bytes_in", "bytes_out", "requests")

    def __init__(self) -> None:
        self.requests = self.answers = self.bytes_out = self.bytes_in = 0


class Peer:
    """One address, for one purpose. Whoever asks waits until those before are answered."""

    def __init__(self, peers: "Peers", host: str, port: int, purpose: str) -> None:
        self.host = host
        self.port = port
        self.purpose = purpose
        self.receive_buffer_bytes = 0  # of the kernel; if it is not set, the system sizes it
        self._peers = peers
        self._traffic = peers.traffic.setdefault(purpose, PeerTraffic())
        self._lock = trio.Lock()
        self._link: Link | None = None
        self._correlation_id = 0
        self._backoff_s = 0.0
        self._failed = 0.0
        self._used = 0.0  # when it was made, or there was an answer last

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def ask(self, request: Request, version: int | None = None, *, timeout_s: float) -> Any:
        """The answer, in the newest version that both sides serve, or in `version` if the other side has it."""
        version = newest_version(request) if version is None else version
        with trio.move_on_after(timeout_s):
            if self._lock.locked():
                await self._lock.acquire()
            else:
                self._lock.acquire_nowait()  # without a turn of the loop: the answer takes one in any case
            try:
                return await self._exchange(request, version)
            finally:
                self._lock.release()
        raise NetworkException(f"{self} has not answered within {timeout_s:.1f} s")

    async def _exchange(self, request: Request, version: int) -> Response:
        try:
            if self._link is not None and trio.current_time() - self._used > IDLE_S:
                self._drop()
            if self._link is None:
                await trio.sleep_until(self._failed + self._backoff_s)
                self._link = await self._peers.dial(self.host, self.port, CONNECT_S)
                self._used = trio.current_time()
                if self.receive_buffer_bytes > 0:
                    self._link.size_receive_buffer(self.receive_buffer_bytes)
            served = self._peers.served.get((self.host, self.port)) or await self._learn(self._link)
            answer = await self._put(self._link, request, self._common_version(request, version, served))
        except NetworkException:
            raise  # of `_common_version`: nothing was said, and the connection is as good as before
        except _BROKEN as error:
            self._drop()
            self._back_off()
            self._peers.served.pop((self.host, self.port), None)
            raise NetworkException(f"{self}: {str(error) or type(error).__name__}") from None
        except BaseException:
            self._drop()  # cancelled: the answer may still come, and would be taken for the next one's
            raise
        self._backoff_s = 0.0
        self._used = trio.current_time()
        return answer

    async def _put(self, link: Link, request: Request, version: int) -> Response:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        sent = frame_request(self._correlation_id, self._peers.client_id, request, version)
        traffic = self._traffic
        traffic.requests += 1
        traffic.bytes_out += len(sent)
        frame = await link.exchange(sent)
        traffic.answers += 1
        traffic.bytes_in += len(frame)
        return read_response(type(request), version, frame, self._correlation_id)

    async def _learn(self, link: Link) -> Served:
        told = await self._put(link, ApiVersionsRequest(), PLAIN_VERSION)
        assert isinstance(told, ApiVersionsResponse)
        served = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
        self._peers.served[self.host, self.port] = served
        return served

    def _common_version(self, request: Request, version: int, served: Served) -> int:
        key = type(request).__key__
        assert key is not None
        oldest, newest = served.get(key, (0, -1))
        found = min(version, newest)
        if found < max(oldest, type(request).__versions__.first):
            raise NetworkException(f"{self} serves {type(request).__name__} from {oldest} to {newest}, not {version}")
        return found

    def _back_off(self) -> None:
        self._failed = trio.current_time()
        self._backoff_s = min(max(2 * self._backoff_s, FIRST_BACKOFF_S), MAX_BACKOFF_S)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def close(self) -> None:
        """Whoever waits for an answer gets a NetworkException."""
        self._drop()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class Peers:
    """All of a node's. `dial` opens a connection; a test may pass one that fails when it wants to."""

    def __init__(self, client_id: str, dial: Dial = dial) -> None:
        self.client_id = client_id
        self.dial = dial
        self.traffic: dict[str, PeerTraffic] = {}  # by purpose
        self.served: dict[tuple[str, int], Served] = {}  # by address
        self._peers: dict[tuple[str, int, str], Peer] = {}

    def peer(self, host: str, port: int, purpose: str) -> Peer:
        found = self._peers.get((host, port, purpose))
        if found is None:
            found = self._peers[host, port, purpose] = Peer(self, host, port, purpose)
        return found

    async def forget(self, host: str, port: int, purpose: str) -> None:
        """It is not needed any more: its leader has moved, or its node has gone."""
        found = self._peers.pop((host, port, purpose), None)
        self.served.pop((host, port), None)
        if found is not None:
            await found.aclose()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


def newest_version(request: Request) -> int:
    """That is served here."""
    key = type(request).__key__
    assert key is not None
    last = type(request).__versions__.last
    return min(last, SERVED[key].last) if key in SERVED else last
