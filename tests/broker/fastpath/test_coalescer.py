"""Small Produces of many connections in one round: each gets its own response, with the offsets of its records."""

import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Self

import pytest
import trio
from mutants.plant import planted
from support.fast_paths import HELLO, connected, framed, produce, records
from support.large_responses import socket_of
from support.serving import on_trio, running_broker

from trioka.broker import broker as broker_module
from trioka.broker.broker import Broker
from trioka.broker.fastpath import coalescer as together
from trioka.broker.fastpath import produce as produce_fast_path
from trioka.broker.fastpath import registry
from trioka.broker.network import server as network_module
from trioka.broker.network.channel import READ, Channel
from trioka.broker.network.transport import SocketTransport
from trioka.broker.replication.partitions import Replica
from trioka.protocol.batch import read_header, seal
from trioka.protocol.errors import InvalidRecord
from trioka.storage.log import Log

VERSION = 9
TOPICS = {"t": 3}
NONE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION = 0, 2, 3
LARGE = 50_000
NO_PRODUCER = -1


class Crowd:
    """Sockets of clients, and of the broker's network, in whose place the test calls `serve`."""

    def __init__(self, broker: Broker, size: int) -> None:
        self.broker = broker
        self._sockets = ExitStack()
        self.clients: list[socket.socket] = []
        for _ in range(size):
            ours, theirs = socket.socketpair()
            self._sockets.enter_context(ours)
            ours.setblocking(False)
            theirs.setblocking(False)
            connection = connected(broker)
            channel = Channel(SocketTransport(theirs), connection)
            network = broker.network
            network._channels[channel.descriptor] = channel
            network._epoll.register(channel.descriptor, READ)
            self.clients.append(ours)

    def say(
        self, sayings: dict[int, bytes], halting: Collection[int] = (), deaf: Collection[int] = ()
    ) -> dict[int, bytes]:
        """All at once: what each client says, and hears. Those who halt have begun before the others."""
        for who in halting:
            self._send(who, sayings[who][:50])
        self._serve()
        for who, data in sayings.items():
            self._send(who, data[50:] if who in halting else data)
        self._serve()
        return {who: self.hear(who) for who in sayings if who not in deaf}

    def _serve(self) -> None:
        """Until nothing more has come."""
        network = self.broker.network
        while network._epoll.poll(0):
            network._serve_rounds()

    def _send(self, who: int, data: bytes) -> None:
        assert self.clients[who].send(data) == len(data)

    def hear(self, who: int) -> bytes:
        try:
            return self.clients[who].recv(1 << 20)
        except BlockingIOError:
            return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sockets.close()


def answers(data: bytes) -> list[tuple[int, int, int]]:
    """Correlation id, error and first offset of each Produce that was answered."""
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        frame, data = data[4 : 4 + size], data[4 + size :]
        (correlation_id,) = struct.unpack_from(">i", frame)
        error, offset = struct.unpack_from(">hq", frame, 4 + 1 + 1 + 2 + 1 + 4)  # tags, topics, name, partitions, index
        found.append((correlation_id, error, offset))
    return found


def batch_at(log: Log, offset: int) -> bytes:
    found = log.read(offset, 1, at_least_one=True).records
    assert found is not None
    data = bytes(found.read())
    return data[: read_header(data).size]


def is_kept(log: Log, offset: int, sent: bytes) -> bool:
    """Whether the batch that begins at that offset is what was sent, but for offset and epoch."""
    kept = batch_at(log, offset)
    return read_header(kept).base_offset == offset and kept[8:12] + kept[16:] == sent[8:12] + sent[16:]


Sent = tuple[int, bytes, int]  # partition, records, the error that is due


async def crowded(path: Path, seed: int, rounds: int = 40, size: int = 24) -> None:
    """Rounds of a random crowd: most say one plain thing, some something else, some nothing."""
    random = Random(seed)
    async with running_broker(path) as broker:
        await broker.create_missing_topics(TOPICS)
        sequences = dict.fromkeys(range(size), 0)
        count = 0
        with Crowd(broker, size) as crowd:
            for number in range(rounds):
                sent = {who: some_of(random, who, sequences, odd=number > 3) for who in range(size)}
                text = {who: in_frames(broker, wanted, number) for who, wanted in sent.items() if wanted}
                heard = crowd.say(text, [who for who in text if random.random() < 0.1])
                for who, answer in heard.items():
                    got = answers(answer)
                    assert [(number, due) for *_, due in sent[who]] == [each[:2] for each in got]
                    for (partition, data, due), (_, _, offset) in zip(sent[who], got, strict=True):
                        if due == NONE:
                            count += 1
                            assert is_kept(broker.partitions.get("t", partition).log, offset, data)
                assert broker.coalescer.scratch.used == 0
        logs = [broker.partitions.get("t", index).log for index in range(TOPICS["t"])]
        assert sum(log.appended_batches for log in logs) == count


def in_frames(broker: Broker, sent: list[Sent], number: int) -> bytes:
    requests = (produce(broker, data, VERSION, partition=partition) for partition, data, _ in sent)
    return b"".join(framed(request, VERSION, number) for request in requests)


def some_of(random: Random, who: int, sequences: dict[int, int], odd: bool) -> list[Sent]:
    """What one of the crowd says in a round."""
    match random.randrange(12):
        case 0:
            return []
        case 1:
            return [one_of(random, who, sequences), one_of(random, who, sequences)]
        case 2 if odd:
            partition, data, _ = one_of(random, NO_PRODUCER, sequences)
            return [(partition, data[:-1] + bytes([data[-1] ^ 1]), CORRUPT_MESSAGE)]
        case 4 if odd:
            partition, data, _ = one_of(random, NO_PRODUCER, sequences)
            return [(partition, bytes(seal(read_header(data), b"garbage" * 9)), InvalidRecord.code)]
        case 3 if odd:
            return [(9, one_of(random, NO_PRODUCER, sequences)[1], UNKNOWN_TOPIC_OR_PARTITION)]
        case _:
            return [one_of(random, who, sequences)]


def one_of(random: Random, who: int, sequences: dict[int, int]) -> Sent:
    """Something plain: for one of the partitions, or the next one of a client that numbers what it sends."""
    value = random.randbytes(random.choice((10, 10, 40, 40, 300, LARGE)))
    if who == NO_PRODUCER or who % 3:
        return random.randrange(TOPICS["t"]), records(value), NONE
    sequence, sequences[who] = sequences[who], sequences[who] + 1
    return 0, records(value, producer=(1000 + who, 0, sequence)), NONE


@pytest.mark.parametrize("seed", range(4))
@on_trio
async def test_everybody_is_answered_for_what_they_sent(tmp_path: Path, seed: int) -> None:
    await crowded(tmp_path, seed)


@on_trio
async def test_requests_that_arrive_together_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    try_append_batches = Replica.try_append_batches

    def counting(replica: Replica, buffer: memoryview, places: list[tuple[int, int]], now_ms: int) -> list[int]:
        writes.append(len(places))
        return try_append_batches(replica, buffer, places, now_ms)

    monkeypatch.setattr(Replica, "try_append_batches", counting)
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        with Crowd(broker, 20) as crowd:
            request = framed(produce(broker, records(), VERSION), VERSION, 1)
            for _ in range(3):
                crowd.say(dict.fromkeys(range(20), request))
    assert writes[-1] == 20


@on_trio
async def test_a_lone_request_is_not_delayed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        with Crowd(broker, 2) as crowd:
            request = framed(produce(broker, records(), VERSION), VERSION, 1)
            for number in range(4):
                heard = crowd.say({0: request})
                assert answers(heard[0]) == [(1, NONE, number)]
                assert not broker.coalescer.is_open


@on_trio
async def test_a_client_that_leaves_in_the_same_round_affects_no_other(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        with Crowd(broker, 5) as crowd:
            request = framed(produce(broker, records(), VERSION), VERSION, 1)
            for _ in range(2):
                crowd.say(dict.fromkeys(range(5), request))
            crowd.clients[0].send(request)
            crowd.clients[0].close()
            heard = crowd.say(dict.fromkeys(range(1, 5), request))
            assert {len(answers(data)) for data in heard.values()} == {1}
            crowd.say({1: framed(HELLO, 3, 1)})
            assert len({answers(data)[0][2] for data in heard.values()}) == 4


async def one_says_another_size(path: Path) -> None:
    async with running_broker(path) as broker:
        await broker.create_missing_topics({"t": 1})
        with Crowd(broker, 3) as crowd:
            plain = framed(produce(broker, records(), VERSION), VERSION, 1)
            for _ in range(3):
                crowd.say(dict.fromkeys(range(3), plain))
            short = (len(plain) - 5).to_bytes(4) + plain[4:]
            heard = crowd.say({0: plain, 1: short, 2: plain})
            assert [len(answers(heard[who])) for who in (0, 2)] == [1, 1]
            assert not heard[1]


@on_trio
async def test_a_frame_that_says_another_size_is_not_taken(tmp_path: Path) -> None:
    await one_says_another_size(tmp_path)


async def unread(path: Path) -> None:
    """The first one does not read its answers: there is no room for them at last, and they wait."""
    async with running_broker(path) as broker:
        await broker.create_missing_topics({"t": 1})
        with Crowd(broker, 2) as crowd:
            plain = framed(produce(broker, records(), VERSION), VERSION, 1)
            count = 0
            silent = next(iter(broker.network._channels.values()))
            socket_of(silent).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            while not silent.connection.outgoing:
                count += 1
                crowd.say({0: plain, 1: plain}, deaf=(0,))
                assert count < 10_000
            heard = b""
            while data := crowd.hear(0):
                heard += data
                crowd.say({})
            assert len(answers(heard)) == count


@on_trio
async def test_an_answer_for_which_there_is_no_room_is_sent_later(tmp_path: Path) -> None:
    await unread(tmp_path)


async def a_crowd(path: Path) -> None:
    await crowded(path, 1)


MISTAKES: list[tuple[ModuleType, str, str, Callable[[Path], Awaitable[None]]]] = [
    (
        produce_fast_path,
        "(size, kind, prefix, length) != (end - start - SIZE_BYTES, self._kind, self._prefix, self._length)",
        "(kind, prefix, length) != (self._kind, self._prefix, self._length)",
        one_says_another_size,
    ),
    (produce_fast_path, "        reader.scratch.used = end\n", "", a_crowd),
    (
        produce_fast_path,
        "reader.own is not None or (size != self._size and not self._resize(size, reader.max_bytes))",
        "size != self._size and not self._resize(size, reader.max_bytes)",
        a_crowd,
    ),
    (together, "requests[done or 1 :]", "requests", a_crowd),
    (
        together,
        "connection.deferred = fast_path.response(replica, ((correlation_id, offset),))",
        "connection.deferred = fast_path.response(replica, ((correlation_id, offsets[0]),))",
        a_crowd,
    ),
    (
        network_module,
        "                    connection.queue(response[sent:])\n",
        "                    continue\n",
        unread,
    ),
    (network_module, "        self._coalescer.scratch.used = 0\n", "", a_crowd),
]


@pytest.mark.parametrize(("module", "right", "wrong", "scene"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    tmp_path: Path,
    module: ModuleType,
    right: str,
    wrong: str,
    scene: Callable[[Path], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistaken = planted(module, right, wrong)
    name = {produce_fast_path: "ProduceFastPaths", together: "ProduceCoalescer", network_module: "SocketServer"}[module]
    monkeypatch.setattr(registry if module is produce_fast_path else broker_module, name, getattr(mistaken, name))
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(scene, tmp_path)
