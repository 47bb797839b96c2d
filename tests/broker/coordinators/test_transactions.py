"""Transactions, in a whole broker: what is committed is seen, whole; what is not, is not; and nothing hangs."""

from contextlib import suppress
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import trio
from mutants.plant import assert_noticed
from support.multi_replica import alone_again, with_others
from support.serving import ClientConnection, ask, on_trio
from support.transaction_requests import NAME, Refused, Who, Writer, add, commit_offsets, end, init, markers, produce
from support.transactional_broker import PARTITIONS, open_here, place, produced, seen, state, transacting

from trioka.broker.coordinators import transactions
from trioka.protocol.errors import (
    NONE,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
    TransactionCoordinatorFenced,
    UnknownServerError,
    UnstableOffsetCommit,
)
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.schema import Request

GENERATIONS = pytest.mark.parametrize("generation", [1, 2])
REQUEST_TIMEOUT_S = 20
PATIENCE_S, IDLE_BACKOFF_S = 50.0, 2.0  # for what must happen, and for what a planted mistake keeps from happening


# -- what is seen ------------------------------------------------------------------------------------------------------


@GENERATIONS
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(generation: int, tmp_path: Path) -> None:
    @on_trio
    async def test() -> None:
        async with transacting(tmp_path) as (broker, connection):
            writer = Writer(connection.ask, generation=generation)
            await writer.init()
            await writer.write(b"a", b"b")
            await writer.write(b"c", index=1)
            assert await seen(broker) == []
            assert await seen(broker, committed=False) == [b"a", b"b"]
            await writer.commit()
            assert await seen(broker) == [b"a", b"b"]
            assert await seen(broker, index=1) == [b"c"]
            await writer.write(b"d")
            await writer.abort()
            await writer.write(b"e")
            await writer.commit()
            assert await seen(broker) == [b"a", b"b", b"e"]
            assert await seen(broker, committed=False) == [b"a", b"b", b"d", b"e"]

    test()


@GENERATIONS
def test_offsets_count_when_the_transaction_is_committed(generation: int, tmp_path: Path) -> None:
    offsets_count_when_committed(transactions, generation, tmp_path)


def offsets_count_when_committed(module: ModuleType, generation: int, directory: Path) -> None:
    """G3"""

    @on_trio
    async def test() -> None:
        async with transacting(directory, module) as (broker, connection):
            writer = Writer(connection.ask, generation=generation)
            await writer.init()
            for offset, commit, expected in ((5, False, -1), (7, True, 7), (9, False, 7), (11, True, 11)):
                before = await place(broker, "g")
                await writer.commit_offsets({"t": {0: offset}})
                assert await place(broker, "g") == -UnstableOffsetCommit.code
                assert await place(broker, "g", stable=False) == before
                await (writer.commit() if commit else writer.abort())
                assert await place(broker, "g") == await place(broker, "g", stable=False) == expected

    test()


def test_a_marker_that_does_not_reach_the_group_is_noticed(tmp_path: Path) -> None:
    right, wrong = "broker.groups.on_txn_end(index, marker.producer, marker.is_commit)", "pass"
    assert_noticed(transactions, right, wrong, lambda m: offsets_count_when_committed(m, 2, tmp_path / m.__name__))


@on_trio
async def test_transactions_survive_a_new_start(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (broker, connection):
        writer = Writer(connection.ask)
        await writer.init()
        await writer.write(b"a")
        await writer.commit()
        await writer.write(b"b")
        await writer.commit_offsets({"t": {0: 3}})
    async with transacting(tmp_path) as (broker, connection):
        assert await state(broker) == "Ongoing"
        assert (await seen(broker), await place(broker, "g")) == ([b"a"], -UnstableOffsetCommit.code)
        writer._ask = connection.ask
        await writer.write(b"c")
        await writer.commit()
        assert (await seen(broker), await place(broker, "g")) == ([b"a", b"b", b"c"], 3)


# -- the end -----------------------------------------------------------------------------------------------------------


@on_trio
async def test_an_end_may_be_repeated_but_not_changed(tmp_path: Path) -> None:
    """T5"""
    async with transacting(tmp_path) as (_, connection):
        writer = Writer(connection.ask)
        before = await writer.init()
        await writer.write(b"a")
        after = await writer.commit()
        assert after == (before[0], before[1] + 1)
        for _ in range(3):
            again = await connection.ask(end(before, commit=True), 5)
            assert (again.error_code, again.producer_id, again.producer_epoch) == (NONE, *after)
        assert (await connection.ask(end(before, commit=False), 5)).error_code == InvalidTxnState.code
        await writer.write(b"b")
        assert (await connection.ask(end(before, commit=True), 5)).error_code == ProducerFenced.code


def test_a_decision_is_completed_by_the_next_coordinator(tmp_path: Path) -> None:
    verdicts_are_carried_out(transactions, tmp_path)


def verdicts_are_carried_out(module: ModuleType, directory: Path) -> None:
    """T4: the broker stops between the verdict and the markers, and begins again."""

    @on_trio
    async def test() -> None:
        async with transacting(directory, module) as (broker, connection):
            writer = Writer(connection.ask)
            await writer.init()
            for index in range(PARTITIONS):
                await writer.write(b"a", index=index)
            await writer.commit_offsets({"t": {0: 5}})
            broker.transactions._on_marker_request = lambda order: None
            await writer.commit()
            assert (await state(broker), await seen(broker)) == ("PrepareCommit", [])
            answer = await connection.ask(produce(writer.who, 0, b"b"), 12)
            assert produced(answer) == ConcurrentTransactions.code
        async with transacting(directory, module) as (broker, connection):
            assert await state(broker) == "CompleteCommit"
            assert [await seen(broker, index=index) for index in range(PARTITIONS)] == [[b"a"]] * PARTITIONS
            assert await place(broker, "g") == 5
            writer._ask = connection.ask
            await writer.write(b"b")
            await writer.abort()
            assert await seen(broker) == [b"a"]

    test()


VERDICT_MISTAKES = [
    ("on_marker_request=TxnMarkerSender(broker, RemoteMarkerWriter(broker)).order", "on_marker_request=None"),
    ("for partition in order.partitions:", "for partition in order.partitions[1:]:"),
    ("EndTxnMarker(marker.is_commit, marker.coordinator_epoch)", "EndTxnMarker(False, marker.coordinator_epoch)"),
]


@pytest.mark.parametrize(("right", "wrong"), VERDICT_MISTAKES)
def test_a_mistake_with_verdicts_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    assert_noticed(transactions, right, wrong, lambda m: verdicts_are_carried_out(m, tmp_path / m.__name__))


def test_nothing_is_marked_before_the_verdict_is_committed(tmp_path: Path) -> None:
    markers_follow_the_verdict(tmp_path, is_mistaken=False)


def test_a_mistake_with_the_order_of_things_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        markers_follow_the_verdict(tmp_path, is_mistaken=True)


def markers_follow_the_verdict(directory: Path, *, is_mistaken: bool) -> None:
    """T4: another replica must have the decision too, and is slow."""

    @on_trio
    async def test() -> None:
        async with transacting(directory) as (broker, connection):
            if is_mistaken:
                vars(broker.transactions)["_on_committed"] = lambda shard, then: then(None)
            writer = Writer(connection.ask)
            await writer.init()
            await writer.write(b"a")
            replica = with_others(broker, "__transaction_state", in_sync=2)
            await connection.say(end(writer.who, commit=True), 5)
            while replica.log.high_watermark == replica.log.log_end_offset:
                await trio.sleep(0.001)
            assert await open_here(broker) == {writer.who[0]}
            alone_again(broker, "__transaction_state")
            assert (await connection.hear(end(writer.who, commit=True), 5)).error_code == NONE
            assert await seen(broker) == [b"a"]

    test()


def test_a_marker_that_fails_is_tried_again(tmp_path: Path) -> None:
    markers_are_tried_again(transactions, tmp_path)


def markers_are_tried_again(module: ModuleType, directory: Path, patience_s: float = PATIENCE_S) -> None:
    @on_trio
    async def test() -> None:
        async with transacting(directory, module) as (broker, connection):
            writer = Writer(connection.ask)
            await writer.init()
            await writer.write(b"a")
            await writer.write(b"a", index=1)
            with_others(broker, "t", 1).min_in_sync = 2
            await writer.commit()
            assert (await state(broker), await seen(broker), await seen(broker, index=1)) == (
                "PrepareCommit",
                [b"a"],
                [],
            )
            alone_again(broker, "t", 1)
            with trio.fail_after(patience_s):
                while await state(broker) != "CompleteCommit":
                    await trio.sleep(0.01)
            assert await seen(broker, index=1) == [b"a"]

    test()


TRIED_MISTAKES = [
    ("self._broker.nursery.start_soon(self._again, order, partition, pause_s)", "pass"),
    ("error is None", "True"),
]


@pytest.mark.parametrize(("right", "wrong"), TRIED_MISTAKES)
def test_a_mistake_with_markers_that_fail_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    def rule(module: ModuleType) -> None:
        patience_s = PATIENCE_S if module is transactions else IDLE_BACKOFF_S
        markers_are_tried_again(module, tmp_path / module.__name__, patience_s)

    assert_noticed(transactions, right, wrong, rule)


def test_a_marker_that_is_not_replicated_in_time_is_written_again(tmp_path: Path) -> None:
    late_markers_are_written_again(transactions, tmp_path)


def late_markers_are_written_again(module: ModuleType, directory: Path, patience_s: float = PATIENCE_S) -> None:
    """After `request.timeout.ms`: another replica must have it too, and does not fetch it. The time passes only for
    those who wait: the broker itself needs as much of it as the machine takes."""

    @on_trio
    async def test() -> None:
        async with transacting(directory, module, request_timeout_ms=REQUEST_TIMEOUT_S * 1000) as (broker, connection):
            writer = Writer(connection.ask)
            await writer.init()
            await writer.write(b"a")
            replica = with_others(broker, "t", in_sync=2)
            await writer.commit()
            with trio.fail_after(patience_s):
                while replica.log.log_end_offset < 2:  # the record, and a marker
                    await trio.sleep(0.005)
                broker.purgatory.expire(broker.clock.now() + REQUEST_TIMEOUT_S)
                while replica.log.log_end_offset < 3:  # the marker again
                    await trio.sleep(0.005)
                assert await state(broker) == "PrepareCommit"
                alone_again(broker, "t")
                while await state(broker) != "CompleteCommit":
                    await trio.sleep(0.005)
            assert await seen(broker) == [b"a"]

    test()


def test_a_mistake_with_late_markers_is_noticed(tmp_path: Path) -> None:
    def rule(module: ModuleType) -> None:
        patience_s = PATIENCE_S if module is transactions else IDLE_BACKOFF_S
        late_markers_are_written_again(module, tmp_path / module.__name__, patience_s)

    assert_noticed(transactions, "broker.config[REQUEST_TIMEOUT_MS] / 1000", "30", rule)


@on_trio
async def test_a_partition_that_is_gone_needs_no_marker(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (broker, connection):
        writer = Writer(connection.ask)
        await writer.init()
        await writer.write(b"a")
        await writer.write(b"a", topic="u")
        await ask(
            broker,
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="u", topic_id=NULL_UUID)], timeout_ms=1000),
            6,
        )
        await writer.commit()
        assert (await state(broker), await seen(broker)) == ("CompleteCommit", [b"a"])


@GENERATIONS
def test_a_transaction_that_takes_too_long_is_aborted(generation: int, tmp_path: Path) -> None:
    @on_trio
    async def test() -> None:
        async with transacting(tmp_path) as (broker, connection):
            writer = Writer(connection.ask, generation=generation)
            for timeout_ms in (20, 500, 5000):  # on a slow machine, the first may be over before it has begun
                await writer.init(timeout_ms)
                with suppress(Refused):
                    await writer.write(b"a")
                    break
            while await state(broker) != "CompleteAbort":
                await trio.sleep(0.01)
            with pytest.raises(Refused) as refused:
                await writer.commit()
            assert refused.value.code == (InvalidTxnState.code if generation == 2 else ProducerFenced.code)
            assert (await seen(broker), await open_here(broker)) == ([], set())

    test()


@on_trio
async def test_markers_by_hand(tmp_path: Path) -> None:
    """T3: markers of an older coordinator are refused, and so are impossible ones."""
    async with transacting(tmp_path) as (broker, connection):
        writer = Writer(connection.ask)
        producer_id, epoch = await writer.init()
        await writer.write(b"a")

        async def mark(who: Who, coordinator_epoch: int, version: int) -> int:
            requested = markers(who, {"t": [0]}, commit=False, coordinator_epoch=coordinator_epoch, version=version)
            (result,) = (await connection.ask(requested, 2)).markers
            return int(result.topics[0].partitions[0].error_code)

        assert await mark((producer_id, epoch), 5, 2) == InvalidProducerEpoch.code
        assert await mark((producer_id, -1), 5, 0) != NONE
        assert await open_here(broker) == {producer_id}
        assert await mark((producer_id, epoch + 1), 5, 2) == NONE
        assert await mark((producer_id, epoch + 1), 5, 2) == NONE
        assert await mark((producer_id, epoch + 1), 4, 2) == TransactionCoordinatorFenced.code
        assert await open_here(broker) == set()


# -- many at once, and nonsense ----------------------------------------------------------------------------------------


@on_trio
async def test_many_producers_at_once(tmp_path: Path) -> None:
    """Each transaction writes its number to all partitions: they agree on which were committed."""
    async with transacting(tmp_path) as (broker, _):
        committed: set[bytes] = set()

        async def run(number: int) -> None:
            random = Random(number)
            async with ClientConnection(broker) as connection:
                writer = Writer(connection.ask, f"x{number}", generation=1 + number % 2)
                await writer.init()
                for n in range(8):
                    value = b"%d.%d" % (number, n)
                    for index in range(PARTITIONS):
                        await writer.write(value, index=index)
                    if random.random() < 0.6:
                        await writer.commit()
                        committed.add(value)
                    else:
                        await writer.abort()

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(run, number)
        for index in range(PARTITIONS):
            found = await seen(broker, index=index)
            assert (set(found), len(found)) == (committed, len(committed))
        assert not await open_here(broker)


def test_nonsense_is_answered_in_words_of_the_protocol(tmp_path: Path) -> None:
    nonsense_is_answered(transactions, tmp_path)


def test_a_mistake_with_nonsense_is_noticed(tmp_path: Path) -> None:
    right, wrong = "except NeedsProducerId:", "except ZeroDivisionError:"
    assert_noticed(transactions, right, wrong, lambda m: nonsense_is_answered(m, tmp_path / m.__name__))


def nonsense_is_answered(module: ModuleType, directory: Path) -> None:
    trio.run(answer_nonsense, module, directory)


async def answer_nonsense(module: ModuleType, directory: Path) -> None:
    """T8: never UNKNOWN_SERVER_ERROR, never a connection that is closed."""
    async with transacting(directory, module) as (_, connection):
        writer = Writer(connection.ask)
        who = await writer.init()
        await writer.write(b"a")
        random = Random(1)
        numbers = (-(2**63), -1, 0, 1, 2**62, who[0])
        epochs = (-32768, -1, 0, 1, 32766, 32767)
        for _ in range(400):
            nobody = (random.choice(numbers), random.choice(epochs))
            name = random.choice((NAME, NAME, "", "y", "\N{SNAKE}" * 100))
            request: Request
            request, version = random.choice(
                (
                    (init(name, random.choice((1, 60_000, 2**31 - 1, -1)), nobody), random.choice((3, 4, 5))),
                    (add(nobody, {"t": [0, -1], "": [1]}, name), random.choice((0, 1, 2, 3))),
                    (add(nobody, {"t": [0]}, name), 3),
                    (end(nobody, commit=random.random() < 0.5, name=name), random.choice((0, 2, 4, 5))),
                    (commit_offsets(nobody, {"t": {0: 5}}, name=name), random.choice((0, 3, 4, 5))),
                    (markers(nobody, {"t": [0], "u": [-5]}, commit=True, coordinator_epoch=-1), 1),
                    (
                        produce(nobody, random.choice((-1, 0, 5, 2**31 - 1)), b"v", name=name),
                        random.choice((3, 11, 12)),
                    ),
                )
            )
            answer = await connection.ask(request, version)
            assert answer is not None, request
            assert UnknownServerError.code not in codes(answer), request
            await trio.lowlevel.checkpoint()


def codes(answer: object) -> set[int]:
    """All error codes in an answer."""
    if isinstance(answer, list):
        return set().union(*map(codes, answer))
    fields = getattr(answer, "__fields__", ())
    found: set[int] = set()
    for field in fields:
        value = getattr(answer, field.name)
        found |= {value} if field.name.endswith("error_code") else codes(value)
    return found
