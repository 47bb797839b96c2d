"""Sends bytes to a connection as the network would, and to two brokers, one of them without fast paths."""

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.serving import LISTENER, running_broker

from trioka.broker.broker import Broker
from trioka.broker.fastpath.fast_path import FastPath
from trioka.broker.fastpath.fetch import FetchFastPath
from trioka.broker.fastpath.produce import ProduceFastPath
from trioka.broker.network.connection import Connection
from trioka.protocol import batch
from trioka.protocol.codec import encode
from trioka.protocol.header import RequestHeader
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record
from trioka.protocol.schema import Request
from trioka.storage.files.file_pool import FileRange
from trioka.storage.log import Log

NOW_MS = 1_700_000_000_000
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def records(value: bytes = b"v", *, producer: tuple[int, int, int] = (-1, -1, -1), count: int = 1) -> bytes:
    content = [Record(index, NOW_MS, None, value) for index in range(count)]
    identity, epoch, sequence = producer
    return bytes(batch.build(content, producer_id=identity, producer_epoch=epoch, base_sequence=sequence))


def poisoned(random: Random, data: bytes) -> bytes:
    """The batch with a bit of its records flipped, bytes behind them, garbage in their place, or another count; its CRC
    is right."""
    header, content = batch.read_header(data), bytearray(data[batch.HEADER_SIZE :])
    match random.randrange(4):
        case 0:
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        case 1:
            content += b"?"
        case 2:
            content[:] = b"garbage" * 9
        case _:
            header = header._replace(record_count=header.record_count + 1, last_offset_delta=header.record_count)
    return bytes(batch.seal(header, bytes(content)))


def every_record_can_be_read(log: Log) -> None:
    stored = log.segments.active.range(0, log.segments.active.size).read()
    for header in batch.headers(stored):
        assert len(list(batch.records(stored, header))) == header.record_count


def produce(
    broker: Broker, data: bytes | None, version: int, *, topic: str = "t", partition: int = 0, acks: int = 1
) -> ProduceRequest:
    known = broker.metadata.topics.by_name(topic)
    by_id = version >= 13
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.Topic(
                name="" if by_id else topic,
                topic_id=known.topic_id if by_id and known is not None else NULL_UUID,
                partition_data=[ProduceRequest.Topic.Partition(index=partition, records=data)],
            )
        ],
    )


def framed(request: Request, version: int, correlation_id: int, client_id: str | None = "test") -> bytes:
    assert request.__key__ is not None
    header = RequestHeader(
        request_api_key=request.__key__,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    frame = encode(header, 2 if version in request.__flexible__ else 1) + encode(request, version)
    return len(frame).to_bytes(4) + frame


def counted_uses(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[type[FastPath], str]]:
    """How often each fast path has consumed requests, by the principal of their connection."""
    uses: Counter[tuple[type[FastPath], str]] = Counter()

    def count(kind: type[FastPath]) -> None:
        serve: Callable[[FastPath, Connection], None] = kind.try_serve

        def counting(self: FastPath, connection: Connection) -> None:
            before = connection.reader.start
            serve(self, connection)
            uses[kind, connection.principal] += connection.reader.start != before

        monkeypatch.setattr(kind, "try_serve", counting)

    count(ProduceFastPath)
    count(FetchFastPath)
    return uses


def connected(broker: Broker) -> Connection:
    connection = broker.connections.new(host="127.0.0.1", port=1, listener=LISTENER)
    assert connection is not None
    return connection


def said(connection: Connection, data: bytes) -> bytes:
    """The answers to bytes that arrive together."""
    while data and not connection.is_closing:
        room = connection.receive_buffer()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        connection.received(size)
        data = data[size:]
    pieces = (piece.read() if isinstance(piece, FileRange) else piece for piece in connection.outgoing)
    answers = b"".join(pieces)  # type: ignore[arg-type]
    assert len(answers) == connection.outgoing_bytes
    connection.outgoing.clear()
    connection.outgoing_bytes = 0
    return answers


class FastAndGeneralPath:
    """The same bytes to two brokers, of which the other has no fast paths. Responses must be the same."""

    def __init__(self, one: Broker, other: Broker) -> None:
        self.brokers = (one, other)
        for broker in self.brokers:
            broker.fetch_sessions._random = Random(1)  # so that sessions have the same ids
        self.connections: list[Connection] = []
        self.connect()

    def connect(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections = [connected(broker) for broker in self.brokers]

    def say(self, data: bytes) -> bytes:
        one, other = self.connections
        answers = said(one, data)
        assert answers == said(other, data)
        assert one.is_closing == other.is_closing
        assert one.waits == other.waits
        if one.is_closing or one.waits:
            self.connect()
        return answers


@asynccontextmanager
async def both_ways(path: Path, topics: Mapping[str, int], **settings: Any) -> AsyncIterator[FastAndGeneralPath]:
    async with running_broker(path / "a", **settings) as broker:
        await broker.create_missing_topics(topics)
    shutil.copytree(path / "a", path / "b")  # so that a topic has the same id in both
    without = {**settings, "trioka_fast_path_enable": "false"}
    async with running_broker(path / "a", **settings) as one, running_broker(path / "b", **without) as other:
        yield FastAndGeneralPath(one, other)
