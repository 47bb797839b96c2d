"""Writes in a transaction: only to partitions that its coordinator has confirmed, in order, until it ends."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import trio
from mutants.plant import assert_noticed
from support.serving import ClientConnection, on_trio
from support.transaction_requests import Refused, Writer, add, end, produce
from support.transactional_broker import known_as_open, open_here, produced, seen, transacting

from trioka.broker.coordinators import txn_verification as verification
from trioka.protocol.errors import (
    NONE,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionAbortable,
)

GENERATIONS = pytest.mark.parametrize("generation", [1, 2])


# -- who may write -----------------------------------------------------------------------------------------------------


@GENERATIONS
def test_a_later_producer_fences_the_earlier_one(generation: int, tmp_path: Path) -> None:
    @on_trio
    async def test() -> None:
        async with transacting(tmp_path) as (broker, connection):
            zombie, writer = (Writer(connection.ask, generation=generation) for _ in range(2))
            await zombie.init()
            await zombie.write(b"lost")
            await writer.init()
            await writer.write(b"a")
            for attempt in (zombie.write(b"late"), zombie.commit(), zombie.commit_offsets({"t": {0: 1}})):
                with pytest.raises(Refused) as refused:
                    await attempt
                assert refused.value.code in (ProducerFenced.code, InvalidProducerEpoch.code)
            await writer.commit()
            assert await seen(broker) == [b"a"]

    test()


def test_a_late_write_opens_nothing(tmp_path: Path) -> None:
    late_writes_open_nothing(verification, tmp_path)


def late_writes_open_nothing(module: ModuleType, directory: Path) -> None:
    """T6, in both generations; the coordinator knows everything that is open (T7)."""

    @on_trio
    async def test() -> None:
        async with transacting(directory, module) as (broker, connection):
            old, new = Writer(connection.ask, "old", generation=1), Writer(connection.ask, "new")
            await old.init()
            await new.init()
            late = new.who
            for commit in (True, False):
                for writer in (old, new):
                    await writer.write(b"x")
                    await (writer.commit() if commit else writer.abort())
            refusals = [
                (old.who, 2, "old", 11, TransactionAbortable),
                (old.who, 2, "old", 10, InvalidTxnState),
                (old.who, 0, "old", 7, InvalidTxnState),
                (late, 1, "new", 12, InvalidProducerEpoch),
                (late, 0, "new", 11, InvalidProducerEpoch),
            ]
            for who, sequence, name, version, error in refusals:
                for index in (0, 1):
                    answer = await connection.ask(
                        produce(who, sequence, b"late", name=name, partitions=[index]), version
                    )
                    assert produced(answer) == error.code
                    assert await open_here(broker) <= await known_as_open(broker)
            for writer in (old, new):
                await writer.write(b"y")
                await writer.commit()
            assert not await open_here(broker)

    test()


LATE_MISTAKES = [
    ("generation is Generation.SECOND or self._broker.config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]", "False"),
    ("outcome.update(coordinator.verify_partitions(name, producer, requested))", "pass"),
    ("InvalidProducerEpoch(str(error))", "error"),
    (
        "if isinstance(error, TransactionAbortable) and generation is Generation.FIRST:",
        "if isinstance(error, TransactionAbortable):",
    ),
]


@pytest.mark.parametrize(("right", "wrong"), LATE_MISTAKES)
def test_a_mistake_with_late_writes_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    assert_noticed(verification, right, wrong, lambda m: late_writes_open_nothing(m, tmp_path / m.__name__))


def test_an_end_between_asking_and_writing_is_noticed(tmp_path: Path) -> None:
    guards_hold(verification, tmp_path)


def guards_hold(module: ModuleType, directory: Path) -> None:
    """T6: the coordinator is slow, and meanwhile another client ends the transaction."""

    @on_trio
    async def test() -> None:
        async with transacting(directory, module) as (broker, connection), ClientConnection(broker) as other:
            writer = Writer(connection.ask, generation=1)
            who = await writer.init()
            await connection.ask(add(who, {"t": [0]}), 3)
            usual = broker.transactions.submit_callback
            goes_on = trio.Event()

            def slow(name: str, decide: object, deliver: object) -> None:
                async def later() -> None:
                    await goes_on.wait()
                    deliver(response[0])  # type: ignore[operator]

                response: list[object] = []
                usual(name, decide, response.append)  # type: ignore[arg-type]
                broker.nursery.start_soon(later)

            vars(broker.transactions)["submit_callback"] = slow
            await connection.say(produce(who, 0, b"late"), 11)
            while not broker.verification._guards:
                await trio.sleep(0.001)
            assert (await other.ask(end(who, commit=False), 4)).error_code == NONE
            goes_on.set()
            answer = await connection.hear(produce(who, 0, b"late"), 11)
            assert produced(answer) == InvalidTxnState.code
            assert not await open_here(broker)
            del vars(broker.transactions)["submit_callback"]
            await writer.write(b"a")
            await writer.commit()
            assert await seen(broker) == [b"a"]

    test()


def test_a_mistake_with_guards_is_noticed(tmp_path: Path) -> None:
    right = "self._guards.pop((replica, replica.leader_epoch, producer_id), None)"
    assert_noticed(verification, right, "pass", lambda m: guards_hold(m, tmp_path / m.__name__))


@on_trio
async def test_a_write_that_waits_for_the_coordinator_is_written_as_it_came(tmp_path: Path) -> None:
    """The topic of transactions is flushed with each message: then nothing is known at once, and the buffer of the
    request is used for others before its records are written. The next write waits for the end of the transaction
    before, however long the disk takes for it."""
    async with transacting(tmp_path, add_partitions_to_txn_retry_backoff_max_ms=60_000) as (broker, connection):
        kept = broker.partitions.get("__transaction_state", 0).log
        kept.config = replace(kept.config, flush_messages=1)
        writer = Writer(connection.ask)
        await writer.init()
        for number in range(20):
            await writer.write(b"%d" % number * 50)
            await writer.write(b"u", topic="u")
            await writer.commit()
        assert await seen(broker) == [b"%d" % number * 50 for number in range(20)]


@on_trio
async def test_sequences_of_transactions(tmp_path: Path) -> None:
    """T1, T2: a retry has the offset of the first time, gaps are refused, and after 2^31 - 1 comes 0."""
    async with transacting(tmp_path) as (broker, connection):
        writer = Writer(connection.ask, generation=1)
        who = await writer.init()
        writer.sequences["t", 0] = 2**31 - 3
        for value in (b"a", b"b", b"c", b"d"):
            await writer.write(value)
        assert writer.sequences["t", 0] == 1
        again = await connection.ask(produce(who, 2**31 - 1, b"c"), 11)
        assert (produced(again), again.responses[0].partition_responses[0].base_offset) == (NONE, 2)
        assert produced(await connection.ask(produce(who, 2, b"e"), 11)) == OutOfOrderSequenceNumber.code
        await writer.commit()
        new = Writer(connection.ask, "new")
        await new.init()
        assert (
            produced(await connection.ask(produce(new.who, 5, b"e", name="new"), 12)) == OutOfOrderSequenceNumber.code
        )
        assert await seen(broker) == [b"a", b"b", b"c", b"d"]
