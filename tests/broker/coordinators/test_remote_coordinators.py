"""Coordinators on one node, and what they look after on others: groups, transactions, markers (T4, T6)."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import assert_noticed
from support.broker_cluster import on_cluster, running_cluster
from support.cluster_client import GROUP, TRANSACTION, place, seen, state, until_state, with_topic
from support.group_requests import commit
from support.serving import ask
from support.transaction_requests import NAME, Refused, Writer, produce
from support.transactional_broker import produced

from trioka.broker.coordinators import txn_verification as verification
from trioka.broker.coordinators.transactions import RemoteMarkerWriter, write_marker
from trioka.broker.coordinators.txn_verification import Generation
from trioka.coordinator.decision import Producer
from trioka.protocol.errors import NONE, InvalidTxnState, NotCoordinator, TransactionAbortable

NODES = (1, 2, 3)
TRANSACTIONS = 20


@on_cluster
async def test_one_node_coordinates_a_group_and_another_takes_over_with_all_that_was_committed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        routed = await with_topic(cluster)
        assert (await routed.ask(commit(7), 9)).topics[0].partitions[0].error_code == NONE
        first = await routed.coordinator(GROUP, "g")
        assert first is not None
        for node in set(NODES) - {first}:
            response = await ask(cluster[node], commit(8), 9)
            assert response.topics[0].partitions[0].error_code == NotCoordinator.code
        await cluster.kill(first)
        assert await place(routed, "g") == 7
        assert (await routed.ask(commit(9), 9)).topics[0].partitions[0].error_code == NONE
        await cluster.start(first)
        assert await place(routed, "g") == 9


@pytest.mark.parametrize("generation", [1, 2])
def test_a_transaction_spans_partitions_of_all_nodes(generation: int, tmp_path: Path) -> None:
    @on_cluster
    async def test() -> None:
        async with running_cluster(tmp_path) as cluster:
            routed = await with_topic(cluster)
            writer = Writer(routed.ask, generation=generation)
            await writer.init()
            for index in range(3):
                await writer.write(b"a", index=index)
            await writer.commit_offsets({"t": {0: 5}})
            assert [await seen(routed, index) for index in range(3)] == [[]] * 3
            await writer.commit()
            await until_state(routed, "CompleteCommit")
            assert [await seen(routed, index) for index in range(3)] == [[b"a"]] * 3
            assert await place(routed, "g") == 5
            for index in range(3):
                await writer.write(b"b", index=index)
            await writer.abort()
            await until_state(routed, "CompleteAbort")
            assert [await seen(routed, index) for index in range(3)] == [[b"a"]] * 3

    test()


@on_cluster
async def test_pipelined_writes_of_a_transaction_are_written_in_the_order_in_which_they_were_sent(
    tmp_path: Path,
) -> None:
    """A producer of the second generation does not wait for the answer to its first write, which the leader of the
    partition may write only when the coordinator, on another node, has answered."""
    async with running_cluster(tmp_path, add_partitions_to_txn_retry_backoff_max_ms=60_000) as cluster:
        routed = await with_topic(cluster)
        writer = Writer(routed.ask)
        await writer.init()
        coordinator = await routed.coordinator(TRANSACTION, NAME)
        leader = next(node for node in NODES if node != coordinator)
        expected = []
        async with cluster.asking(leader) as connection:
            for number in range(TRANSACTIONS):
                values = [b"%d.%d" % (number, sequence) for sequence in range(3)]
                requests = [produce(writer.who, n, value, partitions=[leader - 1]) for n, value in enumerate(values)]
                for request in requests:
                    await connection.say(request, 12)
                answers = [await connection.hear(request, 12) for request in requests]
                assert [produced(answer) for answer in answers] == [NONE] * 3
                await writer.commit()
                expected += values
        await until_state(routed, "CompleteCommit")
        assert await seen(routed, leader - 1) == expected


@on_cluster
async def test_a_write_that_the_coordinator_elsewhere_does_not_know_of_is_refused(tmp_path: Path) -> None:
    """T6: of the first generation, which says beforehand where it will write."""
    async with running_cluster(tmp_path) as cluster:
        routed = await with_topic(cluster)
        writer = Writer(routed.ask, generation=1)
        await writer.init()
        coordinator = await routed.coordinator(TRANSACTION, NAME)
        for node in set(NODES) - {coordinator}:
            for version, error in ((10, InvalidTxnState), (11, TransactionAbortable)):
                answer = await routed.ask(produce(writer.who, 0, b"late", partitions=[node - 1]), version)
                assert answer.responses[0].partition_responses[0].error_code == error.code
            assert await seen(routed, node - 1, committed=False) == []


def test_a_verdict_survives_its_coordinator(tmp_path: Path) -> None:
    verdict_survives(tmp_path)


def verdict_survives(directory: Path) -> None:
    """T4: the coordinator dies between the decision and the markers; its successor writes the markers."""

    @on_cluster
    async def test() -> None:
        async with running_cluster(directory) as cluster:
            routed = await with_topic(cluster)
            writer = Writer(routed.ask)
            await writer.init()
            for index in range(3):
                await writer.write(b"a", index=index)
            coordinator = await routed.coordinator(TRANSACTION, NAME)
            assert coordinator is not None
            cluster[coordinator].transactions._on_marker_request = lambda order: None
            await writer.commit()
            assert await state(routed) == "PrepareCommit"
            await cluster.kill(coordinator)
            await until_state(routed, "CompleteCommit")
            assert [await seen(routed, index) for index in range(3)] == [[b"a"]] * 3

    test()


@on_cluster
async def test_a_producer_of_before_is_fenced_on_every_node(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        routed = await with_topic(cluster)
        old, new = Writer(routed.ask), Writer(routed.ask)
        await old.init()
        await old.write(b"old", index=0)
        await new.init()
        await new.write(b"new", index=1)
        with pytest.raises(Refused):
            await old.write(b"late", index=2)
        await new.commit()
        await until_state(routed, "CompleteCommit")
        assert [await seen(routed, index) for index in range(3)] == [[], [b"new"], []]


def test_a_marker_that_is_only_written_at_home_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_home(self: RemoteMarkerWriter, partition: Any, marker: Any, then: Any) -> None:
        write_marker(self._broker, partition, marker, then)

    @on_cluster
    async def test() -> None:
        async with running_cluster(tmp_path) as cluster:
            routed = await with_topic(cluster)
            writer = Writer(routed.ask)
            await writer.init()
            for index in range(3):
                await writer.write(b"a", index=index)
            await writer.commit()
            await until_state(routed, "CompleteCommit", 2.0)

    monkeypatch.setattr(RemoteMarkerWriter, "__call__", at_home)
    with pytest.raises(trio.TooSlowError):
        test()


def test_the_next_transaction_begins_while_markers_are_on_their_way(tmp_path: Path) -> None:
    next_transactions_begin(verification, tmp_path)


def next_transactions_begin(module: ModuleType, directory: Path) -> None:
    """A leader is asked for the first write of a transaction before the end of the one before has come to it."""

    @on_cluster
    async def test() -> None:
        async with running_cluster(directory) as cluster:
            for broker in cluster.brokers.values():
                vars(broker)["verification"] = module.TxnVerifier(broker)
            routed = await with_topic(cluster)
            writer = Writer(routed.ask)
            await writer.init()
            coordinator = await routed.coordinator(TRANSACTION, NAME)
            other = next(node for node in NODES if node != coordinator)
            replica = cluster[other].partitions.get("t", other - 1)
            await writer.write(b"a", index=other - 1)
            assert coordinator is not None
            carry_out = cluster[coordinator].transactions._on_marker_request
            orders: list[Any] = []
            cluster[coordinator].transactions._on_marker_request = orders.append
            await writer.commit()
            guard = cluster[other].verification.start(replica, Producer(*writer.who), 0, Generation.SECOND)
            assert guard is not None and carry_out is not None
            cluster[coordinator].transactions._on_marker_request = carry_out
            carry_out(orders[0])
            await until_state(routed, "CompleteCommit")
            assert await seen(routed, other - 1) == [b"a"]
            assert cluster[other].verification.start(replica, Producer(*writer.who), 0, Generation.SECOND) is guard
            await writer.write(b"b", index=other - 1)
            await writer.commit()
            await until_state(routed, "CompleteCommit")

    test()


def test_a_guard_that_goes_with_the_transaction_before_is_noticed(tmp_path: Path) -> None:
    right = "if transaction_version < BUMPING_TRANSACTION_VERSION or not is_of_next:"
    assert_noticed(verification, right, "if True:", lambda m: next_transactions_begin(m, tmp_path / m.__name__))
