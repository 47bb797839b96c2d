"""What a node asks another: one answer for each question, or a NetworkException."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
import trio
from planted import planted
from serving import HOST

from trioka.broker import peers as the_real_peers
from trioka.protocol.errors import NetworkException
from trioka.protocol.frame import frame_response
from trioka.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

ASKED = AllocateProducerIdsRequest(broker_id=1, broker_epoch=2)
Answer = Callable[[trio.SocketStream, int], Awaitable[None]]


def answer_of(start: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(throttle_time_ms=0, error_code=0, producer_id_start=start, producer_id_len=1)


def frame_of(correlation_id: int, start: int) -> bytes:
    (piece,) = frame_response(correlation_id, answer_of(start), 0)
    assert isinstance(piece, bytearray)
    return bytes(piece)


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[int]:
    """A server that reads requests and does to each what the test wants. Its port."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            while True:
                size = int.from_bytes(await exactly(stream, 4))
                request = await exactly(stream, size)
                await answer(stream, int.from_bytes(request[4:8]))
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def closing(peers: Any) -> AsyncIterator[Any]:
    try:
        yield peers
    finally:
        peers.close()


async def exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within_limits() -> None:
        with trio.fail_after(60):
            await test()

    trio.run(within_limits)


def late_answers_are_not_taken_for_others(peers: ModuleType, patience_s: float = 30) -> None:
    async def test() -> None:
        asked = 0
        first = trio.Event()

        async def answer(stream: trio.SocketStream, correlation_id: int) -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                first.set()
                await trio.sleep_forever()
            await stream.send_all(frame_of(correlation_id, asked))

        async with answering(answer) as port, closing(peers.Peers("test")) as made:
            peer = made.peer(HOST, port, "p")
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as scope:
                    nursery.start_soon(give_up_when, first, scope)
                    await peer.ask(ASKED, timeout_s=30)
                assert scope.cancelled_caught
            assert (await peer.ask(ASKED, timeout_s=patience_s)).producer_id_start == 2

    run(test)


async def give_up_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def test_a_late_answer_is_not_taken_for_that_of_another_question() -> None:
    late_answers_are_not_taken_for_others(the_real_peers)


def test_a_connection_that_is_kept_after_a_question_was_given_up_is_noticed() -> None:
    wrong = planted(
        the_real_peers,
        "            self._drop()  # cancelled: the answer may still come, and would be taken for the next one's\n",
        "",
    )
    with pytest.raises(ExceptionGroup) as caught:
        late_answers_are_not_taken_for_others(wrong, patience_s=0.5)
    assert caught.group_contains(NetworkException)


@pytest.mark.parametrize(
    "said",
    [b"", b"\0\0\0\0", b"\x7f\xff\xff\xff", (8).to_bytes(4) + bytes(8), (4).to_bytes(4) + b"\0\0\0\1"],
    ids=["hangs up", "empty", "endless", "another's", "cut short"],
)
def test_whatever_is_no_answer_is_a_network_exception_and_the_next_question_is_put_anew(said: bytes) -> None:
    async def test() -> None:
        is_first = True

        async def answer(stream: trio.SocketStream, correlation_id: int) -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                if said:
                    await stream.send_all(said)
                await stream.aclose()
            else:
                await stream.send_all(frame_of(correlation_id, 5))

        async with answering(answer) as port, closing(the_real_peers.Peers("test")) as made:
            peer = made.peer(HOST, port, "p")
            with pytest.raises(NetworkException):
                await peer.ask(ASKED, timeout_s=30)
            assert (await peer.ask(ASKED, timeout_s=30)).producer_id_start == 5

    run(test)


def test_nobody_there_and_no_answer_in_time_are_network_exceptions() -> None:
    async def test() -> None:
        async def silent(stream: trio.SocketStream, correlation_id: int) -> None:
            await trio.sleep_forever()

        async with closing(the_real_peers.Peers("test")) as made:
            async with answering(silent) as port:
                with pytest.raises(NetworkException):
                    await made.peer(HOST, port, "p").ask(ASKED, timeout_s=0.05)
            with pytest.raises(NetworkException):
                await made.peer(HOST, port, "q").ask(ASKED, timeout_s=30)

    run(test)
