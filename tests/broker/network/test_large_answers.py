"""Responses of megabytes: they arrive whole, also at a slow reader, and leave the connection as it was before."""

import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from mutants.plant import within
from support.large_responses import BATCHES, SIZE, VERSION, assert_noticed_by, fetch, fill, produce, socket_of
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.network.channel import CHUNK_BYTES
from trioka.broker.network.listener import listen
from trioka.broker.network.server import SMALL_RECENT_S
from trioka.broker.network.transport import SocketTransport
from trioka.protocol import batch
from trioka.protocol.frame import frame_request
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.storage.log import Log

CLIENTS = 6


def is_whole(records: Any) -> bool:
    data = bytes(records)
    values = [record.value for header in batch.headers(data) for record in batch.records(data, header)]
    return values == [bytes([number]) * (SIZE // BATCHES) for number in range(BATCHES)]


async def all_of_it_arrives_and_nothing_is_held_back(directory: Path) -> None:
    async with running_broker(directory) as broker, ClientConnection(broker) as client:
        await fill(broker, client)
        for _ in range(3):
            answer = await client.ask(fetch(2 * SIZE), VERSION)
            assert is_whole(answer.responses[0].partitions[0].records)
            (channel,) = broker.network._channels.values()
            assert not channel.is_corked
            assert not socket_of(channel).getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)


async def a_transport_that_cannot_send_files_gets_their_bytes(directory: Path) -> None:
    """As TLS does: the response is the same, and no file is sent past the transport."""
    with pytest.MonkeyPatch.context() as patch:
        sendfile = Sendfile()
        patch.setattr(os, "sendfile", sendfile)
        patch.setattr(SocketTransport, "can_sendfile", False)
        await all_of_it_arrives_and_nothing_is_held_back(directory)
        assert not sendfile.sizes


async def headers_leave_with_their_records(directory: Path) -> None:
    """While there is more to send than the kernel takes, it fills its segments."""
    async with (
        running_broker(directory, socket_send_buffer_bytes=100_000) as broker,
        ClientConnection(broker) as client,
    ):
        await fill(broker, client)
        host, port = broker.addresses["PLAINTEXT"]
        with trio.socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
            await slow.connect((host, port))
            for number in range(2):
                await slow.send(frame_request(number, "slow", fetch(2 * SIZE), VERSION))
            await trio.sleep(0.2)
            assert any(channel.is_corked for channel in broker.network._channels.values())
            received = bytearray()
            sizes: list[int] = []
            while len(sizes) < 2:
                received += await slow.recv(30_000)
                while len(received) >= 4 and len(received) >= 4 + int.from_bytes(received[:4]):
                    sizes.append(4 + int.from_bytes(received[:4]))
                    del received[: sizes[-1]]
        assert sizes[0] == sizes[1] > SIZE
        assert not received


async def what_server_properties_says_of_the_send_buffer_is_kept(directory: Path) -> None:
    async with running_broker(directory, socket_send_buffer_bytes=50_000) as broker, ClientConnection(broker) as client:
        await fill(broker, client)
        await client.ask(fetch(2 * SIZE), VERSION)
        (channel,) = broker.network._channels.values()
        assert socket_of(channel).getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2 == 50_000


class Sendfile:
    """Counts, and lets another client send a small request during the first call."""

    def __init__(self, asks: Callable[[], None] = lambda: None, sees: Callable[[], bool] = lambda: False) -> None:
        self.sizes: list[int] = []
        self.seen: list[bool] = []
        self._asks, self._sees, self._send = asks, sees, os.sendfile

    def __call__(self, out: int, file: int, offset: int, count: int) -> int:
        self.seen.append(self._sees())
        if not self.sizes:
            self._asks()
        self.sizes.append(count)
        return self._send(out, file, offset, count)


def _has_come(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


async def who_asks_for_little_need_not_wait_for_a_large_answer(directory: Path) -> None:
    async with running_broker(directory) as broker, ClientConnection(broker) as client:
        requested = frame_request(1, "little", ApiVersionsRequest(), 0)
        address = broker.addresses["PLAINTEXT"]
        with socket.create_connection(address) as little, pytest.MonkeyPatch.context() as patch:
            await fill(broker, client)
            little.setblocking(False)
            sendfile = Sendfile(lambda: little.sendall(requested), lambda: _has_come(little))
            patch.setattr(os, "sendfile", sendfile)
            await client.ask(ApiVersionsRequest(), 0)
            answer = await client.ask(fetch(2 * SIZE), VERSION)
            assert is_whole(answer.responses[0].partitions[0].records)
            assert sendfile.seen[:2] == [False, True]
            assert max(sendfile.sizes) <= CHUNK_BYTES
            await trio.sleep(2 * SMALL_RECENT_S)
            sendfile.sizes.clear()
            answer = await client.ask(fetch(2 * SIZE), VERSION)
            assert is_whole(answer.responses[0].partitions[0].records)
            assert sendfile.sizes[0] > SIZE, "where all ask for much, nothing is cut into pieces"


async def who_asks_for_little_need_not_wait_for_a_large_request(directory: Path) -> None:
    """It comes in portions, and before the last of them is looked at, others are answered."""
    async with running_broker(directory) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        requested = frame_request(1, "little", ApiVersionsRequest(), 0)
        much = frame_request(1, "much", produce(4 * CHUNK_BYTES, 0), 9)
        address = broker.addresses["PLAINTEXT"]
        with (
            socket.create_connection(address) as little,
            socket.create_connection(address) as large,
            pytest.MonkeyPatch.context() as patch,
        ):
            await client.ask(ApiVersionsRequest(), 0)
            port = large.getsockname()[1]
            (channel,) = (one for one in broker.network._channels.values() if one.connection.peer.endswith(f":{port}"))
            receive, append = channel.receive, Log.append_as_leader
            sizes: list[int] = []
            seen: list[bool] = []

            def received(room: memoryview) -> int:
                sizes.append(receive(room))
                if sum(sizes) == len(much):  # that was the last of it, not handled yet
                    little.sendall(requested)
                return sizes[-1]

            def appended(log: Log, *arguments: Any, **named: Any) -> Any:
                seen.append(_has_come(little))
                return append(log, *arguments, **named)

            channel.receive = received
            patch.setattr(Log, "append_as_leader", appended)
            little.setblocking(False)
            large.setblocking(False)
            left = memoryview(much)
            while left:
                await trio.lowlevel.wait_writable(large)
                left = left[large.send(left) :]
                await client.ask(ApiVersionsRequest(), 0)
            while not seen:
                await trio.sleep(0.01)
            assert seen == [True]
            assert max(sizes[1:]) <= CHUNK_BYTES


async def _received(client: socket.socket) -> list[int]:
    """The sizes of two answers."""
    data = bytearray()
    sizes: list[int] = []
    while len(sizes) < 2:
        await trio.lowlevel.wait_readable(client)
        part = client.recv(1 << 20)
        assert part, "the broker has hung up"
        data += part
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
            sizes.append(4 + int.from_bytes(data[:4]))
            assert data[4:8] == len(sizes).to_bytes(4), "answers come in the order of their requests"
            del data[: sizes[-1]]
    assert not data
    return sizes


async def several_large_fetches_at_once_get_whole_responses(directory: Path) -> None:
    async with running_broker(directory) as broker, ClientConnection(broker) as client:
        await fill(broker, client)
        sizes: list[int] = []

        async def read(one: socket.socket) -> None:
            sizes.extend(await _received(one))

        with ExitStack() as open_sockets:
            address = broker.addresses["PLAINTEXT"]
            clients = [open_sockets.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
            async with trio.open_nursery() as nursery:
                for one in clients:
                    one.sendall(b"".join(frame_request(number, "much", fetch(2 * SIZE), VERSION) for number in (1, 2)))
                for one in clients:
                    one.setblocking(False)
                    nursery.start_soon(read, one)
        assert sizes == [sizes[0]] * 2 * CLIENTS


async def who_goes_away_meanwhile_ends_alone(directory: Path) -> None:
    async with running_broker(directory) as broker, ClientConnection(broker) as client:
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
        assert is_whole(answer.responses[0].partitions[0].records)
        with trio.fail_after(10):
            while len(broker.network) > 1:
                await trio.sleep(0.01)


Rule = Callable[[Path], Awaitable[None]]

RULES: list[Rule] = [
    all_of_it_arrives_and_nothing_is_held_back,
    headers_leave_with_their_records,
    what_server_properties_says_of_the_send_buffer_is_kept,
    who_asks_for_little_need_not_wait_for_a_large_answer,
    who_asks_for_little_need_not_wait_for_a_large_request,
    several_large_fetches_at_once_get_whole_responses,
    who_goes_away_meanwhile_ends_alone,
    a_transport_that_cannot_send_files_gets_their_bytes,
]


@pytest.mark.parametrize("rule", RULES)
def test_a_large_answer(tmp_path: Path, rule: Rule) -> None:
    on_trio(rule)(tmp_path)


def congestion_control(host: str) -> bytes:
    """Of who connects to a listener there."""
    listener = listen("ANY", host, 0).socket
    with listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def test_connections_of_this_machine_are_not_paced() -> None:
    assert congestion_control("127.0.0.1") == b"reno"
    with socket.socket() as usual:
        systems = usual.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    assert congestion_control("0.0.0.0") == systems


MISTAKES: list[tuple[str, str, Rule]] = [
    ("            self.cork(False)", "            pass", RULES[0]),
    ("            self.cork(True)", "            pass", RULES[1]),
    ("        self.range_sent += sent\n", "", RULES[1]),
    (within("Channel._range_is_sent", "self.range_sent = 0"), "pass", RULES[5]),
    ("sock.setsockopt(socket.SOL_SOCKET, option, size)", "pass", RULES[2]),
    (" and not policy.has_other_events(self)", "", RULES[3]),
    ("        if not policy.has_small_clients:", "        if False:", RULES[3]),
    ("if not self.transport.can_sendfile:", "if False:", RULES[7]),
    ("queue.insert(index, first.read())", "queue.insert(index, queue[index].read())", RULES[7]),
    ("self._round_started_at - self._small_sent_at < SMALL_RECENT_S", "False", RULES[3]),
    ("            self._serve_small_first(channel)\n", "", RULES[4]),
    ("channel.receive(buffer[:CHUNK_BYTES] if is_large else buffer)", "channel.receive(buffer)", RULES[4]),
    (
        "if is_small and not channel.connection.outgoing:\n    self._small_sent_at = self._round_started_at",
        "if is_small and not channel.connection.outgoing:\n    pass",
        RULES[3],
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(tmp_path: Path, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed_by(rule, tmp_path, right, wrong, patience_s=5)
