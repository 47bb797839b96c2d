"""Requests to the active controller: a call if it is this node, otherwise a request to its controller listener.

Until the timeout, a request is repeated while no controller is active or the leader has changed. The controller may
therefore execute a request twice; callers must expect that.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.protocol.errors import NetworkException, NotController, RequestTimedOut
from trioka.protocol.schema import Request, Struct

from ..network.internal_call import call_handler
from ..peers.peer import Peer, newest_version

if TYPE_CHECKING:
    from ..broker import Broker

FIRST_RETRY_S: Final = 0.02
MAX_RETRY_S: Final = 0.5
PURPOSES: Final = 4  # connections for concurrent requests


class ControllerClient:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._next = 0

    async def send_request(self, request: Request, *, timeout_s: float, purpose: str | None = None) -> Any:
        """Returns the response of the active controller. Raises RequestTimedOut if there is none in time. Each
        `purpose` has its own connection, so that other requests do not delay it."""
        retry_s = FIRST_RETRY_S
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    answer = await self._send_once(request, timeout_s, purpose)
                    if not is_misdirected(answer):
                        return answer
                except (NotController, NetworkException):
                    pass
                await self._wait_for_change(retry_s)
                retry_s = min(2 * retry_s, MAX_RETRY_S)
        raise RequestTimedOut("the active controller did not respond in time")

    async def _send_once(self, request: Request, timeout_s: float, purpose: str | None) -> Any:
        quorum = self._broker.quorum
        if quorum.raft.is_leader:
            return await call_handler(self._broker, request, newest_version(request), client_id=self._broker.client_id)
        return await self.send_to_leader(request, timeout_s, purpose)

    async def send_to_leader(self, request: Request, timeout_s: float, purpose: str | None = None) -> Any:
        """Sends the request once, to another node. A leader that is paused or disconnected does not respond; as soon
        as another node leads, this raises NotController, so that the caller repeats the request there."""
        quorum, peer = self._broker.quorum, self._peer(purpose)
        leader = (quorum.leader_id, quorum.epoch)
        answer: Any = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                while quorum.leader_id is None or (quorum.leader_id, quorum.epoch) == leader:
                    await quorum.moved.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            with suppress(NetworkException):
                answer = await peer.send_request(request, timeout_s=timeout_s)
            nursery.cancel_scope.cancel()
        if answer is None:
            raise NotController("the controller did not respond, or is no longer the leader")
        return answer

    def _peer(self, purpose: str | None) -> Peer:
        """A connection to the controller. Without a purpose, calls take turns among PURPOSES connections, so that few
        requests wait behind a slow one. Raises NotController if there is no leader."""
        address = self._broker.quorum.leader_address()
        if address is None:
            raise NotController("the metadata quorum has no leader")
        if purpose is None:
            self._next = (self._next + 1) % PURPOSES
            purpose = f"controller {self._next}"
        return self._broker.peers.peer(address.host, address.port, purpose, is_controller=True)

    async def _wait_for_change(self, at_most_s: float) -> None:
        """Waits for a change of leader, at least FIRST_RETRY_S: a new leader may not know yet that it leads."""
        quorum = self._broker.quorum
        before = (quorum.leader_id, quorum.is_active)
        await trio.sleep(FIRST_RETRY_S)
        with trio.move_on_after(at_most_s):
            while (quorum.leader_id, quorum.is_active) == before:
                await quorum.moved.wait()


def is_misdirected(answer: Struct) -> bool:
    """Whether the response, or any item of it, has the error NOT_CONTROLLER."""
    if getattr(answer, "error_code", 0) == NotController.code:
        return True
    return any(
        isinstance(value, list) and any(getattr(each, "error_code", 0) == NotController.code for each in value)
        for value in _values(answer)
    )


def _values(answer: Struct) -> Iterable[object]:
    return (getattr(answer, declared.name) for declared in type(answer).__fields__)
