"""A topic with megabytes in it, and a request for all of them at once."""

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from mutants.plant import planted
from support.serving import ClientConnection

from trioka.broker import broker as broker_file
from trioka.broker.broker import Broker
from trioka.broker.network import channel
from trioka.broker.network import server as network
from trioka.broker.network.channel import BULK_BYTES, Channel
from trioka.broker.network.server import SMALL_RECENT_S
from trioka.broker.network.transport import SocketTransport
from trioka.protocol import batch
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

BATCHES = 8
SIZE = 4 * BULK_BYTES
VERSION = 12  # of Fetch: there are bytes behind the records


def socket_of(channel: Channel) -> socket.socket:
    assert isinstance(channel.transport, SocketTransport)
    return channel.transport._socket


def produce(size: int, number: int) -> ProduceRequest:
    value = bytes([number]) * size
    records = bytes(batch.build([Record(0, 1_700_000_000_000, None, value)]))
    partition = ProduceRequest.Topic.Partition(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


def fetch(size: int) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=size)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=size, topics=topics)


async def fill(broker: Broker, client: ClientConnection) -> None:
    """Fills the topic, then waits until no client counts as a recent receiver of small responses."""
    await broker.create_missing_topics({"t": 1})
    for number in range(BATCHES):
        await client.ask(produce(SIZE // BATCHES, number), 9)
    await trio.sleep(2 * SMALL_RECENT_S)


def assert_noticed_by(
    rule: Callable[[Path], Awaitable[None]], directory: Path, right: str, wrong: str, patience_s: float
) -> None:
    """A network with a planted fault breaks the rule: an assertion fails, or an answer never comes."""

    async def in_time() -> None:
        with trio.fail_after(patience_s):
            await rule(directory)

    with pytest.MonkeyPatch.context() as patch:
        try:
            patch.setattr(network, "Channel", planted(channel, right, wrong).Channel)
        except ValueError:  # the server has the place
            patch.setattr(broker_file, "SocketServer", planted(network, right, wrong).SocketServer)
        with pytest.raises((Exception, BaseExceptionGroup)):
            trio.run(in_time)
