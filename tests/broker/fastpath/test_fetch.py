"""The fast path of Fetches: its responses are those of the general path."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.fast_paths import FastAndGeneralPath, both_ways, connected, framed, said
from support.multi_replica import led_by_another
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.fastpath import fetch as fetch_fast_path
from trioka.broker.fastpath import registry
from trioka.broker.replication.fetch_session_cache import CachedPartition
from trioka.protocol import batch
from trioka.protocol.codec import decode
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record
from trioka.protocol.schema import Request

VERSIONS = (8, 11, 12, 13, 18)
TOPICS = {"t": 3, "u": 1}
FILLED = 12  # batches of two records in each partition

Place = tuple[int, int]  # partition and offset


def produce(partition: int, value: bytes, topic: str = "t") -> ProduceRequest:
    content = [Record(index, 1_700_000_000_000, None, value) for index in range(2)]
    data = ProduceRequest.Topic.Partition(index=partition, records=bytes(batch.build(content)))
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])])


def fetch(
    broker: Broker,
    version: int,
    places: Sequence[Place],
    *,
    topic: str = "t",
    session: tuple[int, int] = (0, -1),
    max_bytes: int = 1000,
    forget: Sequence[int] = (),
    said_of_each: dict[str, Any] | None = None,
    **limits: Any,
) -> FetchRequest:
    known = broker.metadata.topics.by_name(topic)
    assert known is not None
    named = {"topic_id": known.topic_id} if version >= 13 else {"topic": topic}
    each = {"partition_max_bytes": max_bytes, **(said_of_each or {})}
    partitions = [FetchRequest.Topic.Partition(partition=index, fetch_offset=at, **each) for index, at in places]
    return FetchRequest(
        **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 10_000, **limits},
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.Topic(**named, partitions=partitions)] if places else [],
        forgotten_topics_data=[FetchRequest.ForgottenTopicsData(**named, partitions=list(forget))] if forget else [],
    )


def fill(both: FastAndGeneralPath, random: Random) -> None:
    for partition in range(3):
        for number in range(FILLED):
            value = random.randbytes(random.choice((10, 100, 300)))
            both.say(framed(produce(partition, value), 9, number))
    both.say(framed(produce(0, b"another topic", "u"), 9, 1))
    both.connect()


def sessions_of(broker: Broker) -> list[Any]:
    fields = CachedPartition.__slots__
    return [
        (one.id, one.epoch, one.size, [[getattr(query, name) for name in fields] for query in one.partitions.values()])
        for one in broker.fetch_sessions._sessions.values()
    ]


def say(both: FastAndGeneralPath, data: bytes) -> bytes:
    answer = both.say(data)
    assert sessions_of(both.brokers[0]) == sessions_of(both.brokers[1])
    return answer


def began(both: FastAndGeneralPath, version: int, places: Sequence[Place], topic: str = "t") -> int:
    """The id of a new session."""
    request = fetch(both.brokers[0], version, places, session=(0, 0), topic=topic)
    return heard(say(both, framed(request, version, 1)), version).session_id


def heard(answer: bytes, version: int) -> FetchResponse:
    response = decode(FetchResponse, version, answer[9 if version >= 12 else 8 :])
    assert isinstance(response, FetchResponse)
    return response


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(2))
@on_trio
async def test_every_fetch_is_answered_as_by_the_general_path(tmp_path: Path, version: int, seed: int) -> None:
    """A client with a session and one without; mostly they read on, and now and then they ask for something odd."""
    async with both_ways(tmp_path, TOPICS) as both:
        random = Random(seed)
        fill(both, random)
        broker = both.brokers[0]
        for _ in range(12):
            both.connect()
            offsets = [random.randrange(0, FILLED) for _ in range(3)]
            count = random.choice((1, 3))
            session, epoch = 0, -1
            if random.random() < 0.7:
                session, epoch = began(both, version, list(enumerate(offsets))[:count]), 1
            for number in range(12):
                moved = random.sample(range(count), random.randint(1, count))
                for partition in moved:
                    offsets[partition] = min(offsets[partition] + random.choice((1, 2, 4)), 2 * FILLED)
                request = odd_or_not(broker, random, version, [(one, offsets[one]) for one in moved], (session, epoch))
                answer = say(both, framed(request, version, number))
                if session and answer and heard(answer, version).error_code == 0:
                    epoch += 1
                elif session:
                    break  # refused, or it waits
                if random.random() < 0.2:
                    news = framed(produce(random.randrange(3), b"news"), 9, 1)
                    for each in both.brokers:
                        said(connected(each), news)


def odd_or_not(
    broker: Broker, random: Random, version: int, places: list[Place], session: tuple[int, int]
) -> FetchRequest:
    index, offset = places[0]
    how: dict[str, Any] = {"max_wait_ms": random.choice((0, 500))}
    match random.randrange(24):
        case 0:
            places = [(index, offset + 1000), *places[1:]]
        case 1:
            places = [(9, 0), *places]
        case 2:
            places = [*places, places[0]]
        case 3:
            # An epoch that is over is answered with the leader's address from v16 on, and both have their own.
            epochs = (0, 1, 7, -3) if version < 16 else (7, -3)
            how["said_of_each"] = {"current_leader_epoch": random.choice(epochs)}
        case 4 if version >= 12:
            how["said_of_each"] = {"last_fetched_epoch": random.choice((0, 7))}
        case 5:
            how["isolation_level"] = random.choice((1, 1, 7))
        case 6:
            how["forget"] = [index]
        case 7:
            how["max_bytes"] = random.choice((0, 1, 50, 5000))
        case 8:
            how["min_bytes"] = 100_000
        case 9 if session[0]:
            session = session[0], random.choice((-1, 0, session[1] + 1))
        case 10:
            places, how["topic"] = [(0, 0)], "u"
        case 11:
            places = []
        case _:
            pass
    return fetch(broker, version, places, session=session, **how)


async def say_everything_odd(path: Path, version: int, *, in_session: bool) -> None:
    """Three plain ones, at least one of which uses the fast path. Then one that is plain but for one bit, and plain
    ones: together, and in pieces."""
    async with both_ways(path, TOPICS) as both:
        random = Random(version)
        fill(both, random)
        broker = both.brokers[0]

        def plain(number: int, **how: Any) -> bytes:
            session = (opened, number + 1) if in_session else (0, -1)
            places = [(0, 2 * number)] if number % 4 else [(0, 2 * number), (1, 2 * number)]
            return framed(fetch(broker, version, places, session=session, **how), version, number)

        for position in range(len(plain_length(broker, version))):
            both.connect()
            opened = began(both, version, [(0, 0), (1, 0)]) if in_session else 0
            for number in range(1, 4):
                say(both, plain(number - 1))
            odd = bytearray(plain(3))
            if position < len(odd):
                odd[position] ^= 1 << random.randrange(8)
            if position % 2:
                say(both, bytes(odd))
                say(both, plain(3))
            else:
                say(both, bytes(odd) + plain(3))
            say(both, plain(4))
            say(both, plain(5))
            cut = random.randrange(1, len(plain(6)))
            say(both, plain(6)[:cut])
            say(both, plain(6)[cut:] + plain(7))
        for how in (
            {"said_of_each": {"current_leader_epoch": 7}},
            {"said_of_each": {"last_fetched_epoch": 0}} if version >= 12 else {},
            {"min_bytes": 100_000},
            {"max_bytes": 10},
            {"max_bytes": 10_000, "min_bytes": 600, "max_wait_ms": 0},
            {"max_bytes": 10_000, "min_bytes": 600},
        ):
            both.connect()
            opened = began(both, version, [(0, 0), (1, 0)]) if in_session else 0
            for number in range(FILLED):
                say(both, plain(number, **how))
        other_ways_to_ask(both, version, in_session)


def plain_length(broker: Broker, version: int) -> bytes:
    return framed(fetch(broker, version, [(0, 0)]), version, 1)


def other_ways_to_ask(both: FastAndGeneralPath, version: int, in_session: bool) -> None:
    """Places that are not plain, each after some that are."""
    broker = both.brokers[0]
    for places in ([(0, 1000)], [(0, 0), (0, 2)], [(9, 0)], [(2, 0)], [(0, 2 * FILLED)], [(1, 0), (0, 2 * FILLED)]):
        for known in ([(0, 0)], [(0, 0), (1, 2 * FILLED)]):
            both.connect()
            opened = began(both, version, known) if in_session else 0
            for number, query in enumerate(([(0, 0)], [(0, 2)], [(0, 4)], places, [(0, 6)]), 1):
                session = (opened, number) if in_session else (0, -1)
                say(both, framed(fetch(broker, version, query, session=session), version, number))
    both.connect()
    opened = began(both, version, [(0, 0)]) if in_session else 0
    for number in range(1, 8):  # the same session, asked for another topic: from there on it has two
        session = (opened, number) if in_session else (0, -1)
        topic = "u" if number == 4 else "t"
        places = [(0, 0)] if number == 4 else [(0, number)]
        say(both, framed(fetch(broker, version, places, topic=topic, session=session), version, number))
    both.connect()
    opened = began(both, version, [(0, 0), (1, 0)]) if in_session else 0
    for number in range(9):
        session = (opened, number + 1) if in_session else (0, -1)
        if number == 8:
            for each in both.brokers:
                led_by_another(each, "t")
        say(both, framed(fetch(broker, version, [(0, 2 * number)], session=session), version, number))


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
@on_trio
async def test_a_request_that_is_plain_but_for_one_bit_is_noticed(
    tmp_path: Path, version: int, in_session: bool
) -> None:
    await say_everything_odd(tmp_path, version, in_session=in_session)


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("version", [9, 11, 12, 13, 18])
@on_trio
async def test_the_third_request_like_the_first_goes_through_the_fast_path(
    tmp_path: Path, version: int, in_session: bool
) -> None:
    async with both_ways(tmp_path, TOPICS) as both:
        fill(both, Random(1))
        broker, connection = both.brokers[0], both.connections[0]
        opened = began(both, version, [(0, 0), (1, 2 * FILLED), (2, 0)]) if in_session else 0
        decoded = 0
        route = broker.dispatch.route(1, version)

        class Counting(type(route)):  # type: ignore[misc]
            __slots__ = ()

            def decode(self, frame: memoryview, body: int) -> Request:
                nonlocal decoded
                decoded += 1
                return super().decode(frame, body)  # type: ignore[no-any-return]

        broker.dispatch._routes[1, version] = connection._route = Counting(broker, route._handler, 1, version)
        for number, places in enumerate(
            ([(0, 0)], [(0, 2)], [(0, 4)], [(0, 6), (2, 2)], [(2, 4), (0, 8)], [(0, 9)]), 1
        ):
            session = (opened, number) if in_session else (0, -1)
            say(both, framed(fetch(broker, version, places, session=session), version, number))
        assert decoded == (1 if in_session else 2)


@pytest.mark.parametrize(
    ("version", "in_session"),
    [
        (13, True),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in [(11, False), (11, True), (13, False)]),
    ],
)
@on_trio
async def test_many_partitions_use_the_fast_path_together(tmp_path: Path, version: int, in_session: bool) -> None:
    """As many that their number takes two bytes, and now and then as few that it takes one."""
    async with both_ways(tmp_path, {"wide": 200}) as both:
        for number in range(600):
            both.say(framed(produce(number % 200, b"%d" % number, "wide"), 9, number))
        both.connect()
        places = [(index, 0) for index in range(200)]
        opened = began(both, version, places, "wide") if in_session else 0
        for number, count in enumerate((200, 200, 200, 126, 127, 128, 200), 1):
            session = (opened, number) if in_session else (0, -1)
            places = [(index, 2 * (number % 3)) for index in range(count)]
            request = fetch(both.brokers[0], version, places, topic="wide", session=session, max_bytes=100)
            request.max_bytes = 20_000  # type: ignore[misc]
            answer = heard(say(both, framed(request, version, number)), version)
            assert sum(bool(one.records) for one in answer.responses[0].partitions) > 100
        fast_path = both.connections[0]._fast_path
        assert isinstance(fast_path, fetch_fast_path.FetchFastPath)


async def deleted(broker: Broker) -> None:
    async with ClientConnection(broker) as client:
        topics = [DeleteTopicsRequest.Topic(name="t", topic_id=NULL_UUID)]
        await client.ask(DeleteTopicsRequest(topics=topics, timeout_ms=5000), 6)


async def led_elsewhere(broker: Broker) -> None:
    led_by_another(broker, "t")


async def shortened(broker: Broker) -> None:
    broker.partitions.get("t", 0).log.delete_records_before(10)


@pytest.mark.parametrize(("change", "code"), [(deleted, 100), (led_elsewhere, 74), (shortened, 1)])
@pytest.mark.parametrize("in_session", [False, True])
@on_trio
async def test_a_fast_path_does_not_outlive_what_it_was_made_for(
    tmp_path: Path, change: Callable[[Broker], Awaitable[None]], code: int, in_session: bool
) -> None:
    async with both_ways(tmp_path, TOPICS) as both:
        fill(both, Random(1))
        opened = began(both, 13, [(0, 0)]) if in_session else 0
        session = (opened, 1) if in_session else (0, -1)
        epoch = {"current_leader_epoch": both.brokers[0].partitions.get("t", 0).leader_epoch}
        request = fetch(both.brokers[0], 13, [(0, 2)], session=session, said_of_each=epoch)
        for number in range(1, 5):
            if number == 4:
                for broker in both.brokers:
                    await change(broker)
            request.session_epoch = number if in_session else -1  # type: ignore[misc]
            answer = say(both, framed(request, 13, number))
        assert heard(answer, 13).responses[0].partitions[0].error_code == code


@on_trio
async def test_what_came_in_the_meantime_is_sent_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        reader, writer = connected(broker), connected(broker)
        for offset in range(0, 20, 2):
            said(writer, framed(produce(0, b"number %d" % offset), 9, 1))
            answer = said(reader, framed(fetch(broker, 13, [(0, offset)]), 13, 1))
            assert b"number %d" % offset in answer
        assert reader._fast_path is not None


@on_trio
async def test_a_client_whose_requests_are_for_no_fast_path_is_not_tried_for_ever(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        connection = connected(broker)
        said(connection, framed(produce(0, b"value"), 9, 1))
        tried = connection._fast_path_tries
        for number in range(tried + 10):
            said(connection, framed(fetch(broker, 12, [(0, 0)], isolation_level=7), 12, number))
        assert connection._fast_path is None
        assert connection._fast_path_tries == 0


MISTAKES = [
    ("end > reader.end or", ""),
    ("(kind, prefix, topic) != self._expected", "(prefix, topic) != self._expected[1:]"),
    ("(kind, prefix, topic) != self._expected", "(kind, topic) != self._expected[::2]"),
    ("(kind, prefix, topic) != self._expected", "(kind, prefix) != self._expected[:2]"),
    (" or view[behind:end] != self._tail", ""),
    ("elif epoch != FINAL_EPOCH:", "elif False:"),
    ("if one[3] >= 0 or one[6]:", "if one[3] >= 0:"),
    ("if one[3] >= 0 or one[6]:", "if one[6]:"),
    ("if count > 1 and len({one[0] for one in wanted}) < count:", "if False:"),
    (
        "_, _, _, cached.last_fetched_epoch, cached.log_start_offset, cached.max_bytes, _ = one",
        "_, _, _, _, cached.log_start_offset, cached.max_bytes, _ = one",
    ),
    ("if name != topic:", "if False:"),
    ("return None if updates else reads", "return reads"),
    ("or (epoch >= 0 and epoch != replica.leader_epoch)", ""),
    ("not log.local_log_start_offset <= offset <= log.log_end_offset", "False"),
    ("if cached is not None and cached.is_up_to_date(high_watermark, log_start):", "if False:"),
    ("limit = max_bytes if max_bytes < left else left", "limit = left"),
    ("at_least_one=not found", "at_least_one=True"),
    ("(found >= min_bytes or max_wait_ms <= 0)", "True"),
    ("partitions[read.key] = partitions.pop(read.key)", "pass"),
    ("read.sent_high_watermark, read.sent_log_start_offset = high_watermark, log_start", "pass"),
    ("self._broker.fetch_sessions.advance(session, self._broker.clock.now_ms())", "pass"),
    ("end > reader.end or size > reader.max_bytes or", ""),
]


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(tmp_path: Path, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken: ModuleType = planted(fetch_fast_path, right, wrong)
    monkeypatch.setattr(registry, "fast_path_for", mistaken.fast_path_for)

    async def say_all() -> None:
        await say_everything_odd(tmp_path / "session", 13, in_session=True)
        await say_everything_odd(tmp_path / "none", 12, in_session=False)

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(say_all)


def test_a_fast_path_that_ignores_the_leader_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before v11 clients knew of no replicas but the leader."""

    async def ask(directory: Path) -> None:
        async with both_ways(directory, TOPICS) as both:
            fill(both, Random(1))
            both.connect()
            for number in range(4):
                if number == 3:
                    for each in both.brokers:
                        led_by_another(each, "t")
                say(both, framed(fetch(both.brokers[0], 10, [(0, 2 * number)]), 10, number))

    trio.run(ask, tmp_path / "right")
    mistaken: ModuleType = planted(fetch_fast_path, "or not replica.leads", "")
    monkeypatch.setattr(registry, "fast_path_for", mistaken.fast_path_for)
    with pytest.raises(AssertionError):
        trio.run(ask, tmp_path / "wrong")
