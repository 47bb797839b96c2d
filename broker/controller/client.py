"""The way to the active controller, whoever it is: this node itself, or another at its controller listener.

While there is none, or it is not the one that was thought, the question is put again after a little while, until its
time is up. A question may thus be carried out twice, and whoever asks knows that.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.protocol.errors import NetworkException, NotController, RequestTimedOut
from trioka.protocol.schema import Request, Struct

from ..network.internal_call import serve_inside
from ..peers.peer import Peer, newest_version

if TYPE_CHECKING:
    from ..broker import Broker

FIRST_RETRY_S: Final = 0.02
MAX_RETRY_S: Final = 0.5
PURPOSES: Final = 4  # connections for questions that are put at the same time


class ControllerChannel:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._next = 0

    async def ask(self, request: Request, *, timeout_s: float, purpose: str | None = None) -> Any:
        """The answer of the active controller; RequestTimedOut if there is none in time. A `purpose` has a connection
        of its own, where nothing else holds it up."""
        retry_s = FIRST_RETRY_S
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    answer = await self._ask_once(request, timeout_s, purpose)
                    if not is_misdirected(answer):
                        return answer
                except (NotController, NetworkException):
                    pass
                await self._wait_for_news(retry_s)
                retry_s = min(2 * retry_s, MAX_RETRY_S)
        raise RequestTimedOut("the active controller has not answered in time")

    async def _ask_once(self, request: Request, timeout_s: float, purpose: str | None) -> Any:
        quorum = self._broker.quorum
        if quorum.raft.is_leader:
            return await serve_inside(self._broker, request, newest_version(request), client_id=self._broker.client_id)
        return await self.ask_leader(request, timeout_s, purpose)

    async def ask_leader(self, request: Request, timeout_s: float, purpose: str | None = None) -> Any:
        """Once, of another node. One that is paused, or cut off, would not answer; as soon as another leads, that one
        is to be asked, and this is NotController."""
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
                answer = await peer.ask(request, timeout_s=timeout_s)
            nursery.cancel_scope.cancel()
        if answer is None:
            raise NotController("it does not answer, or does not lead any more")
        return answer

    def _peer(self, purpose: str | None) -> Peer:
        """A connection to the controller, without a purpose another one each time, so that few have to wait for a slow
        answer to somebody else. NotController if nobody leads."""
        address = self._broker.quorum.leader_address()
        if address is None:
            raise NotController("nobody leads the metadata")
        if purpose is None:
            self._next = (self._next + 1) % PURPOSES
            purpose = f"controller {self._next}"
        return self._broker.peers.peer(address.host, address.port, purpose)

    async def _wait_for_news(self, at_most_s: float) -> None:
        """Of who leads, but no shorter than a moment: the one who leads may not know it yet."""
        quorum = self._broker.quorum
        before = (quorum.leader_id, quorum.is_active)
        await trio.sleep(FIRST_RETRY_S)
        with trio.move_on_after(at_most_s):
            while (quorum.leader_id, quorum.is_active) == before:
                await quorum.moved.wait()


def is_misdirected(answer: Struct) -> bool:
    """Whether anything in the answer says NOT_CONTROLLER."""
    if getattr(answer, "error_code", 0) == NotController.code:
        return True
    return any(
        isinstance(value, list) and any(getattr(each, "error_code", 0) == NotController.code for each in value)
        for value in _values(answer)
    )


def _values(answer: Struct) -> Iterable[object]:
    return (getattr(answer, declared.name) for declared in type(answer).__fields__)
