"""The second hand: it sends what it is given, one thing at a time, and tells what went wrong when it is asked."""

import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from large_answers import BATCHES, SIZE, VERSION, assert_noticed_by, fetch, fill
from serving import Asking, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.network import server as network
from trioka.broker.network.channel import sendfile
from trioka.broker.network.send_thread import SecondHand
from trioka.protocol.frame import frame_request
from trioka.protocol.messages.fetch import FetchRequest

CLIENTS = 6


def test_what_is_given_is_done_in_another_thread() -> None:
    by: list[int] = []

    def call(*numbers: int) -> int:
        by.append(threading.get_ident())
        return sum(numbers)

    hand: SecondHand[str] = SecondHand(call)
    for owner in ("first", "second"):
        hand.give(owner, 1, 2, 3)
        assert hand.given == owner
        assert hand.finish() == 6
        assert hand.given is None
    assert len(set(by)) == 1
    assert threading.get_ident() not in by


def test_what_went_wrong_is_told_and_the_next_is_done() -> None:
    wrong = OSError("the client has gone")

    def call(number: int) -> int:
        if number == 1:
            raise wrong
        return number

    hand: SecondHand[str] = SecondHand(call)
    hand.give("first", 1)
    with pytest.raises(OSError, match="has gone"):
        hand.finish()
    hand.give("second", 2)
    assert hand.finish() == 2


def test_it_is_free_when_it_has_done_what_it_was_given() -> None:
    may_go_on = threading.Event()

    def call() -> int:
        may_go_on.wait()
        return 0

    hand: SecondHand[str] = SecondHand(call)
    hand.give("first")
    free = [hand.is_free]
    may_go_on.set()
    while not free[-1]:
        time.sleep(0.001)
        free.append(hand.is_free)
    assert not free[0]
    assert hand.given == "first", "until somebody asks what became of it"
    assert hand.finish() == 0
    assert hand.is_free


async def _received(client: socket.socket, broker: Broker) -> list[int]:
    """The sizes of two answers. Whenever this task has its turn, the second hand has nothing that others could find."""
    data = bytearray()
    sizes: list[int] = []
    while len(sizes) < 2:
        await trio.lowlevel.wait_readable(client)
        assert broker.network._hand.given is None
        part = client.recv(1 << 20)
        assert part, "the broker has hung up"
        data += part
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
            sizes.append(4 + int.from_bytes(data[:4]))
            assert data[4:8] == len(sizes).to_bytes(4), "answers come in the order of their requests"
            del data[: sizes[-1]]
    assert not data
    return sizes


async def several_who_fetch_much_at_once_get_all_of_it(directory: Path, *, is_alone: bool = True) -> None:
    async with running_broker(directory) as broker, Asking(broker) as client:
        await fill(broker, client)
        broker.network.is_alone = lambda: is_alone
        given = 0

        class Counting(type(broker.network._hand)):  # type: ignore[misc]
            __slots__ = ()

            def give(self, owner: object, *arguments: int) -> None:
                nonlocal given
                given += 1
                super().give(owner, *arguments)

        broker.network._hand = Counting(sendfile)
        sizes: list[list[int]] = []

        async def read(one: socket.socket) -> None:
            sizes.append(await _received(one, broker))

        with ExitStack() as open_sockets:
            address = broker.addresses["PLAINTEXT"]
            clients = [open_sockets.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
            async with trio.open_nursery() as nursery:
                for one in clients:
                    one.sendall(b"".join(frame_request(number, "much", fetch(2 * SIZE), VERSION) for number in (1, 2)))
                for one in clients:
                    one.setblocking(False)
                    nursery.start_soon(read, one)
        assert [size for pair in sizes for size in pair] == [sizes[0][0]] * 2 * CLIENTS
        assert given or not network.SEVERAL_PROCESSORS
        assert broker.network._hand.given is None


async def the_same_while_other_tasks_have_something_to_do(directory: Path) -> None:
    """Then they have a turn after each round."""
    await several_who_fetch_much_at_once_get_all_of_it(directory, is_alone=False)


def _read_two(client: socket.socket, sizes: list[int]) -> None:
    """As `_received`, in a thread: the broker goes on only if somebody reads."""
    client.settimeout(1)
    with client.makefile("rb") as stream:
        for number in (1, 2):
            size = int.from_bytes(stream.read(4))
            assert stream.read(size)[:4] == number.to_bytes(4), "answers come in the order of their requests"
            sizes.append(size)


async def who_asks_on_meanwhile_gets_one_answer_after_the_other(directory: Path) -> None:
    """The next request is there before the answer to the first was sent, and is served when it was."""
    if not network.SEVERAL_PROCESSORS:
        pytest.skip("with one processor there is no second hand")
    async with running_broker(directory) as broker, Asking(broker) as client:
        await fill(broker, client)
        served, address = broker.network, broker.addresses["PLAINTEXT"]
        first, second = (frame_request(number, "on", fetch(2 * SIZE), VERSION) for number in (1, 2))
        has_asked_on = threading.Event()
        with ExitStack() as open_sockets:
            sockets = [open_sockets.enter_context(socket.create_connection(address)) for _ in range(2)]
            clients = {"{}:{}".format(*one.getsockname()): one for one in sockets}
            while len(served) < 1 + len(clients):
                await trio.sleep(0.001)

            def send_late(*arguments: int) -> int:
                if not has_asked_on.is_set():
                    assert served._hand.given is not None
                    clients.pop(served._hand.given.connection.peer).sendall(second)
                    has_asked_on.set()
                    time.sleep(0.05)
                return sendfile(*arguments)

            served._hand = SecondHand(send_late)
            served.on_round = lambda seconds: None if has_asked_on.wait(5) else pytest.fail("nothing was given away")
            sizes: list[int] = []
            async with trio.open_nursery() as nursery:
                for one in sockets:
                    nursery.start_soon(trio.to_thread.run_sync, _read_two, one, sizes)
                await trio.sleep(0.01)
                for one in sockets:
                    one.sendall(first)
                served._serve_rounds()
                for one in clients.values():
                    one.sendall(second)
            assert len(sizes) == 4
            assert len(set(sizes)) == 1
            assert len(served) == 3, "nobody was sent away"


async def who_goes_away_meanwhile_ends_alone(directory: Path) -> None:
    async with running_broker(directory) as broker, Asking(broker) as client:
        await fill(broker, client)
        for _ in range(10):
            gone = [socket.create_connection(broker.addresses["PLAINTEXT"]) for _ in range(CLIENTS)]
            for one in gone:
                one.sendall(frame_request(1, "gone", fetch(2 * SIZE), VERSION))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            for one in gone:
                one.close()
            await trio.sleep(0.01)
        answer = await client.ask(fetch(2 * SIZE), VERSION)
        assert len(answer.responses[0].partitions[0].records) > SIZE
        with trio.fail_after(10):
            while len(broker.network) > 1:
                await trio.sleep(0.01)


class Refusing(SecondHand[Any]):
    __slots__ = ()

    def give(self, owner: object, *arguments: int) -> None:
        raise AssertionError("it waits for more")


def at_the_end() -> FetchRequest:
    """Waits until something is written."""
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=BATCHES, partition_max_bytes=SIZE)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=SIZE, topics=topics)


async def who_waits_for_more_is_not_given_away(directory: Path) -> None:
    """Its next answer may come in the same round, and would be appended to what the second hand sends."""
    async with running_broker(directory) as broker, Asking(broker) as client:
        await fill(broker, client)
        broker.network._hand = Refusing(sendfile)
        with ExitStack() as open_sockets:
            address = broker.addresses["PLAINTEXT"]
            clients = [open_sockets.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
            async with trio.open_nursery() as nursery:
                for one in clients:
                    requests = enumerate((fetch(2 * SIZE), at_the_end()), 1)
                    one.sendall(b"".join(frame_request(number, "more", asked, VERSION) for number, asked in requests))
                for one in clients:
                    one.setblocking(False)
                    nursery.start_soon(_received, one, broker)


Rule = Callable[[Path], Awaitable[None]]

RULES: list[Rule] = [
    several_who_fetch_much_at_once_get_all_of_it,
    who_goes_away_meanwhile_ends_alone,
    who_waits_for_more_is_not_given_away,
    the_same_while_other_tasks_have_something_to_do,
    who_asks_on_meanwhile_gets_one_answer_after_the_other,
]


@pytest.mark.parametrize("rule", RULES)
def test_large_answers_of_several(tmp_path: Path, rule: Rule) -> None:
    on_trio(rule)(tmp_path)


MISTAKES = [
    (
        "            self._take_back(self._hand.given)\n        return comes_back",
        "            self._hand.finish()\n        return comes_back",
        RULES[3],
    ),
    ("        if self._hand.given is not None:\n            self._take_back(self._hand.given)\n", "", RULES[3]),
    ("            self._take_back(given)\n", "            self._hand.finish()\n", RULES[0]),
    ("        if channel is self._hand.given:\n", "        if False:\n", RULES[4]),
    ("        hand.give(channel, *channel.rest_of_range())\n", "", RULES[0]),
    ("        self._attend(channel)\n\n    # The pool.", "\n    # The pool.", RULES[0]),
    ("            or connection.waits\n", "", RULES[2]),
    ("        self.range_sent = 0\n        connection", "        connection", RULES[0]),
]


@pytest.mark.skipif(not network.SEVERAL_PROCESSORS, reason="with one processor there is no second hand")
@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(tmp_path: Path, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed_by(rule, tmp_path, right, wrong, patience_s=2)
