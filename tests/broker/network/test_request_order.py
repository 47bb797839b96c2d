"""The order of a connection: what waits holds up what is behind it, but for a Produce behind Produces that are appended
(the docstring of broker/network/connection.py has the rule)."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import trio
from mutants.plant import assert_noticed
from support.multi_replica import alone_again, with_others
from support.serving import ClientConnection, on_trio
from support.transaction_requests import Writer, end, produce
from support.transactional_broker import produced, seen, state, transacting

from trioka.broker.broker import Broker
from trioka.broker.handlers import produce as produce_file
from trioka.broker.network import connection as connection_file
from trioka.broker.network import connection_factory
from trioka.protocol.errors import NONE
from trioka.protocol.messages.produce import ProduceRequest

PATIENCE_S, IDLE_BACKOFF_S = 50.0, 1.0  # for what must happen, and for what a planted mistake keeps from happening
BY_NAME = 12  # the last version of Produce that names topics, and the first of the second generation


@contextmanager
def made_of(module: ModuleType) -> Iterator[float]:
    """Brokers whose connections, or whose handler of Produce, are those of a module. How long to wait for them."""
    is_handler = hasattr(module, "produce")
    if not is_handler:
        vars(module)["PENDING"] = connection_file.PENDING  # which handlers return
    where, name = (produce_file, "produce") if is_handler else (connection_factory, "Connection")
    with mock.patch.object(where, name, getattr(module, name)):
        yield PATIENCE_S if module in (connection_file, produce_file) else IDLE_BACKOFF_S


class Coordinator:
    """The answers of a broker's coordinator of transactions: the first is held back until a test lets it go."""

    def __init__(self, broker: Broker) -> None:
        self.on_request = trio.Event()
        self._usual = broker.transactions.submit_callback
        self._held: list[Callable[[], None]] = []

    def submit_callback(self, name: str, decide: Any, deliver: Callable[[Any], None]) -> None:
        if self.on_request.is_set():
            self._usual(name, decide, deliver)
            return
        self.on_request.set()
        self._usual(name, decide, lambda response: self._held.append(lambda: deliver(response)))

    def answer(self) -> None:
        for each in self._held:
            each()


@asynccontextmanager
async def writing(directory: Path) -> AsyncIterator[tuple[Broker, ClientConnection, Writer, Coordinator]]:
    """A producer whose first write the coordinator has not confirmed yet. Another has written before, through the same
    connection, and its requests are in a fast path."""
    async with transacting(directory) as (broker, connection):
        for number in range(4):
            assert produced(await connection.ask(plain(b"%d" % number), BY_NAME)) == NONE
        writer = Writer(connection.ask)
        await writer.init()
        for number in range(4):
            assert produced(await connection.ask(plain(b"%d" % number), BY_NAME)) == NONE
        coordinator = Coordinator(broker)
        with mock.patch.dict(vars(broker.transactions), submit_callback=coordinator.submit_callback):
            yield broker, connection, writer, coordinator


def plain(value: bytes, index: int = 1) -> ProduceRequest:
    return produce((-1, -1), -1, value, partitions=[index], name=None, transactional=False)


BEHIND: dict[str, Callable[[Writer], ProduceRequest]] = {
    "of the transaction": lambda writer: produce(writer.who, 1, b"second"),
    "of no transaction": lambda writer: plain(b"second", index=0),
    "of a fast path": lambda writer: plain(b"last"),
}


@pytest.mark.parametrize("behind", BEHIND)
def test_a_produce_does_not_pass_one_that_waits_for_its_coordinator(behind: str, tmp_path: Path) -> None:
    nothing_passes_what_is_not_appended(connection_file, tmp_path, behind)


def nothing_passes_what_is_not_appended(
    module: ModuleType, directory: Path, behind: str = "of the transaction"
) -> None:
    @on_trio
    async def test() -> None:
        with made_of(module):
            async with writing(directory) as (broker, connection, writer, coordinator):
                ends = {index: broker.partitions.get("t", index).log.log_end_offset for index in (0, 1)}
                requests = [produce(writer.who, 0, b"first"), BEHIND[behind](writer)]
                for request in requests:
                    await connection.say(request, BY_NAME)
                await coordinator.on_request.wait()
                async with ClientConnection(broker) as other:  # by then, what has come before is read
                    await other.ask(plain(b"other", index=2), BY_NAME)
                assert {index: broker.partitions.get("t", index).log.log_end_offset for index in (0, 1)} == ends
                coordinator.answer()
                answers = [await connection.hear(request, BY_NAME) for request in requests]
                assert [produced(answer) for answer in answers] == [NONE, NONE]
                await writer.commit()
                if behind != "of a fast path":
                    assert await seen(broker) == [b"first", b"second"]

    test()


def test_another_request_does_not_pass_a_produce_that_is_appended(tmp_path: Path) -> None:
    only_produces_pass(connection_file, tmp_path)


def only_produces_pass(module: ModuleType, directory: Path) -> None:
    """EndTxn behind a Produce that waits for its replicas: it would end a transaction whose write may still fail."""

    @on_trio
    async def test() -> None:
        with made_of(module):
            async with transacting(directory) as (broker, connection):
                writer = Writer(connection.ask)
                await writer.init()
                replica = with_others(broker, "t", in_sync=2)
                first, behind = produce(writer.who, 0, b"first"), end(writer.who, commit=True)
                await connection.say(first, BY_NAME)
                await connection.say(behind, 5)
                while replica.log.log_end_offset < 1:
                    await trio.sleep(0.001)
                async with ClientConnection(broker) as other:
                    await other.ask(plain(b"other"), BY_NAME)
                assert await state(broker) == "Ongoing"
                alone_again(broker, "t")
                assert produced(await connection.hear(first, BY_NAME)) == NONE
                assert (await connection.hear(behind, 5)).error_code == NONE

    test()


def test_a_produce_passes_one_that_waits_for_its_replicas(tmp_path: Path) -> None:
    produces_pass_what_is_appended(produce_file, tmp_path)


def produces_pass_what_is_appended(module: ModuleType, directory: Path) -> None:
    @on_trio
    async def test() -> None:
        with made_of(module) as patience_s:
            async with transacting(directory) as (broker, connection):
                replica = with_others(broker, "t", in_sync=2)
                requests = [plain(b"%d" % number, index=0) for number in range(3)]
                for request in requests:
                    await connection.say(request, BY_NAME)
                with trio.fail_after(patience_s):
                    while replica.log.log_end_offset < 3:
                        await trio.sleep(0.001)
                alone_again(broker, "t")
                answers = [await connection.hear(request, BY_NAME) for request in requests]
                assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [0, 1, 2]

    test()


def test_a_response_of_a_fast_path_does_not_overtake_one_that_is_waited_for(tmp_path: Path) -> None:
    fast_paths_keep_the_order(connection_file, tmp_path)


def fast_paths_keep_the_order(module: ModuleType, directory: Path) -> None:
    @on_trio
    async def test() -> None:
        with made_of(module):
            async with writing(directory) as (broker, connection, _, _):
                replica, quick = with_others(broker, "t", in_sync=2), broker.partitions.get("t", 1)
                requests = [plain(b"first", index=0), plain(b"last")]
                await connection.say(requests[0], BY_NAME)
                while replica.log.log_end_offset < 1:
                    await trio.sleep(0.001)
                until = quick.log.log_end_offset + 1
                await connection.say(requests[1], BY_NAME)
                while quick.log.log_end_offset < until:
                    await trio.sleep(0.001)
                alone_again(broker, "t")
                answers = [await connection.hear(request, BY_NAME) for request in requests]
                assert [answer.responses[0].partition_responses[0].index for answer in answers] == [0, 1]

    test()


def test_a_produce_passes_one_that_has_waited_for_its_coordinator_and_waits_for_its_replicas(tmp_path: Path) -> None:
    produces_pass_what_was_verified(produce_file, tmp_path)


def produces_pass_what_was_verified(module: ModuleType, directory: Path) -> None:
    @on_trio
    async def test() -> None:
        with made_of(module) as patience_s:
            async with writing(directory) as (broker, connection, writer, coordinator):
                replica = with_others(broker, "t", in_sync=2)
                requests = [produce(writer.who, number, b"%d" % number) for number in range(3)]
                for request in requests:
                    await connection.say(request, BY_NAME)
                await coordinator.on_request.wait()
                coordinator.answer()
                with trio.fail_after(patience_s):
                    while replica.log.log_end_offset < 3:
                        await trio.sleep(0.001)
                alone_again(broker, "t")
                answers = [await connection.hear(request, BY_NAME) for request in requests]
                assert [produced(answer) for answer in answers] == [NONE] * 3
                await writer.commit()
                assert await seen(broker) == [b"0", b"1", b"2"]

    test()


MISTAKES: list[tuple[ModuleType, str, str, Callable[..., None]]] = [
    (
        connection_file,
        "(not waiting[-1].allows_pipelining or len(waiting) >= MAX_INFLIGHT)",
        "(waiting[-1].route.key != PRODUCE_KEY or len(waiting) >= MAX_INFLIGHT)",
        nothing_passes_what_is_not_appended,
    ),
    (
        connection_file,
        "if self._inflight:\n"
        "    self._replies.ready(self._replies.expect(), [response])\n"
        "else:\n"
        "    self.outgoing.append(response)\n"
        "    self.outgoing_bytes += len(response)",
        "if False:\n    pass\nelse:\n    self.outgoing.append(response)\n    self.outgoing_bytes += len(response)",
        fast_paths_keep_the_order,
    ),
    (
        connection_file,
        "if self._inflight and not _is_produce(frame):",
        "if False:",
        only_produces_pass,
    ),
    (
        produce_file,
        "        parked.park(request.timeout_ms)\n        call.allow_pipelining()\n",
        "        parked.park(request.timeout_ms)\n",
        produces_pass_what_is_appended,
    ),
    (
        produce_file,
        "    call.allow_pipelining()\n    return await _finished(broker, request, response, afterwards)\n",
        "    return await _finished(broker, request, response, afterwards)\n",
        produces_pass_what_was_verified,
    ),
    (
        produce_file,
        "    await permit.settle(is_there)\n",
        "    call.allow_pipelining()\n    await permit.settle(is_there)\n",
        nothing_passes_what_is_not_appended,
    ),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    module: ModuleType, right: str, wrong: str, rule: Callable[..., None], tmp_path: Path
) -> None:
    assert_noticed(module, right, wrong, lambda m: rule(m, tmp_path / m.__name__))
