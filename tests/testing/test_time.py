"""Time that a test adds: everything that falls due happens, in its order, before `advance` returns."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from types import ModuleType
from unittest import mock

import pytest
import trio
from kafka import KafkaProducer
from kafka.errors import KafkaError
from mutants.plant import assert_noticed

from trioka.cli.client.connection import Connection
from trioka.protocol.errors import NONE, TransactionalIdNotFound, UnknownMemberId
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest
from trioka.testing import Broker, clock
from trioka.testing.clock_control import Clock
from trioka.testing.nodes import node

PATIENCE_S = 60.0
MINUTE_MS = 60_000  # times are in minutes here: a slow machine adds seconds of its own
BEFORE_IDS_ARE_REQUIRED = 3  # of JoinGroup


def connect(kafka: Broker) -> Connection:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    return Connection(host, int(port), timeout_s=PATIENCE_S)


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    """Closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


def test_old_records_are_forgotten_when_they_are_old_and_not_before(
    kafka: Broker, kafka_clock: Clock, kafka_topic: str
) -> None:
    kafka.produce(kafka_topic, "old")
    kafka_clock.advance("6d")
    kafka.produce(kafka_topic, "new")  # keeps its segment, and what is in it
    kafka_clock.advance(timedelta(days=2))
    assert [each.value for each in kafka.records(kafka_topic)] == [b"old", b"new"]
    kafka_clock.advance("6d")
    assert kafka.records(kafka_topic) == []
    assert kafka.produce(kafka_topic, "next") == [2]


def test_the_clock_says_what_was_added_and_does_not_go_back(kafka_clock: Clock) -> None:
    before = kafka_clock.now()
    kafka_clock.advance("90s")
    kafka_clock.advance(0.5)
    assert kafka_clock.now() - before >= timedelta(seconds=90.4)
    with pytest.raises(ValueError, match="does not go back"):
        kafka_clock.advance(timedelta(seconds=-1))
    with pytest.raises(ValueError, match="no length of time"):
        kafka_clock.advance("soon")


def test_a_member_that_says_nothing_is_dismissed(kafka: Broker, kafka_clock: Clock, connections: ExitStack) -> None:
    connection = connections.enter_context(closing(connect(kafka)))
    member = in_group(connection, session_timeout_ms=30 * MINUTE_MS)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    kafka_clock.advance("29m")
    assert connection.ask(heartbeat).error_code == NONE
    kafka_clock.advance("29m")
    assert connection.ask(heartbeat).error_code == NONE
    kafka_clock.advance("31m")
    assert connection.ask(heartbeat).error_code == UnknownMemberId.code


def in_group(connection: Connection, session_timeout_ms: int) -> str:
    """The only member of group g, in its first generation."""
    connection.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    joined = connection.ask(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=30 * MINUTE_MS,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        ),
        BEFORE_IDS_ARE_REQUIRED,
    )
    assert joined.error_code == NONE
    synced = connection.ask(
        SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[]),
        3,
    )
    assert synced.error_code == NONE
    return str(joined.member_id)


def test_committed_offsets_expire(kafka: Broker, kafka_clock: Clock, kafka_topic: str, connections: ExitStack) -> None:
    kafka.produce(kafka_topic, "a")
    connection = connections.enter_context(closing(connect(kafka)))
    connection.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    Topic = OffsetCommitRequest.Topic
    partitions = [Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")]
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[Topic(name=kafka_topic, partitions=partitions)])
    assert connection.ask(request, 8).topics[0].partitions[0].error_code == NONE
    kafka_clock.advance("6d")
    kafka.wait_group("g")
    kafka_clock.advance("2d")
    with pytest.raises(TimeoutError, match="committed nothing"):
        kafka.wait_group("g", timeout=0)


def test_a_transaction_that_takes_too_long_is_aborted(kafka: Broker, kafka_clock: Clock, kafka_topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id="t", transaction_timeout_ms=10 * MINUTE_MS
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(kafka_topic, b"of the transaction").get(PATIENCE_S)
    kafka.produce(kafka_topic, "behind it")
    assert kafka.records(kafka_topic, committed=True) == []
    kafka_clock.advance("12m")
    assert [each.value for each in kafka.records(kafka_topic, committed=True)] == [b"behind it"]
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    producer.close()


def what_follows_happens_after_what_it_follows(module: ModuleType) -> None:
    """An id is forgotten a week after its transaction was aborted, after ten minutes, all within eight days."""
    with mock.patch.object(node, "MovableClock", module.MovableClock), Broker() as kafka:
        producer = KafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id="t", transaction_timeout_ms=10 * MINUTE_MS
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x").get(PATIENCE_S)
        kafka.clock.advance("8d")
        connection = connect(kafka)
        try:
            (result,) = connection.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
            assert result.error_code == TransactionalIdNotFound.code
        finally:
            connection.close()
            producer.close(timeout=0)


def in_time(module: ModuleType, test: Callable[[clock.MovableClock], Awaitable[None]]) -> None:
    """Runs `test(clock)` on a clock of its own."""
    movable = module.MovableClock()
    trio.run(test, movable, clock=movable)


def each_deadline_has_its_turn(module: ModuleType) -> None:
    async def test(movable: clock.MovableClock) -> None:
        turns = []

        async def chain() -> None:
            while True:
                await trio.sleep(60)
                turns.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(chain)
            await movable.advance(3600, lambda: False)
            assert 59 <= len(turns) <= 60  # the machine's own time goes on, too
            nursery.cancel_scope.cancel()

    in_time(module, test)


def threads_are_waited_for(module: ModuleType) -> None:
    async def test(movable: clock.MovableClock) -> None:
        done = []
        limiter = trio.to_thread.current_default_thread_limiter()

        async def chore() -> None:
            await trio.sleep(60)
            await trio.to_thread.run_sync(time.sleep, 0.1)
            done.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(chore)
            await movable.advance(61, lambda: limiter.borrowed_tokens > 0)
            assert done

    in_time(module, test)


def both_clocks_move(module: ModuleType) -> None:
    async def test(movable: clock.MovableClock) -> None:
        now, now_ms, trios = movable.now(), movable.now_ms(), trio.current_time()
        await movable.advance(3600, lambda: False)
        assert movable.now() - now >= 3600
        assert trio.current_time() - trios >= 3600
        assert movable.now_ms() - now_ms >= 3_599_000

    in_time(module, test)


Rule = Callable[[ModuleType], None]

MISTAKES: list[tuple[str, str, Rule]] = [
    ("STEPS: Final = 250", "STEPS: Final = 1", each_deadline_has_its_turn),
    ("STEPS: Final = 250", "STEPS: Final = 1", what_follows_happens_after_what_it_follows),
    ("        while is_busy():", "        while False:", threads_are_waited_for),
    (
        "await _wait_until_idle(is_busy, cushion_s)  # who has not gone to sleep yet has no "
        "deadline\n"
        "goal, grain = self._ahead_s + seconds, seconds / steps",
        "goal, grain = self._ahead_s + seconds, seconds / steps",
        each_deadline_has_its_turn,
    ),
    ("time.time_ns() // 1_000_000 + int(self._ahead_s * 1000)", "time.time_ns() // 1_000_000", both_clocks_move),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(clock, right, wrong, rule)
