"""What this node asks other nodes: one connection for each address and purpose.

A purpose has a connection of its own because answers come in order: a fetch that waits for records must not hold up the
heartbeat behind it. A connection is made when it is first needed, and again after a failure, though not at once: a node
that is away is tried less and less often, up to `MAX_BACKOFF_S`.

There is one kind of failure, NetworkException: nobody listens, the line broke, the answer makes no sense or comes too
late. Whether the request was carried out is then unknown. The connection is dropped, so that a late answer is never
taken for that of another question.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import trio

from trioka.protocol.errors import NetworkException, ProtocolError
from trioka.protocol.frame import frame_request, read_response
from trioka.protocol.schema import Request, Response

from .handlers import SERVED
from .network import Link, dial

FIRST_BACKOFF_S: Final = 0.02
MAX_BACKOFF_S: Final = 0.5
IDLE_S: Final = 60.0  # the other side may have closed a connection by now that was not used for so long
CONNECT_S: Final = 2.0  # so long may it take until the other side has accepted

Dial: TypeAlias = Callable[[str, int, float], Awaitable[Link]]

_BROKEN: Final = (OSError, EOFError, ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError)


class Peer:
    """One address, for one purpose. Whoever asks waits until those before are answered."""

    def __init__(self, peers: "Peers", host: str, port: int, purpose: str) -> None:
        self.host = host
        self.port = port
        self.purpose = purpose
        self._peers = peers
        self._lock = trio.Lock()
        self._link: Link | None = None
        self._correlation_id = 0
        self._backoff_s = 0.0
        self._failed = 0.0
        self._used = 0.0  # when it was made, or there was an answer last

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def ask(self, request: Request, version: int | None = None, *, timeout_s: float) -> Any:
        """The answer, in the newest version that is served here if no other is given."""
        version = newest_version(request) if version is None else version
        with trio.move_on_after(timeout_s):
            async with self._lock:
                return await self._exchange(request, version)
        raise NetworkException(f"{self} has not answered within {timeout_s:.1f} s")

    async def _exchange(self, request: Request, version: int) -> Response:
        try:
            if self._link is not None and trio.current_time() - self._used > IDLE_S:
                self._drop()
            if self._link is None:
                await trio.sleep_until(self._failed + self._backoff_s)
                self._link = await self._peers.dial(self.host, self.port, CONNECT_S)
                self._used = trio.current_time()
            self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
            sent = frame_request(self._correlation_id, self._peers.client_id, request, version)
            frame = await self._link.exchange(sent)
            answer = read_response(type(request), version, frame, self._correlation_id)
        except _BROKEN as error:
            self._drop()
            self._back_off()
            raise NetworkException(f"{self}: {str(error) or type(error).__name__}") from None
        except BaseException:
            self._drop()  # cancelled: the answer may still come, and would be taken for the next one's
            raise
        self._backoff_s = 0.0
        self._used = trio.current_time()
        return answer

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
        self._peers: dict[tuple[str, int, str], Peer] = {}

    def peer(self, host: str, port: int, purpose: str) -> Peer:
        found = self._peers.get((host, port, purpose))
        if found is None:
            found = self._peers[host, port, purpose] = Peer(self, host, port, purpose)
        return found

    async def forget(self, host: str, port: int, purpose: str) -> None:
        """It is not needed any more: its leader has moved, or its node has gone."""
        found = self._peers.pop((host, port, purpose), None)
        if found is not None:
            await found.aclose()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


def newest_version(request: Request) -> int:
    """Nodes of one cluster run the same software, or nearly: what is served here, the other side serves too."""
    key = type(request).__key__
    assert key is not None
    last = type(request).__versions__.last
    return min(last, SERVED[key].last) if key in SERVED else last
