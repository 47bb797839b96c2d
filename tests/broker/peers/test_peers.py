"""What a node asks another: one answer for each question, or a NetworkException."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.serving import HOST

from trioka.broker.peers import peer as the_real_peers
from trioka.protocol.errors import NetworkException
from trioka.protocol.frame import frame_response
from trioka.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trioka.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from trioka.protocol.schema import Response

ASKED = AllocateProducerIdsRequest(broker_id=1, broker_epoch=2)
Answer = Callable[[trio.SocketStream, int], Awaitable[None]]


def answer_of(start: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(throttle_time_ms=0, error_code=0, producer_id_start=start, producer_id_len=1)


def frame_of(correlation_id: int, start: int) -> bytes:
    return framed(correlation_id, answer_of(start))


def framed(correlation_id: int, response: Response, version: int = 0) -> bytes:
    (piece,) = frame_response(correlation_id, response, version)
    assert isinstance(piece, bytearray)
    return bytes(piece)


def serving(*served: tuple[int | None, int, int]) -> ApiVersionsResponse:
    versions = [
        ApiVersionsResponse.ApiVersion(api_key=key or 0, min_version=first, max_version=last)
        for key, first, last in served
    ]
    return ApiVersionsResponse(error_code=0, api_keys=versions)


SUPPORTED_APIS = serving((AllocateProducerIdsRequest.__key__, 0, 0))


@asynccontextmanager
async def answering(
    answer: Answer, served: ApiVersionsResponse = SUPPORTED_APIS, heard: list[int] | None = None
) -> AsyncIterator[int]:
    """A server that says which versions it serves, and does to all other requests what the test wants. Its port. Which
    versions it has `heard`, of these."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            while True:
                size = int.from_bytes(await exactly(stream, 4))
                request = await exactly(stream, size)
                correlation_id = int.from_bytes(request[4:8])
                if int.from_bytes(request[:2]) == ApiVersionsRequest.__key__:
                    await stream.send_all(framed(correlation_id, served))
                else:
                    if heard is not None:
                        heard.append(int.from_bytes(request[2:4]))
                    await answer(stream, correlation_id)
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
        requested = 0
        first = trio.Event()

        async def answer(stream: trio.SocketStream, correlation_id: int) -> None:
            nonlocal requested
            requested += 1
            if requested == 1:
                first.set()
                await trio.sleep_forever()
            await stream.send_all(frame_of(correlation_id, requested))

        async with answering(answer) as port, closing(peers.Peers("test")) as made:
            peer = made.peer(HOST, port, "p")
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as scope:
                    nursery.start_soon(give_up_when, first, scope)
                    await peer.send_request(ASKED, timeout_s=30)
                assert scope.cancelled_caught
            assert (await peer.send_request(ASKED, timeout_s=patience_s)).producer_id_start == 2

    run(test)


async def give_up_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def test_a_late_answer_is_not_taken_for_that_of_another_question() -> None:
    late_answers_are_not_taken_for_others(the_real_peers)


def test_a_connection_that_is_kept_after_a_question_was_given_up_is_noticed() -> None:
    wrong = planted(
        the_real_peers,
        "self._drop()  # cancelled: the response may still come, and would be taken for the next one\nraise",
        "raise",
    )
    with pytest.raises(ExceptionGroup) as caught:
        late_answers_are_not_taken_for_others(wrong, patience_s=0.5)
    assert caught.group_contains(NetworkException)


@pytest.mark.parametrize(
    "said",
    [b"", b"\0\0\0\0", b"\x7f\xff\xff\xff", (8).to_bytes(4) + bytes(8), (4).to_bytes(4) + b"\0\0\0\1"],
    ids=["hangs up", "empty", "endless", "another's", "cut short"],
)
def test_an_invalid_response_is_a_network_exception_and_the_next_request_reconnects(said: bytes) -> None:
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
                await peer.send_request(ASKED, timeout_s=30)
            assert (await peer.send_request(ASKED, timeout_s=30)).producer_id_start == 5

    run(test)


def test_a_closed_port_and_no_response_in_time_are_network_exceptions() -> None:
    async def test() -> None:
        async def silent(stream: trio.SocketStream, correlation_id: int) -> None:
            await trio.sleep_forever()

        async with closing(the_real_peers.Peers("test")) as made:
            async with answering(silent) as port:
                with pytest.raises(NetworkException):
                    await made.peer(HOST, port, "p").send_request(ASKED, timeout_s=0.05)
            with pytest.raises(NetworkException):
                await made.peer(HOST, port, "q").send_request(ASKED, timeout_s=30)

    run(test)


def both_sides_support_the_chosen_version(peers: ModuleType) -> None:
    """ListGroups has versions 0 to 5; the other side is older than this one, or newer."""

    async def test() -> None:
        heard: list[int] = []

        def side(first: int, last: int) -> ApiVersionsResponse:
            return serving((ListGroupsRequest.__key__, first, last))

        async def answer(stream: trio.SocketStream, correlation_id: int) -> None:
            await stream.send_all(framed(correlation_id, ListGroupsResponse(error_code=0, groups=[]), heard[-1]))

        async def query(served: ApiVersionsResponse, version: int | None = None) -> bool:
            async with answering(answer, served, heard) as port, closing(peers.Peers("test")) as made:
                try:
                    for _ in range(2):  # the second time through the same connection
                        await made.peer(HOST, port, "p").send_request(ListGroupsRequest(), version, timeout_s=30)
                except NetworkException:
                    return False
                return True

        assert await query(side(0, 3)) and await query(side(0, 3), 5) and await query(side(0, 99), 2)
        assert heard == [3, 3, 3, 3, 2, 2]
        assert not await query(side(90, 99)) and not await query(serving())
        assert len(heard) == 6, "fields unknown to the other side are not sent"

    run(test)


def test_requests_have_the_newest_common_version() -> None:
    both_sides_support_the_chosen_version(the_real_peers)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("found = min(version, newest)", "found = version"),
        ("if found < max(oldest, type(request).__versions__.first):", "if False:"),
    ],
)
def test_a_node_that_takes_all_others_for_its_like_is_noticed(right: str, wrong: str) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)):
        both_sides_support_the_chosen_version(planted(the_real_peers, right, wrong))


def the_kernels_buffer_is_as_large_as_was_asked(peers: ModuleType) -> None:
    async def test() -> None:
        async def answer(stream: trio.SocketStream, correlation_id: int) -> None:
            await stream.send_all(frame_of(correlation_id, 1))

        async with answering(answer) as port, closing(peers.Peers("test")) as made:
            peer = made.peer(HOST, port, "p")
            peer.receive_buffer_bytes = 50_000
            await peer.send_request(ASKED, timeout_s=30)
            result = peer._connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert result == 2 * 50_000, "Linux tells twice what it was asked for"

    run(test)


def test_the_kernels_receive_buffer_is_as_large_as_was_asked() -> None:
    the_kernels_buffer_is_as_large_as_was_asked(the_real_peers)
    with pytest.raises((Exception, BaseExceptionGroup)):
        the_kernels_buffer_is_as_large_as_was_asked(
            planted(the_real_peers, "if self.receive_buffer_bytes > 0:", "if False:")
        )


def a_possibly_changed_broker_gets_api_versions_again(peers: ModuleType) -> None:
    """A node that was version 5, and is version 3 after its next start."""

    async def test() -> None:
        heard: list[int] = []

        async def answer(stream: trio.SocketStream, correlation_id: int) -> None:
            if heard[-1] > newest:
                await stream.aclose()
            else:
                await stream.send_all(framed(correlation_id, ListGroupsResponse(error_code=0, groups=[]), heard[-1]))

        served = serving((ListGroupsRequest.__key__, 0, 5))
        newest = 5
        async with answering(answer, served, heard) as port, closing(peers.Peers("test")) as made:
            for purpose in ("p", "q"):
                await made.peer(HOST, port, purpose).send_request(ListGroupsRequest(), timeout_s=30)
            requested = [traffic.requests for traffic in made.traffic.values()]
            assert requested == [2, 1], "what is known of an address is not asked for each purpose"
            newest = 3
            served.api_keys[0] = ApiVersionsResponse.ApiVersion(
                api_key=served.api_keys[0].api_key, min_version=0, max_version=newest
            )
            with pytest.raises(NetworkException):
                await made.peer(HOST, port, "p").send_request(ListGroupsRequest(), timeout_s=30)
            await made.peer(HOST, port, "p").send_request(ListGroupsRequest(), timeout_s=30)
        assert heard == [5, 5, 5, 3]

    run(test)


def test_a_possibly_changed_broker_gets_api_versions_again() -> None:
    a_possibly_changed_broker_gets_api_versions_again(the_real_peers)
    forgets_nothing = planted(the_real_peers, "            self._peers.served.pop((self.host, self.port), None)\n", "")
    with pytest.raises((Exception, BaseExceptionGroup)):
        a_possibly_changed_broker_gets_api_versions_again(forgets_nothing)
