"""A leader looks at what has changed, of the partitions that a follower has in its session, and misses nothing.

The look at all of them that comes once in a while is put off for the length of these tests: it would hide a mistake.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import trio
from mutants.plant import planted
from support.multi_replica import led_by_another, with_others
from support.serving import Asking, on_trio, running_broker
from support.topic_requests import create, producing

from trioka.broker import broker as broker_module
from trioka.broker.broker import Broker
from trioka.broker.handlers import fetch as handler
from trioka.broker.replication import follower_session as follower_watch
from trioka.broker.replication import transitions as replication
from trioka.broker.replication.fetch_session_client import VERSION, Key, Limits, Position, StandingFetch
from trioka.cluster.purgatory import Waiter
from trioka.protocol.batch import build
from trioka.protocol.errors import FencedLeaderEpoch
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.record import Record
from trioka.storage.append_validation import Origin

FOLLOWER = 2
PARTITIONS = 3
FOR_EVER_MS = 600_000
FOR_EVER_S = 1e9
Told = dict[int, FetchResponse.Topic.Partition]
Rule = Callable[[Path], Awaitable[None]]


class Session:
    """A follower, as far as its questions go."""

    def __init__(self, broker: Broker, connection: Asking) -> None:
        self._connection = connection
        self._standing = StandingFetch(FOLLOWER)
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

    async def hear(self, request: FetchRequest) -> Told:
        response = await self._connection.hear(request, VERSION)
        assert self._standing.answered(response), response
        return {told.partition_index: told for topic in response.responses for told in topic.partitions}

    async def ask(self, wait_ms: int = 0, max_bytes: int = 1 << 20) -> Told:
        return await self.hear(await self.say(wait_ms, max_bytes))


@asynccontextmanager
async def followed(directory: Path) -> AsyncIterator[tuple[Broker, Session]]:
    """A leader of three partitions, and a follower in sync that has asked twice: it has a session, and is seen."""
    async with running_broker(directory, None, replica_lag_time_max_ms=FOR_EVER_MS) as broker, Asking(broker) as line:
        await create(broker, "t", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            with_others(broker, "t", index, others=(FOLLOWER,), in_sync=2)
        while broker.replication._expected:  # nobody is hurried for that any more
            await trio.sleep(0.001)
        session = Session(broker, line)
        await session.ask()
        assert await session.ask() == {}
        yield broker, session


async def write(broker: Broker, index: int) -> None:
    request = producing("t", 1, partition=index, acks=1)
    async with Asking(broker) as connection:
        (told,) = (await connection.ask(request, 9)).responses[0].partition_responses
        assert told.error_code == 0


def sizes(told: Told) -> dict[int, int]:
    return {index: len(result.records or b"") for index, result in told.items()}


def must_fail(rule: Rule, directory: Path) -> None:
    async def within_limits() -> None:
        with trio.fail_after(1):
            await rule(directory)

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(within_limits)


async def what_is_written_between_two_fetches_comes_with_the_next(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        await write(broker, 1)
        told = await session.ask()
        assert list(told) == [1] and sizes(told)[1] > 0


async def what_is_written_while_a_fetch_waits_answers_it(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        await write(broker, 2)
        told = await session.hear(request)
        assert list(told) == [2] and sizes(told)[2] > 0


async def what_goes_wrong_with_a_fetch_that_waits_concerns_its_follower_only(directory: Path) -> None:
    """Who writes is answered, and the follower is sent away."""
    async with followed(directory) as (broker, session):
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        with mock.patch.object(handler._ParkedFollower, "look", side_effect=ZeroDivisionError):
            await write(broker, 2)
        with pytest.raises(AttributeError):  # of an answer that is None
            await session.hear(request)
        assert len(broker.delayed) == 0 and not broker.delayed._watchers


async def broker_waits(broker: Broker) -> None:
    while not len(broker.delayed):
        await trio.sleep(0.001)


async def where_a_follower_is_counts_at_once(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        await write(broker, 1)
        await session.ask()
        assert broker.partitions.get("t", 1).log.high_watermark == 0
        session.move(1, 1)
        told = await session.ask()
        assert broker.partitions.get("t", 1).log.high_watermark == 1
        assert {index: result.high_watermark for index, result in told.items()} == {1: 1}
        assert await session.ask() == {}


class WritesMore(Waiter):
    """As a coordinator does: what follows upon a record is written when that record is committed."""

    def __init__(self, broker: Broker, committed: int, then: int) -> None:
        super().__init__()
        self._log = broker.partitions.get("t", committed).log
        self._broker = broker
        self._then = broker.partitions.get("t", then)

    def look(self, key: Hashable) -> bool:
        if self._log.high_watermark == 0:
            return False
        self._then.append(build([Record(0, 0, None, b"more")]), 1, 0, Origin.COORDINATOR)
        self._broker.delayed.touch(self._then)
        return True


async def what_is_written_because_a_follower_has_come_so_far_comes_at_once(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        for then in (1, 2):
            await write(broker, 1)
            await session.ask()
            broker.delayed.park(WritesMore(broker, 1, then), (broker.partitions.get("t", 1),), FOR_EVER_S)
            session.move(1, broker.partitions.get("t", 1).log.log_end_offset)
            told = await session.ask(FOR_EVER_MS)
            assert sizes(told)[then] > 0
            session.move(then, broker.partitions.get("t", then).log.log_end_offset)
            await session.ask()


async def what_is_written_because_of_a_fetch_that_is_answered_comes_with_the_next(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        await write(broker, 1)
        await session.ask()
        await write(broker, 0)  # which the next fetch is answered with
        broker.delayed.park(WritesMore(broker, 1, 2), (broker.partitions.get("t", 1),), FOR_EVER_S)
        session.move(1, 1)
        told = await session.ask()
        assert sizes(told)[0] > 0
        session.move(0, 1)
        heard = sizes(told) | sizes(await session.ask())
        assert heard[2] > 0


async def what_had_no_room_comes_next_time(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        for index in range(PARTITIONS):
            await write(broker, index)
        told = await session.ask(max_bytes=1)
        (first,) = [index for index, size in sizes(told).items() if size]
        session.move(first, 1)
        told = await session.ask(max_bytes=1)
        (second,) = [index for index, size in sizes(told).items() if size]
        session.move(second, 1)
        told = await session.ask()
        assert {first, second, *(index for index, size in sizes(told).items() if size)} == set(range(PARTITIONS))


async def another_leader_is_told_of_as_long_as_it_is_asked_for(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        led_by_another(broker, "t", 0)
        for told in (await session.hear(request), await session.ask(FOR_EVER_MS)):
            assert [result.error_code for result in told.values()] == [FencedLeaderEpoch.code]
        session.leave(0)
        assert await session.ask() == {}


async def nothing_is_left_of_what_is_forgotten(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        assert len(broker.delayed._watchers) == PARTITIONS
        session.leave(0)
        assert await session.ask() == {}
        assert len(broker.delayed._watchers) == PARTITIONS - 1
        await write(broker, 0)
        assert await session.ask() == {}
        session._standing.begin_anew()
        broker.fetch_sessions._remove(next(iter(broker.fetch_sessions._sessions.values())))
        assert not broker.delayed._watchers
        assert set(await session.ask()) == {1, 2}


async def who_is_gone_is_watched_for_no_longer_until_it_comes_back(directory: Path) -> None:
    async with followed(directory) as (broker, _):
        async with Asking(broker) as line:
            other = Session(broker, line)
            await other.ask()
            await other.ask()
            await other.say(FOR_EVER_MS)
            await broker_waits(broker)
            assert {len(watchers) for watchers in broker.delayed._watchers.values()} == {2}
        while {len(watchers) for watchers in broker.delayed._watchers.values()} != {1}:
            await trio.sleep(0.001)
        async with Asking(broker) as line:
            other._connection = line
            other._standing._epoch += 1  # as if it had heard the answer
            await write(broker, 1)
            assert set(await other.ask()) == {1}
            assert {len(watchers) for watchers in broker.delayed._watchers.values()} == {2}


async def who_waits_when_a_partition_is_led_anew_is_answered_and_may_ask_for_it(directory: Path) -> None:
    async with followed(directory) as (broker, session):
        session.leave(2)
        request = await session.say(FOR_EVER_MS)
        await broker_waits(broker)
        replica = with_others(broker, "t", 2, others=(FOLLOWER,), in_sync=2)
        assert await session.hear(request) == {}
        assert not any(broker.replication.waiting.values())
        session.at[replica.topic_id, 2] = Position(0, -1, 0, replica.leader_epoch)
        assert set(await session.ask()) == {2}


RULES: list[Rule] = [
    who_is_gone_is_watched_for_no_longer_until_it_comes_back,
    who_waits_when_a_partition_is_led_anew_is_answered_and_may_ask_for_it,
    what_is_written_between_two_fetches_comes_with_the_next,
    what_is_written_while_a_fetch_waits_answers_it,
    what_goes_wrong_with_a_fetch_that_waits_concerns_its_follower_only,
    where_a_follower_is_counts_at_once,
    what_is_written_because_a_follower_has_come_so_far_comes_at_once,
    what_is_written_because_of_a_fetch_that_is_answered_comes_with_the_next,
    what_had_no_room_comes_next_time,
    another_leader_is_told_of_as_long_as_it_is_asked_for,
    nothing_is_left_of_what_is_forgotten,
]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds(rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_watch, "LOOK_AT_ALL_S", FOR_EVER_S)
    on_trio(rule)(tmp_path)


@on_trio
async def test_everything_is_looked_at_once_in_a_while(tmp_path: Path) -> None:
    async with followed(tmp_path) as (broker, session):
        replica = broker.partitions.get("t", 1)
        assert replica.leadership is not None
        seen = replica.leadership.follower(FOLLOWER).fetched
        while replica.leadership.follower(FOLLOWER).fetched == seen:
            assert await session.ask(10) == {}


HURRIED = who_waits_when_a_partition_is_led_anew_is_answered_and_may_ask_for_it


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("fetch.hurry()", "pass"), ("self._expect(replica.leadership)", "pass"), ("self._expected |= unheard", "pass")],
)
def test_a_follower_that_is_not_hurried_is_missed(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_watch, "LOOK_AT_ALL_S", FOR_EVER_S)
    monkeypatch.setattr(broker_module, "Replication", planted(replication, right, wrong).Replication)
    must_fail(HURRIED, tmp_path)


def test_what_is_not_read_again_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_watch, "LOOK_AT_ALL_S", FOR_EVER_S)
    monkeypatch.setattr(handler._Reading, "has_become_stale", False)
    must_fail(what_is_written_because_a_follower_has_come_so_far_comes_at_once, tmp_path)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("self._delayed.watch(replica, self)", "pass", what_is_written_between_two_fetches_comes_with_the_next),
    ("parked.look(key)", "pass", what_is_written_while_a_fetch_waits_answers_it),
    (
        "except Exception as mistake:",
        "except KeyError as mistake:",
        what_goes_wrong_with_a_fetch_that_waits_concerns_its_follower_only,
    ),
    (
        "            self.news[asked.key] = asked\n",
        "            pass\n",
        what_is_written_between_two_fetches_comes_with_the_next,
    ),
    (
        "        self.news[asked.key] = asked\n\n    def forget",
        "        pass\n\n    def forget",
        where_a_follower_is_counts_at_once,
    ),
    ("{asked.key: asked for asked in left}", "{}", what_had_no_room_comes_next_time),
    ("self._delayed.unwatch(replica, self)", "pass", nothing_is_left_of_what_is_forgotten),
    ("for key in list(self._replicas):", "for key in ():", nothing_is_left_of_what_is_forgotten),
    (
        '        self._looked = float("-inf")\n        for',
        "        for",
        who_is_gone_is_watched_for_no_longer_until_it_comes_back,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    right: str, wrong: str, rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken: ModuleType = planted(follower_watch, right, wrong)
    mistaken.LOOK_AT_ALL_S = FOR_EVER_S  # type: ignore[attr-defined]
    monkeypatch.setattr(handler, "FollowerWatch", mistaken.FollowerWatch)
    must_fail(rule, tmp_path)
