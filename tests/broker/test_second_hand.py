"""The second hand: it sends what it is given, one thing at a time, and tells what went wrong when it is asked."""

import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from large_answers import SIZE, VERSION, assert_noticed_by, fetch, fill
from serving import Asking, on_trio, running_broker

from trioka.broker import network
from trioka.broker.second_hand import SecondHand
from trioka.protocol.frame import frame_request

CLIENTS = 6


def test_what_is_given_is_sent_in_another_thread() -> None:
    by: list[int] = []
    hand: SecondHand[str] = SecondHand(lambda thing: by.append(threading.get_ident()))
    for thing in ("first", "second"):
        hand.give(thing)
        assert hand.given == thing
        assert hand.finish() is None
        assert hand.given is None
    assert len(set(by)) == 1
    assert threading.get_ident() not in by


def test_what_went_wrong_is_told_and_the_next_is_sent() -> None:
    wrong = OSError("the client has gone")

    def send(thing: str) -> None:
        if thing == "first":
            raise wrong

    hand: SecondHand[str] = SecondHand(send)
    hand.give("first")
    assert hand.finish() is wrong
    hand.give("second")
    assert hand.finish() is None


async def _received(client: socket.socket) -> list[int]:
    """The sizes of two answers."""
    data = bytearray()
    sizes: list[int] = []
    while len(sizes) < 2:
        await trio.lowlevel.wait_readable(client)
        data += client.recv(1 << 20)
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
            sizes.append(4 + int.from_bytes(data[:4]))
            assert data[4:8] == len(sizes).to_bytes(4), "answers come in the order of their requests"
            del data[: sizes[-1]]
    assert not data
    return sizes


async def several_who_fetch_much_at_once_get_all_of_it(directory: Path) -> None:
    async with running_broker(directory) as broker, Asking(broker) as client:
        await fill(broker, client)
        given = 0

        class Counting(type(broker.network._hand)):  # type: ignore[misc]
            __slots__ = ()

            def give(self, thing: object) -> None:
                nonlocal given
                given += 1
                super().give(thing)

        broker.network._hand = Counting(broker.network._send)
        sizes: list[list[int]] = []

        async def read(one: socket.socket) -> None:
            sizes.append(await _received(one))

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


@pytest.mark.parametrize("rule", [several_who_fetch_much_at_once_get_all_of_it, who_goes_away_meanwhile_ends_alone])
def test_large_answers_of_several(tmp_path: Path, rule: object) -> None:
    on_trio(rule)(tmp_path)  # type: ignore[arg-type]


MISTAKES = [
    ("                self._take_back(self._hand.given)", "                self._hand.finish()"),
    ("        self._hand.give(channel)\n", ""),
    ("        self._attend(channel)\n\n    # The pool.", "\n    # The pool."),
]


@pytest.mark.skipif(not network.SEVERAL_PROCESSORS, reason="with one processor there is no second hand")
@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(tmp_path: Path, right: str, wrong: str) -> None:
    assert_noticed_by(several_who_fetch_much_at_once_get_all_of_it, tmp_path, right, wrong, patience_s=2)
