"""Connections to other nodes: whose memory a response is, and how much of it a link keeps."""

from types import ModuleType

import pytest
import trio
from mutants.plant import Rule, assert_noticed

from trioka.broker.peers import link as link_module


@pytest.fixture
def module() -> ModuleType:
    return link_module


class Answers:
    """A socket whose other side answers with what a test has prepared, in pieces of at most `piece` bytes."""

    def __init__(self, *answers: bytes, piece: int = 1 << 16) -> None:
        self._incoming = b"".join(len(answer).to_bytes(4) + answer for answer in answers)
        self._piece = piece
        self.asked_for = 0

    async def send(self, data: memoryview) -> int:
        return len(data)

    async def recv_into(self, room: memoryview) -> int:
        self.asked_for = max(self.asked_for, len(room))
        size = min(len(room), len(self._incoming), self._piece)
        room[:size] = self._incoming[:size]
        self._incoming = self._incoming[size:]
        return size


def link_to(module: ModuleType, sock: Answers) -> link_module.PeerConnection:
    made: link_module.PeerConnection = module.PeerConnection(sock)
    return made


def address_of(view: memoryview) -> int:
    return id(view.obj)


def test_a_response_in_use_is_not_overwritten(module: ModuleType) -> None:
    async def run() -> None:
        link = link_to(module, Answers(b"a" * 100, b"b" * 100))
        first = await link.exchange(b"?")
        part = first[10:20]
        del first
        second = await link.exchange(b"?")
        assert bytes(part) == b"a" * 10
        assert bytes(second) == b"b" * 100

    trio.run(run)


def test_the_memory_of_a_response_is_used_again(module: ModuleType) -> None:
    async def run() -> None:
        link = link_to(module, Answers(b"a" * 200_000, b"b" * 150_000))
        first = await link.exchange(b"?")
        address = address_of(first)
        del first
        second = await link.exchange(b"?")
        assert address_of(second) == address
        assert bytes(second) == b"b" * 150_000

    trio.run(run)


def test_small_responses_give_a_large_buffer_back(module: ModuleType) -> None:
    async def run() -> None:
        small = [b"a" * 10] * 150
        link = link_to(module, Answers(b"b" * 200_000, *small))
        assert len((await link.exchange(b"?")).obj) >= 200_000  # type: ignore[arg-type]
        sizes = [len((await link.exchange(b"?")).obj) for _ in small]  # type: ignore[arg-type]
        assert sizes[0] >= 200_000
        assert sizes[-1] < 100_000

    trio.run(run)


def test_memory_grows_with_what_has_come(module: ModuleType) -> None:
    async def run() -> None:
        sock = Answers()
        sock._incoming = (100_000_000).to_bytes(4) + b"a" * 70_000
        with pytest.raises(OSError, match="peer closed the connection"):
            await link_to(module, sock).exchange(b"?")
        assert sock.asked_for < 1_000_000

    trio.run(run)


def test_a_response_is_whole_however_it_comes(module: ModuleType) -> None:
    async def run() -> None:
        answers = [bytes(number % 251 for number in range(size)) for size in (4, 70_000, 5, 300_000)]
        link = link_to(module, Answers(*answers, piece=997))
        for answer in answers:
            assert bytes(await link.exchange(b"?")) == answer

    trio.run(run)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("except BufferError:", "except ZeroDivisionError:", test_a_response_in_use_is_not_overwritten),
    ("self._buffer.append(0)", "self._buffer[0:0] = b\"\"", test_a_response_in_use_is_not_overwritten),
    ("buffer if len(buffer) <= KEPT_BYTES else bytearray(INITIAL_BUFFER_BYTES)",
     "bytearray(1) if len(buffer) <= KEPT_BYTES else bytearray(INITIAL_BUFFER_BYTES)",
     test_the_memory_of_a_response_is_used_again),
    ("self._small_responses <= SMALL_RESPONSES or ", "True or ", test_small_responses_give_a_large_buffer_back),
    ("bytes(min(size - received, received))", "bytes(size - received)", test_memory_grows_with_what_has_come),
    ("memoryview(buffer)[:size]", "memoryview(buffer)", test_a_response_is_whole_however_it_comes),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(link_module, right, wrong, rule)
