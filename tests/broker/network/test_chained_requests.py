"""Requests whose answer lets others go on: any number of them, one after the other; and what goes wrong with one of
them affects no other."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import trio
from mutants.plant import assert_noticed, within
from support.group_requests import join
from support.multi_replica import follow, leading
from support.serving import ClientConnection, ask, on_trio, request_frame, running_broker

from trioka.broker import broker as broker_file
from trioka.broker.broker import Broker
from trioka.broker.handlers import fetch as fetch_file
from trioka.broker.handlers import produce as produce_file
from trioka.broker.network import connection as connection_file
from trioka.broker.network import connection_factory
from trioka.broker.network import dispatch as dispatch_file
from trioka.broker.replication import commit_wait as committed_file
from trioka.cluster import purgatory as delayed_file
from trioka.protocol import batch
from trioka.protocol.errors import NONE, KafkaError, UnknownMemberId, UnknownServerError
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.record import Record
from trioka.protocol.schema import Request

CHAINED = 200  # connections; ninety were enough for a RecursionError
PRODUCE, FETCH, JOIN, LEAVE = 9, 11, 3, 1
IDLE_BACKOFF_S = 1.0


def produce(index: int, acks: int = 1) -> ProduceRequest:
    records = bytes(batch.build([Record(0, 1_700_000_000_000, None, b"x")]))
    partition = ProduceRequest.Topic.Partition(index=index, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=40_000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


def fetch(*indexes: int, min_bytes: int = 1) -> FetchRequest:
    requested = [
        FetchRequest.Topic.Partition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20) for each in indexes
    ]
    topics = [FetchRequest.Topic(topic="t", partitions=requested)]
    return FetchRequest(max_wait_ms=40_000, min_bytes=min_bytes, max_bytes=1 << 20, topics=topics)


def error_of(answer: ProduceResponse | None) -> int | None:
    return None if answer is None else answer.responses[0].partition_responses[0].error_code


async def joined(connection: ClientConnection, group: str) -> str:
    """The name of a member that is alone in its group. The coordinator may have to be made first."""
    while True:
        answer = await connection.ask(join(group), JOIN)
        if answer.error_code == NONE:
            member: str = answer.member_id
            return member
        await connection.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        await trio.sleep(0.001)


def leave(group: str, member: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, member_id=member)


@contextmanager
def made_of(module: ModuleType) -> Iterator[None]:
    """Brokers with the queues of a module."""
    name = "Purgatory" if hasattr(module, "Purgatory") else "Dispatch"
    with mock.patch.object(broker_file, name, getattr(module, name)):
        yield


@asynccontextmanager
async def waiting(
    directory: Path, module: ModuleType, *requests: tuple[FetchRequest, ProduceRequest | None]
) -> AsyncIterator[tuple[Broker, list[ClientConnection]]]:
    """Connections, each with a Fetch that waits and perhaps a Produce behind it."""
    with made_of(module):
        async with running_broker(directory) as broker, AsyncExitStack() as stack:
            await broker.create_missing_topics({"t": len(requests) + 1})
            connections = []
            for number, (fetched, behind) in enumerate(requests, 1):
                connection = await stack.enter_async_context(ClientConnection(broker))
                text = request_frame(fetched, FETCH)
                if behind is not None:  # in one piece: what comes later is not read before the Fetch is answered
                    text += request_frame(behind, PRODUCE)
                await connection._stream.send_all(text)
                while len(broker.purgatory) < number:
                    await trio.sleep(0.001)
                connections.append(connection)
            yield broker, connections


def test_one_record_may_set_off_a_long_chain_of_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chains_are_served(delayed_file, tmp_path)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def chains_are_served(module: ModuleType, directory: Path) -> None:
    @on_trio
    async def test() -> None:
        requests = [(fetch(number), produce(number + 1)) for number in range(CHAINED)]
        async with waiting(directory, module, *requests) as (broker, connections):
            assert error_of(await ask(broker, produce(0), PRODUCE)) == NONE
            for connection, (fetched, behind) in zip(connections, requests, strict=True):
                answer = await connection.hear(fetched, FETCH)
                assert answer is not None and answer.responses[0].partitions[0].high_watermark == 1
                assert error_of(await connection.hear(behind, PRODUCE)) == NONE
            assert broker.partitions.get("t", CHAINED).log.log_end_offset == 1

    test()


def test_one_member_that_leaves_may_set_off_a_long_chain_of_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chains_of_groups_are_served(dispatch_file, tmp_path)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def chains_of_groups_are_served(module: ModuleType, directory: Path) -> None:
    @on_trio
    async def test() -> None:
        with made_of(module):
            async with chained_groups(directory, CHAINED) as (first, leaving, connections):
                await first.ask(leaving, LEAVE)
                with trio.fail_after(IDLE_BACKOFF_S if module is not dispatch_file else 30.0):
                    for number, connection in enumerate(connections):
                        assert (await connection.hear(join(f"g{number}"), JOIN)).error_code == NONE

    test()


@asynccontextmanager
async def chained_groups(
    directory: Path, count: int
) -> AsyncIterator[tuple[ClientConnection, LeaveGroupRequest, list[ClientConnection]]]:
    """In each group a member waits to join until the other one leaves; behind that request, the other one of the next
    group leaves. Who sets it off, by which request, and the connections of those who wait."""
    async with running_broker(directory, None, group_initial_rebalance_delay_ms=0) as broker, AsyncExitStack() as stack:
        first = await stack.enter_async_context(ClientConnection(broker))
        leaves = [leave(f"g{number}", await joined(first, f"g{number}")) for number in range(count)]
        connections = []
        for number in range(count):
            connection = await stack.enter_async_context(ClientConnection(broker))
            text = request_frame(join(f"g{number}"), JOIN)
            if number + 1 < count:
                text += request_frame(leaves[number + 1], LEAVE)
            await connection._stream.send_all(text)
            connections.append(connection)
        await ask(broker, FindCoordinatorRequest(coordinator_keys=["g0"]), 4)  # by then, what has come before is read
        yield first, leaves[0], connections


def test_an_answered_fetch_is_not_answered_again_by_the_request_behind_it(tmp_path: Path) -> None:
    answers_are_given_once(delayed_file, tmp_path)


def answers_are_given_once(module: ModuleType, directory: Path) -> None:
    """It waits for two partitions. One of them wakes it, and the request behind it writes to the other."""

    @on_trio
    async def test() -> None:
        requests = (fetch(0, 1), produce(1))
        async with waiting(directory, module, requests) as (broker, (connection,)):
            assert error_of(await ask(broker, produce(0), PRODUCE)) == NONE
            assert (await connection.hear(requests[0], FETCH)).responses[0].partitions[1].high_watermark == 0
            assert error_of(await connection.hear(requests[1], PRODUCE)) == NONE

    test()


def test_a_checked_follower_is_notified_of_writes_of_the_same_round(tmp_path: Path) -> None:
    nothing_is_missed(delayed_file, tmp_path)


def nothing_is_missed(module: ModuleType, directory: Path) -> None:
    """One Fetch waits for two records. The first is not enough; the second is written by a request behind another
    Fetch, which the first record has answered."""

    @on_trio
    async def test() -> None:
        requests = [(fetch(0, min_bytes=100), None), (fetch(0), produce(0))]
        async with waiting(directory, module, *requests) as (broker, (patient, _)):
            assert error_of(await ask(broker, produce(0), PRODUCE)) == NONE
            with trio.fail_after(IDLE_BACKOFF_S if module is not delayed_file else 30.0):
                assert (await patient.hear(requests[0][0], FETCH)).responses[0].partitions[0].high_watermark == 2

    test()


def test_an_error_of_one_parked_request_affects_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mistakes_concern_one(delayed_file, tmp_path)
    assert [each.exc_info[0] for each in caplog.records if each.exc_info] == [ZeroDivisionError]


def mistakes_concern_one(module: ModuleType, directory: Path) -> None:
    """Three wait for the same partition; the second cannot be answered, and its client learns of that."""

    @on_trio
    async def test() -> None:
        requests = [(fetch(0), None)] * 3
        usual, looks = fetch_file._ParkedFetch.try_complete, []

        def try_complete(self: fetch_file._ParkedFetch, key: object) -> bool:
            looks.append(self)
            if len(looks) == 2:
                raise ZeroDivisionError
            return usual(self, key)

        async with waiting(directory, module, *requests) as (broker, connections):
            with mock.patch.object(fetch_file._ParkedFetch, "try_complete", try_complete):
                assert error_of(await ask(broker, produce(0), PRODUCE)) == NONE
            with trio.fail_after(IDLE_BACKOFF_S if module is not delayed_file else 30.0):
                answers = [await each.hear(fetch(0), FETCH) for each in connections]
            assert [answer is None for answer in answers] == [False, True, False]
            assert len(broker.purgatory) == 0

    test()


def test_an_error_at_a_timeout_affects_no_other_request(tmp_path: Path) -> None:
    late_mistakes_concern_one(delayed_file, tmp_path)


def late_mistakes_concern_one(module: ModuleType, directory: Path) -> None:
    @on_trio
    async def test() -> None:
        requests = [(fetch(0), None)] * 3
        usual, ends = fetch_file._ParkedFetch.expire, []

        def expire(self: fetch_file._ParkedFetch) -> None:
            ends.append(self)
            if len(ends) == 2:
                raise ZeroDivisionError
            usual(self)

        async with waiting(directory, module, *requests) as (broker, connections):
            with mock.patch.object(fetch_file._ParkedFetch, "expire", expire):
                broker.purgatory.expire(broker.clock.now() + 60)
            answers = [await each.hear(fetch(0), FETCH) for each in connections]
            assert [answer is None for answer in answers] == [False, True, False]

    test()


@on_trio
async def test_what_goes_wrong_with_a_produce_that_waits_closes_its_connection_and_no_other(tmp_path: Path) -> None:
    """Two wait for one partition; one fetch of a follower completes both. Only replicated records are acknowledged."""
    async with (
        leading(tmp_path) as (broker, replica),
        ClientConnection(broker) as unlucky,
        ClientConnection(broker) as other,
    ):
        usual = produce_file._ParkedProduce.try_complete
        failed: list[produce_file._ParkedProduce] = []

        def try_complete(self: produce_file._ParkedProduce, key: object) -> bool:
            if not failed:
                failed.append(self)
                raise ZeroDivisionError
            return usual(self, key)

        for number, connection in enumerate((unlucky, other), 1):
            await connection.say(produce(0, acks=-1), PRODUCE)
            while len(broker.purgatory) < number:
                await trio.sleep(0.001)
        with mock.patch.object(produce_file._ParkedProduce, "try_complete", try_complete):
            await follow(broker, 2)
        assert error_of(await unlucky.hear(produce(0), PRODUCE)) is None
        assert error_of(await other.hear(produce(0), PRODUCE)) == NONE
        assert replica.log.high_watermark == 2 and len(broker.purgatory) == 0


@on_trio
async def test_the_error_of_a_commit_reaches_each_waiter_once(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, replica):
        result: list[KafkaError | None] = []
        commit = committed_file._Commit(replica, 1, result.append)
        with mock.patch.object(type(replica), "commit_status", side_effect=ZeroDivisionError):
            broker.park(commit, (replica,), broker.clock.now() + 60)
            broker.purgatory.notify(replica)
        broker.purgatory.notify(replica)
        broker.purgatory.expire(broker.clock.now() + 120)
        assert [type(error) for error in result] == [UnknownServerError]


def test_an_error_after_a_response_affects_no_other_request(tmp_path: Path) -> None:
    mistakes_behind_an_answer_concern_one(connection_file, tmp_path)


def mistakes_behind_an_answer_concern_one(module: ModuleType, directory: Path) -> None:
    """Three members wait, each for a request of the one before. What stands behind the second one cannot be served."""
    vars(module)["PENDING"] = connection_file.PENDING  # which handlers return

    @on_trio
    async def test() -> None:
        usual = dispatch_file.Route.decode

        def decode(self: dispatch_file.Route, frame: memoryview, body: int) -> Request:
            request = usual(self, frame, body)
            if isinstance(request, LeaveGroupRequest) and request.group_id == "g2":
                raise ZeroDivisionError
            return request

        with mock.patch.object(connection_factory, "Connection", module.Connection):
            async with chained_groups(directory, 3) as (first, leaving, connections):
                with mock.patch.object(dispatch_file.Route, "decode", decode):
                    assert (await first.ask(leaving, LEAVE)).error_code == NONE
                    assert (await connections[0].hear(join("g0"), JOIN)).error_code == NONE
                    assert (await connections[0].hear(leaving, LEAVE)).error_code == NONE
                    assert await connections[1].hear(join("g1"), JOIN) is None
                assert (await first.ask(leaving, LEAVE)).error_code == UnknownMemberId.code  # it is still served

    test()


Rule = Callable[[ModuleType, Path], None]

LOOK = "if not (self._is_completing or self._is_held):\n    self._complete_notified()"
GUARD = "self.cancel(waiter)\nwaiter.fail(mistake)"
NOTED = "key not in self._queues and key not in self._watchers"
MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (dispatch_file, "        if self._is_resuming:\n            return\n", "", chains_of_groups_are_served),
    (delayed_file, LOOK, LOOK.replace("self._is_completing or self._is_held", "self._is_held"), answers_are_given_once),
    (delayed_file, "self._notified[key] = None\n" + LOOK, LOOK, nothing_is_missed),
    (delayed_file, NOTED + " and not self._is_completing", NOTED, nothing_is_missed),
    (delayed_file, GUARD, "self.cancel(waiter)\nraise\nwaiter.fail(mistake)", mistakes_concern_one),
    (delayed_file, GUARD, "continue\nwaiter.fail(mistake)", mistakes_concern_one),
    (
        delayed_file,
        "try:\n    waiter.expire()\nexcept Exception as mistake:\n    waiter.fail(mistake)",
        "try:\n    waiter.expire()\nexcept KeyError as mistake:\n    waiter.fail(mistake)",
        late_mistakes_concern_one,
    ),
    (
        connection_file,
        within("Connection.resume_serving", "except Exception as mistake:"),
        "except KeyError as mistake:",
        mistakes_behind_an_answer_concern_one,
    ),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule, tmp_path: Path) -> None:
    assert_noticed(module, right, wrong, lambda m: rule(m, tmp_path / m.__name__))
