"""The fast path of small Produces: its responses and logs are those of the general path."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.fast_paths import (
    HELLO,
    FastAndGeneralPath,
    both_ways,
    connected,
    every_record_can_be_read,
    framed,
    poisoned,
    produce,
    records,
    said,
)
from support.multi_replica import led_by_another, with_others
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.fastpath import produce as produce_fast_path
from trioka.broker.fastpath import registry
from trioka.protocol.batch import read_header, seal
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.schema import Request

VERSIONS = (5, 7, 8, 9, 12, 13)
TOPICS = {"t": 2}


def stream(broker: Broker, random: Random, version: int, length: int) -> list[bytes]:
    """Frames of one client: mostly plain, for two partitions; some are odd in every way that comes to mind."""
    sequence = 0
    frames = []
    for number in range(length):
        partition, client_id = random.choice((0, 0, 0, 1)), "test"
        data: bytes | None = records(random.randbytes(random.choice((10, 10, 10, 50, 61, 62, 63, 300, 17_000))))
        if random.random() < 0.5:
            data = records(b"numbered", producer=(7, 0, sequence), count=2)
            sequence += 2
            partition = 0
        topic, acks = "t", 1
        match random.randrange(40):
            case 0:
                partition = 9
            case 1:
                topic = "nowhere" if version < 13 else "t"
            case 2:
                acks = random.choice((-1, 0, 7))
            case 3:
                client_id = "somebody else"
            case 4:
                data = random.choice((None, b"", b"short", data and data[:-1], data and data + b"x", data and data * 2))
            case 5 if data:
                data = data[:30] + bytes([data[30] ^ 1]) + data[31:]
            case 6 | 7 if data:
                data = poisoned(random, data)
        frame = framed(
            produce(broker, data, version, topic=topic, partition=partition, acks=acks), version, number, client_id
        )
        match random.randrange(40):
            case 0:
                frames.append(framed(HELLO, 3, number))
            case 1:  # bytes behind the request are ignored
                frame = (len(frame)).to_bytes(4) + frame[4:] + bytes(4)
            case 2 if version >= 9:  # an unknown tagged field
                frame = (len(frame) + 0).to_bytes(4) + frame[4:-1] + b"\x01\x05\x02ab"
        frames.append(frame)
    return frames


def compare_logs(both: FastAndGeneralPath) -> None:
    for index in (0, 1):
        logs = [broker.partitions.get("t", index).log for broker in both.brokers]
        assert logs[0].log_end_offset == logs[1].log_end_offset == logs[0].high_watermark
        a, b = (log.segments.active.range(0, log.segments.active.size).read() for log in logs)
        assert a == b
        every_record_can_be_read(logs[0])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(4))
@on_trio
async def test_every_produce_is_answered_and_kept_as_by_the_general_path(
    tmp_path: Path, version: int, seed: int
) -> None:
    async with both_ways(tmp_path, TOPICS) as both:
        random = Random(seed)
        frames = stream(both.brokers[0], random, version, 150)
        while frames:
            together = random.choice((1, 1, 2, 5, 20))
            both.say(b"".join(frames[:together]))
            del frames[:together]
        compare_logs(both)


async def say_everything_odd(path: Path, version: int) -> None:
    """Two plain ones open the fast path, the third uses it. Then one that is plain but for one bit, and a plain one:
    alone, together, and in pieces."""
    async with both_ways(path, TOPICS) as both:
        random = Random(version)
        request = produce(both.brokers[0], records(b"plain"), version)
        plain = framed(request, version, 1)
        for position in range(len(plain)):
            odd = bytearray(plain)
            odd[position] ^= 1 << random.randrange(8)
            both.connect()
            for _ in range(3):
                both.say(plain)
            both.say(bytes(odd))
            both.say(plain)
            both.connect()
            for _ in range(3):
                both.say(plain)
            both.say(bytes(odd) + plain)
            cut = random.randrange(1, len(plain))
            both.say(plain + plain[:cut])
            both.say(plain[cut:] + bytes(odd) + plain)
        several = produce(both.brokers[0], records(b"plain"), version)
        several.topic_data[0].partition_data.append(
            ProduceRequest.Topic.Partition(index=1, records=records(b"for another partition"))
        )
        for odd_request in (
            several,
            produce(both.brokers[0], records(b"plain"), version, partition=1),
            produce(both.brokers[0], records(b"plain"), version, acks=-1),
            produce(both.brokers[0], b"far too short to be anything", version),
            produce(both.brokers[0], None, version),
        ):
            both.connect()
            both.say(plain)
            both.say(plain)
            for number in (2, 3):  # the first batch of a log is never plain
                both.say(framed(odd_request, version, number))
            both.say(plain + framed(odd_request, version, 2) + plain + framed(odd_request, version, 3) + plain)
        compare_logs(both)


@pytest.mark.parametrize("version", VERSIONS)
@on_trio
async def test_a_request_that_is_plain_but_for_one_bit_is_noticed(tmp_path: Path, version: int) -> None:
    await say_everything_odd(tmp_path, version)


@pytest.mark.parametrize("version", [7, 9, 13])
@on_trio
async def test_the_third_request_like_the_first_goes_through_the_fast_path(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        connection = connected(broker)
        is_fast = []
        for number in range(3):
            said(connection, framed(produce(broker, records(), version), version, number))
            is_fast.append(connection._fast_path is not None)
        assert is_fast == [False, True, True]
        decoded = 0
        route = broker.dispatch.route(0, version)

        class Counting(type(route)):  # type: ignore[misc]
            __slots__ = ()

            def decode(self, frame: memoryview, body: int) -> Request:
                nonlocal decoded
                decoded += 1
                return super().decode(frame, body)  # type: ignore[no-any-return]

        counting = Counting(broker, route._handler, 0, version)
        broker.dispatch._routes[0, version] = counting
        connection._route = counting
        for value in (b"v", b"another size", bytes(20_000), b"v"):
            said(connection, framed(produce(broker, records(value), version), version, 9))
        assert decoded == 0
        said(connection, framed(produce(broker, records()[:-1], version), version, 9))
        assert decoded == 1


@on_trio
async def test_a_request_that_comes_in_pieces_is_served_once_and_whole(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        connection = connected(broker)
        frame = framed(produce(broker, records(b"in pieces"), 9), 9, 1)
        whole = [said(connection, frame) for _ in range(3)][-1]
        for cut in range(1, len(frame)):
            assert said(connection, frame[:cut]) == b""
            assert len(said(connection, frame[cut:])) == len(whole)
        many = frame * 10
        for cut in range(1, len(frame), 7):
            first = said(connection, many[:-cut])
            assert len(first + said(connection, many[-cut:])) == 10 * len(whole)
        log = broker.partitions.get("t", 0).log
        assert log.log_end_offset == 3 + len(frame) - 1 + 10 * len(range(1, len(frame), 7))


@on_trio
async def test_a_waiting_reader_gets_records_of_the_fast_path(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as reader:
        await broker.create_missing_topics({"t": 1})
        connection = connected(broker)
        for number in range(3):
            said(connection, framed(produce(broker, records(), 9), 9, number))
        partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=3, partition_max_bytes=1000)
        wanted = FetchRequest(
            max_wait_ms=20_000,
            min_bytes=1,
            max_bytes=1000,
            topics=[FetchRequest.Topic(topic="t", partitions=[partition])],
        )
        await reader.say(wanted, 11)
        while not len(broker.purgatory):
            await trio.sleep(0.001)
        said(connection, framed(produce(broker, records(b"news"), 9), 9, 4))
        assert b"news" in bytes((await reader.hear(wanted, 11)).responses[0].partitions[0].records)


async def several_of_one_while_others_are_ready_too(path: Path) -> None:
    """What was looked at as if it were one request is served as the several that it is, and none of them is read."""
    async with running_broker(path) as broker:
        await broker.create_missing_topics({"t": 1})
        connection = connected(broker)
        frame = framed(produce(broker, records(), 9), 9, 1)
        for _ in range(3):
            said(connection, frame)
        connection._route = None  # type: ignore[assignment]
        broker.coalescer.is_open = True
        for count in (7, 2, 30):
            assert said(connection, frame * count)
        assert broker.partitions.get("t", 0).log.log_end_offset == 3 + 7 + 2 + 30


@on_trio
async def test_several_of_one_client_stay_in_the_fast_path_while_others_are_ready_too(tmp_path: Path) -> None:
    await several_of_one_while_others_are_ready_too(tmp_path)


async def unknown(broker: Broker) -> None:
    async with ClientConnection(broker) as client:
        await client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t", topic_id=NULL_UUID)], timeout_ms=5000), 6
        )


async def recreated(broker: Broker) -> None:
    await unknown(broker)
    topic = CreateTopicsRequest.Topic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    async with ClientConnection(broker) as client:
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)


async def led_elsewhere(broker: Broker) -> None:
    led_by_another(broker, "t")


async def not_alone(broker: Broker) -> None:
    with_others(broker, "t").min_in_sync = 2


CHANGES: list[tuple[Callable[[Broker], object], int, int]] = [
    (unknown, 1, 3),
    (recreated, 1, 0),
    (led_elsewhere, 1, 6),
    (not_alone, -1, 19),
]


async def say_it_when_all_has_changed(
    path: Path, change: Callable[[Broker], object], acks: int, code: int, at_once: int
) -> None:
    async with running_broker(path) as broker:
        await broker.create_missing_topics({"t": 1})
        connection = connected(broker)
        frame = framed(produce(broker, records(), 9, acks=acks), 9, 1)
        for _ in range(3):
            said(connection, frame)
        await change(broker)  # type: ignore[misc]
        answers = said(connection, frame * at_once)
        size = len(answers) // at_once
        for number in range(at_once):
            answer = answers[number * size :][:size]
            assert int.from_bytes(answer[17:19]) == code
            if code == 0:
                assert int.from_bytes(answer[19:27]) == number  # in the new one


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize(("change", "acks", "code"), CHANGES)
@on_trio
async def test_a_fast_path_does_not_outlive_what_it_was_made_for(
    tmp_path: Path, change: Callable[[Broker], object], acks: int, code: int, at_once: int
) -> None:
    await say_it_when_all_has_changed(tmp_path, change, acks, code, at_once)


def test_a_fast_path_that_assumes_its_replica_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = planted(
        produce_fast_path,
        "return replica if self.commit_timeout_s is None or replica.has_min_in_sync else None",
        "return replica",
    )
    monkeypatch.setattr(registry, "ProduceFastPaths", mistaken.ProduceFastPaths)
    with pytest.raises(Exception):  # noqa: B017, PT011 - the assertion, or a group of it
        trio.run(say_it_when_all_has_changed, tmp_path, not_alone, -1, 19, 2)


@on_trio
async def test_a_thousand_fast_paths_are_enough(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        for number in range(produce_fast_path.MAX_FAST_PATHS + 10):
            connection = connected(broker)
            for _ in range(2):
                said(connection, framed(produce(broker, records(), 9), 9, 1, f"client {number}"))
            broker.connections.gone(connection)
            found = broker.dispatch._fast_paths
            assert found is not None
            assert len(found._produce._fast_paths) <= produce_fast_path.MAX_FAST_PATHS


MISTAKES = [
    ("or its_prefix != prefix\n", "\n"),
    ("or its_kind != kind\n", "\n"),
    ("or length != self._length\n", "\n"),
    ("or unpack_tail(view, following - tail_size) != tail\n", "\n"),
    ("following > end", "False"),
    ("                if ranges:\n                    break\n", ""),
    ("start = frames[appended][1]", "pass"),
    ("records_size < HEADER_SIZE or size > max_bytes", "size > max_bytes"),
    ("        reader.start = start\n", ""),
    (
        "return pack(size, correlation_id, head, index, 0, offset, -1, log_start, rest)",
        "return pack(size, correlation_id, head, 0, 0, offset, -1, log_start, rest)",
    ),
]


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(tmp_path: Path, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken: ModuleType = planted(produce_fast_path, right, wrong)
    monkeypatch.setattr(registry, "ProduceFastPaths", mistaken.ProduceFastPaths)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(say_everything_odd, tmp_path, 9)


@pytest.mark.parametrize("setting", [None, "full", "header"])
@on_trio
async def test_records_are_checked_unless_configured_otherwise(tmp_path: Path, setting: str | None) -> None:
    """By the general path first, then by the fast path, as the only request and as one of several."""
    settings: dict[str, Any] = {} if setting is None else {"trioka_validate_records": setting}
    async with running_broker(tmp_path, **settings) as broker:
        await broker.create_missing_topics(TOPICS)
        log = broker.partitions.get("t", 0).log
        plain = framed(produce(broker, records(), 9), 9, 1)
        poison = framed(produce(broker, bytes(seal(read_header(records()), b"garbage" * 9)), 9), 9, 2)
        connection = connected(broker)
        for query in (poison, plain + plain + plain, poison, plain + poison + plain, poison):
            said(connection, query)
        assert log.log_end_offset == (9 if setting == "header" else 5)
        if setting != "header":
            every_record_can_be_read(log)
