"""The send buffer of those who fetch much at a time: it stays small, unless server.properties says how large it is."""

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from planted import planted
from serving import Asking, on_trio, running_broker

from trioka.broker import broker as broker_file
from trioka.broker import network
from trioka.broker.network import BULK_BYTES, BULK_SEND_BUFFER_BYTES
from trioka.protocol import batch
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

BATCHES = 8


def produce(size: int) -> ProduceRequest:
    records = bytes(batch.build([Record(0, 1_700_000_000_000, None, bytes(size))]))
    partition = ProduceRequest.Topic.Partition(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


def fetch(size: int) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=size)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=size, topics=topics)


async def send_buffer_after(directory: Path, size: int, **settings: Any) -> int:
    """How large it is once so much was fetched at a time. Linux tells twice what it was asked for."""
    async with running_broker(directory, **settings) as broker, Asking(broker) as client:
        await broker.create_missing_topics({"t": 1})
        for _ in range(BATCHES):
            await client.ask(produce(size // BATCHES), 9)
        answer = await client.ask(fetch(2 * size), 11)
        assert len(answer.responses[0].partitions[0].records) > size
        (channel,) = broker.network._channels.values()
        return channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2


async def who_fetches_much_gets_a_small_one(directory: Path) -> None:
    assert await send_buffer_after(directory / "much", 2 * BULK_BYTES) == BULK_SEND_BUFFER_BYTES


async def who_fetches_little_keeps_the_systems(directory: Path) -> None:
    assert await send_buffer_after(directory / "little", BULK_BYTES // 2) != BULK_SEND_BUFFER_BYTES


async def what_server_properties_says_is_kept(directory: Path) -> None:
    assert await send_buffer_after(directory / "set", 2 * BULK_BYTES, socket_send_buffer_bytes=50_000) == 50_000
    left = await send_buffer_after(directory / "left", 2 * BULK_BYTES, socket_send_buffer_bytes=-1)
    assert left != BULK_SEND_BUFFER_BYTES


async def who_is_far_keeps_the_systems(directory: Path) -> None:
    """Nobody is nearer than in no time."""
    with pytest.MonkeyPatch.context() as patch:
        in_use = vars(broker_file)["Network"]
        patch.setitem(in_use._size_send_buffer.__globals__, "NEAR_US", -1)
        assert await send_buffer_after(directory / "far", 2 * BULK_BYTES) != BULK_SEND_BUFFER_BYTES


Rule = Callable[[Path], Awaitable[None]]

RULES: list[Rule] = [
    who_fetches_much_gets_a_small_one,
    who_fetches_little_keeps_the_systems,
    what_server_properties_says_is_kept,
    who_is_far_keeps_the_systems,
]


@pytest.fixture(autouse=True)
def _granted() -> None:
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BULK_SEND_BUFFER_BYTES)
        if asked.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2 < BULK_SEND_BUFFER_BYTES:
            pytest.skip("this system grants no send buffer of that size (net.core.wmem_max), so none is asked for")


@pytest.mark.parametrize("rule", RULES)
def test_the_send_buffer(tmp_path: Path, rule: Rule) -> None:
    on_trio(rule)(tmp_path)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("channel.connection.outgoing_bytes > BULK_BYTES and", "False and", RULES[0]),
    ("channel.connection.outgoing_bytes > BULK_BYTES and", "True and", RULES[1]),
    ("not self.may_size_buffers or", "False or", RULES[2]),
    ("<= NEAR_US:", "<= 1 << 32:", RULES[3]),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(tmp_path: Path, right: str, wrong: str, rule: Rule) -> None:
    mistaken: ModuleType = planted(network, right, wrong)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_file, "Network", mistaken.Network)
        with pytest.raises(AssertionError):
            trio.run(rule, tmp_path)
