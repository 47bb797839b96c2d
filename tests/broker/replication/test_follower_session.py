"""A leader looks at what has changed, of the partitions that a follower has in its session, and misses nothing.

The look at all of them that comes once in a while is put off for the length of these tests: it would hide a mistake.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import trio
from mutants.plant import planted, within
from support.multi_replica import led_by_another, with_others
from support.serving import ClientConnection, on_trio, request_frame, running_broker
from support.topic_requests import create, producing

from trioka.broker import broker as broker_module
from trioka.broker.broker import Broker
from trioka.broker.handlers import fetch as handler
from trioka.broker.network import server as network_server
from trioka.broker.network.channel import Channel, SendPolicy
from trioka.broker.network.connection import Connection
from trioka.broker.replication import follower_session as follower_watch
from trioka.broker.replication import transitions as replication
from trioka.broker.replication.fetch_session_client import VERSION, FetchSessionClient, Key, Limits, Position
from trioka.broker.replication.parked_follower import ParkedFollower
from trioka.cluster.purgatory import DelayedOperation, Purgatory
from trioka.protocol.batch import build
from trioka.protocol.errors import FencedLeaderEpoch
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.record import Record
from trioka.storage.append_validation import AppendOrigin

FOLLOWER = 2
PARTITIONS = 3
FOR_EVER_MS = 600_000
FOR_EVER_S = 1e9
SentPartitions = dict[int, FetchResponse.Topic.Partition]
Rule = Callable[[Path], Awaitable[None]]


class Session:
    """A follower, as far as its questions go."""

    def __init__(self, broker: Broker, connection: ClientConnection) -> None:
        self._connection = connection
        self._standing = FetchSessionClient(FOLLOWER)
        topic = broker.metadata.topics.by_name("t")
        assert topic is not None
        self._topic_id = topic.topic_id
        self.at: dict[Key, Position] = {}
        for index in range(PARTITIONS):
            self.move(index, 0, broker.partitions.get("t", index).leader_epoch)

    def move(self, index: int, offset: int, epoch: int | None = None) -> None:
        key = (self._topic_id, index)
        self.at[key] = Position(offset, -1, 0, self.at[key].leader_epoch if epoch is None else epoch)

    def leave(self, index: int) -> None:
        del self.at[self._topic_id, index]

    async def say(self, wait_ms: int = 0, max_bytes: int = 1 << 20) -> FetchRequest:
        request = self._standing.request(self.at, -1, Limits(wait_ms, 1, max_bytes, 1 << 20))
        await self._connection.say(request, VERSION)
        return request

    async def hear(self, request: FetchRequest) -> SentPartitions:
        response = await self._connection.hear(request, VERSION)
        assert self._standing.handle_response(response), response
        return {reply.partition_index: reply for topic in response.responses for reply in topic.partitions}

    async def ask(self, wait_ms: int = 0, max_bytes: int = 1 << 20) -> SentPartitions:
        return await self.hear(await self.say(wait_ms, max_bytes))


@asynccontextmanager
async def followed(directory: Path) -> AsyncIterator[tuple[Broker, Session]]:
    """A leader of three partitions, and a follower in sync that has asked twice: it has a session, and is seen."""
    async with (
        running_broker(directory, None, replica_lag_time_max_ms=FOR_EVER_MS) as broker,
        ClientConnection(broker) as line,
    ):
        await create(broker, "t", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            with_others(broker, "t", index, others=(FOLLOWER,), in_sync=2)
        while broker.replication._expected:  # no fetch is completed early for that any more
            await trio.sleep(0.001)
        session = Session(broker, line)
        await session.ask()
        assert await session.ask() == {}
        yield broker, session


async def write(broker: Broker, index: int) -> None:
    request = producing("t", 1, partition=index, acks=1)
    async with ClientConnection(broker) as connection:
        (reply,) = (await connection.ask(request, 9)).responses[0].partition_responses
        assert reply.error_code == 0


def sizes(reply: SentPartitions) -> dict[int, int]:
    return {index: len(result.records or b"") for index, result in reply.items()}


def must_fail(rule: Rule, directory: Path) -> None:
    async def within_limits() -> None:
        with trio.fail_after(1):
            await rule(directory)

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(within_limits)


async def what_is_written_between_two_fetches_comes_with_the_next(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        await write(broker, 1)
        response = await session.ask()
        assert list(response) == [1] and sizes(response)[1] > 0


async def what_is_written_while_a_fetch_waits_answers_it(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        await write(broker, 2)
        response = await session.hear(request)
        assert list(response) == [2] and sizes(response)[2] > 0


async def what_goes_wrong_with_a_fetch_that_waits_concerns_its_follower_only(directory: Path) -> None:
    """Who writes is answered, and the follower is sent away."""
    async with followed(directory) as (broker, session):
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        with mock.patch.object(ParkedFollower, "try_complete_for", side_effect=ZeroDivisionError):
            await write(broker, 2)
        with pytest.raises(AttributeError):  # of an answer that is None
            await session.hear(request)
        assert len(broker.purgatory) == 0 and not broker.purgatory._watchers


async def broker_waits(broker: Broker) -> None:
    """Until the follower's fetch is parked. Other operations of a young broker may wait, too."""
    while not any(isinstance(each, ParkedFollower) for _, _, each in broker.purgatory._deadlines):
        await trio.sleep(0.001)


async def where_a_follower_is_counts_at_once(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        await write(broker, 1)
        await session.ask()
        assert broker.partitions.get("t", 1).log.high_watermark == 0
        session.move(1, 1)
        response = await session.ask()
        assert broker.partitions.get("t", 1).log.high_watermark == 1
        assert {index: result.high_watermark for index, result in response.items()} == {1: 1}
        assert await session.ask() == {}


class WritesMore(DelayedOperation):
    """As a coordinator does: what follows upon a record is written when that record is committed."""

    def __init__(self, broker: Broker, committed: int, then: int) -> None:
        super().__init__()
        self._log = broker.partitions.get("t", committed).log
        self._broker = broker
        self._then = broker.partitions.get("t", then)

    def try_complete(self, key: Hashable) -> bool:
        if self._log.high_watermark == 0:
            return False
        self._then.append(build([Record(0, 0, None, b"more")]), 1, 0, AppendOrigin.COORDINATOR)
        self._broker.purgatory.notify(self._then)
        return True


async def what_is_written_because_a_follower_has_come_so_far_comes_at_once(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        for then in (1, 2):
            await write(broker, 1)
            await session.ask()
            broker.purgatory.park(WritesMore(broker, 1, then), (broker.partitions.get("t", 1),), FOR_EVER_S)
            session.move(1, broker.partitions.get("t", 1).log.log_end_offset)
            response = await session.ask(FOR_EVER_MS)
            assert sizes(response)[then] > 0
            session.move(then, broker.partitions.get("t", then).log.log_end_offset)
            await session.ask()


async def what_is_written_because_of_a_fetch_that_is_answered_comes_with_the_next(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        await write(broker, 1)
        await session.ask()
        await write(broker, 0)  # which the next fetch is answered with
        broker.purgatory.park(WritesMore(broker, 1, 2), (broker.partitions.get("t", 1),), FOR_EVER_S)
        session.move(1, 1)
        response = await session.ask()
        assert sizes(response)[0] > 0
        session.move(0, 1)
        heard = sizes(response) | sizes(await session.ask())
        assert heard[2] > 0


async def what_had_no_room_comes_next_time(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        for index in range(PARTITIONS):
            await write(broker, index)
        response = await session.ask(max_bytes=1)
        (first,) = [index for index, size in sizes(response).items() if size]
        session.move(first, 1)
        response = await session.ask(max_bytes=1)
        (second,) = [index for index, size in sizes(response).items() if size]
        session.move(second, 1)
        response = await session.ask()
        assert {first, second, *(index for index, size in sizes(response).items() if size)} == set(range(PARTITIONS))


async def another_leader_is_reported_until_the_partition_is_forgotten(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        led_by_another(broker, "t", 0)
        for reply in (await session.hear(request), await session.ask(FOR_EVER_MS)):
            assert [result.error_code for result in reply.values()] == [FencedLeaderEpoch.code]
        session.leave(0)
        assert await session.ask() == {}


async def nothing_is_left_of_what_is_forgotten(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        assert len(broker.purgatory._watchers) == PARTITIONS
        session.leave(0)
        assert await session.ask() == {}
        assert len(broker.purgatory._watchers) == PARTITIONS - 1
        await write(broker, 0)
        assert await session.ask() == {}
        session._standing.reset()
        broker.fetch_sessions._remove(next(iter(broker.fetch_sessions._sessions.values())))
        assert not broker.purgatory._watchers
        assert set(await session.ask()) == {1, 2}


async def who_is_gone_is_watched_for_no_longer_until_it_comes_back(directory: Path) -> None:
    async with followed(directory) as (broker, _):
        async with ClientConnection(broker) as line:
            other = Session(broker, line)
            await other.ask()
            await other.ask()
            await other.say(FOR_EVER_MS)
            await broker_waits(broker)
            assert {len(watchers) for watchers in broker.purgatory._watchers.values()} == {2}
        while {len(watchers) for watchers in broker.purgatory._watchers.values()} != {1}:
            await trio.sleep(0.001)
        async with ClientConnection(broker) as line:
            other._connection = line
            other._standing._epoch += 1  # as if it had heard the answer
            await write(broker, 1)
            assert set(await other.ask()) == {1}
            assert {len(watchers) for watchers in broker.purgatory._watchers.values()} == {2}


async def a_parked_fetch_is_answered_when_the_leader_gets_a_partition(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        session.leave(2)
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        replica = with_others(broker, "t", 2, others=(FOLLOWER,), in_sync=2)
        assert await session.hear(request) == {}
        assert not any(broker.replication.waiting.values())
        session.at[replica.topic_id, 2] = Position(0, -1, 0, replica.leader_epoch)
        assert set(await session.ask()) == {2}


async def what_a_round_appends_comes_in_one_answer(directory: Path) -> None:
    """Two requests of one connection that arrive together, for two partitions."""
    async with followed(directory) as (broker, session), ClientConnection(broker) as producer:
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        both = [producing("t", 1, partition=index, acks=1) for index in (0, 2)]
        await producer._stream.send_all(b"".join(request_frame(each, 9) for each in both))
        assert {index for index, size in sizes(await session.hear(request)).items() if size} == {0, 2}


async def what_one_fetch_commits_is_acknowledged_by_one_send(directory: Path) -> None:
    """Two requests of one connection wait for two partitions."""
    async with followed(directory) as (broker, session), ClientConnection(broker) as producer:
        both = [producing("t", 1, partition=index) for index in (0, 2)]
        await producer._stream.send_all(b"".join(request_frame(each, 9) for each in both))
        while len(broker.purgatory) < 2:
            await trio.sleep(0.001)
        assert {index for index, size in sizes(await session.ask()).items() if size} == {0, 2}
        session.move(0, 1)
        session.move(2, 1)
        sends: list[Connection] = []
        usual = Channel.flush

        def flush(channel: Channel, policy: SendPolicy) -> None:
            if channel.connection.outgoing:
                sends.append(channel.connection)
            usual(channel, policy)

        with mock.patch.object(Channel, "flush", flush):
            await session.ask()
            for each in both:
                assert (await producer.hear(each, 9)).responses[0].partition_responses[0].error_code == 0
        assert sorted(Counter(sends).values()) == [1, 1], "one for the follower, one for the producer"


RULES: list[Rule] = [
    what_a_round_appends_comes_in_one_answer,
    what_one_fetch_commits_is_acknowledged_by_one_send,
    who_is_gone_is_watched_for_no_longer_until_it_comes_back,
    a_parked_fetch_is_answered_when_the_leader_gets_a_partition,
    what_is_written_between_two_fetches_comes_with_the_next,
    what_is_written_while_a_fetch_waits_answers_it,
    what_goes_wrong_with_a_fetch_that_waits_concerns_its_follower_only,
    where_a_follower_is_counts_at_once,
    what_is_written_because_a_follower_has_come_so_far_comes_at_once,
    what_is_written_because_of_a_fetch_that_is_answered_comes_with_the_next,
    what_had_no_room_comes_next_time,
    another_leader_is_reported_until_the_partition_is_forgotten,
    nothing_is_left_of_what_is_forgotten,
]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds(rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_watch, "FULL_SCAN_S", FOR_EVER_S)
    on_trio(rule)(tmp_path)


@on_trio
async def test_everything_is_looked_at_once_in_a_while(tmp_path: Path) -> None:
    async with followed(tmp_path) as (broker, session):
        replica = broker.partitions.get("t", 1)
        assert replica.leadership is not None
        seen = replica.leadership.follower(FOLLOWER).fetched
        while replica.leadership.follower(FOLLOWER).fetched == seen:
            assert await session.ask(10) == {}


HURRIED = a_parked_fetch_is_answered_when_the_leader_gets_a_partition


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("fetch.complete_now()", "pass"),
        ("self._expect(replica.leadership)", "pass"),
        ("self._expected |= unheard", "pass"),
    ],
)
def test_a_follower_that_is_not_hurried_is_missed(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_watch, "FULL_SCAN_S", FOR_EVER_S)
    monkeypatch.setattr(broker_module, "ReplicaTransitions", planted(replication, right, wrong).ReplicaTransitions)
    must_fail(HURRIED, tmp_path)


def test_what_is_not_read_again_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_watch, "FULL_SCAN_S", FOR_EVER_S)
    monkeypatch.setattr(handler.PartitionReader, "is_stale", False)
    monkeypatch.setattr(Purgatory, "hold", lambda self: None)  # as if a task resumed the connection, outside of a round
    must_fail(what_is_written_because_a_follower_has_come_so_far_comes_at_once, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("self._purgatory.hold()", "pass", what_a_round_appends_comes_in_one_answer),
        ("self._purgatory.release()", "pass", what_is_written_while_a_fetch_waits_answers_it),
        ("self._outputs = outputs\n", "pass\n", what_one_fetch_commits_is_acknowledged_by_one_send),
        ("for channel in outputs:", "for channel in ():", what_is_written_while_a_fetch_waits_answers_it),
    ],
)
def test_a_round_that_is_not_looked_at_as_a_whole_is_noticed(
    right: str, wrong: str, rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_watch, "FULL_SCAN_S", FOR_EVER_S)
    monkeypatch.setattr(broker_module, "SocketServer", planted(network_server, right, wrong).SocketServer)
    must_fail(rule, tmp_path)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("self._purgatory.watch(replica, self)", "pass", what_is_written_between_two_fetches_comes_with_the_next),
    ("parked.try_complete_for(changed)", "pass", what_is_written_while_a_fetch_waits_answers_it),
    (
        "except Exception as mistake:",
        "except KeyError as mistake:",
        what_goes_wrong_with_a_fetch_that_waits_concerns_its_follower_only,
    ),
    (
        "self.dirty[asked.key] = asked\nif self.parked is not None:\n    self._notified.append(key)",
        "if self.parked is not None:\n    self._notified.append(key)",
        what_is_written_between_two_fetches_comes_with_the_next,
    ),
    (
        within("named", "self.dirty[asked.key] = asked"),
        "pass",
        where_a_follower_is_counts_at_once,
    ),
    ("{asked.key: asked for asked in left}", "{}", what_had_no_room_comes_next_time),
    ("self._purgatory.unwatch(replica, self)", "pass", nothing_is_left_of_what_is_forgotten),
    ("for key in list(self._replicas):", "for key in ():", nothing_is_left_of_what_is_forgotten),
    (
        'self._checked = float("-inf")\nfor key in list(self._replicas):\n    self.forget(key)',
        "for key in list(self._replicas):\n    self.forget(key)",
        who_is_gone_is_watched_for_no_longer_until_it_comes_back,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    right: str, wrong: str, rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken: ModuleType = planted(follower_watch, right, wrong)
    mistaken.FULL_SCAN_S = FOR_EVER_S  # type: ignore[attr-defined]
    monkeypatch.setattr(handler, "ChangedPartitions", mistaken.ChangedPartitions)
    must_fail(rule, tmp_path)
