"""The coordinator of transactions: what it lists, forgets and refuses to believe. What it decides is in
`test_transaction_scenarios.py`."""

from collections.abc import Callable

import pytest
from mutants.plant import assert_noticed
from support.coordinator_runtime import WALL_MS, CoordinatorDriver

from trioka.coordinator import transactions
from trioka.coordinator.decision import Now, StoredRecord
from trioka.coordinator.record_codec import TRANSACTIONS
from trioka.coordinator.subscription_pattern import name_matcher
from trioka.coordinator.transaction import NEXT, Phase, Transaction
from trioka.coordinator.transactions import MAX_EXPIRED_AT_ONCE, ListFilter, TransactionCoordinator, TransactionSettings
from trioka.protocol.errors import InvalidRegularExpression, ProtocolError
from trioka.protocol.internal_records.transactions import TransactionLogKey

NOW = Now(0, WALL_MS)


def transaction(number: int, phase: Phase = Phase.EMPTY, *, started: int = -1) -> Transaction:
    return Transaction(
        producer_id=number,
        previous_producer_id=number,
        epoch=3,
        timeout_ms=60_000,
        phase=phase,
        partitions=frozenset({("t", 1), ("t", 0), ("s", 2)}) if phase is Phase.ONGOING else frozenset(),
        started_ms=started,
        updated_ms=WALL_MS,
        client_version=2,
    )


def coordinator_of(*kept: tuple[str, Transaction]) -> TransactionCoordinator:
    made = TransactionCoordinator(1, TransactionSettings)
    for offset, (name, found) in enumerate(kept):
        made.replay(StoredRecord(TransactionLogKey(transactional_id=name), found.value()), offset, None)
    return made


@pytest.mark.parametrize("phase", list(NEXT))
def test_what_is_written_is_what_is_read(phase: Phase) -> None:
    written = transaction(7, phase, started=WALL_MS)
    key, value = TRANSACTIONS.encode(StoredRecord(TransactionLogKey(transactional_id="x"), written.value()))
    kept = TRANSACTIONS.decode(key, value)
    assert kept is not None
    made = TransactionCoordinator(1, TransactionSettings)
    made.replay(kept, 0, None)
    assert made.transactions == {"x": written}


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_an_impossible_phase_is_not_believed(status: int) -> None:
    value = transaction(1).value()
    value.transaction_status = status  # type: ignore[misc]
    with pytest.raises(ProtocolError):
        Transaction.from_value(value)


def test_phases_are_named_as_kafka_names_them() -> None:
    assert [phase.text for phase in Phase] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


LISTED = coordinator_of(
    ("orders-1", transaction(1, Phase.ONGOING, started=WALL_MS - 1000)),
    ("orders-2", transaction(2, Phase.COMPLETE_COMMIT, started=WALL_MS - 5000)),
    ("bills", transaction(3)),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ListFilter(), ["orders-1", "orders-2", "bills"]),
        (ListFilter(phases=frozenset({Phase.ONGOING, Phase.DEAD})), ["orders-1"]),
        (ListFilter(phases=frozenset()), []),
        (ListFilter(producer_ids=frozenset({2, 3, 99})), ["orders-2", "bills"]),
        (ListFilter(longer_than_ms=999), ["orders-1", "orders-2", "bills"]),
        (ListFilter(longer_than_ms=1000), ["orders-2", "bills"]),
        (ListFilter(longer_than_ms=0), ["orders-1", "orders-2", "bills"]),
        (ListFilter(longer_than_ms=-7), ["orders-1", "orders-2", "bills"]),
        (ListFilter(matches=name_matcher("orders-.")), ["orders-1", "orders-2"]),
        (ListFilter(matches=name_matcher("orders")), []),
        (ListFilter(matches=name_matcher("o.*|b.*"), producer_ids=frozenset({3})), ["bills"]),
    ],
)
def test_transactions_are_listed_by_what_is_asked_for(wanted: ListFilter, found: list[str]) -> None:
    assert [name for name, _ in LISTED.list_transactions(wanted, NOW)] == found


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRegularExpression):
        name_matcher("(")


def test_many_that_expire_at_once_are_forgotten_in_parts() -> None:
    forget_many(transactions.TransactionCoordinator)


def forget_many(coordinator: Callable[..., TransactionCoordinator]) -> None:
    settings = TransactionSettings(expiration_ms=1000, clean_up_interval_ms=500)
    shell = CoordinatorDriver(lambda: coordinator(1, lambda: settings), TRANSACTIONS)
    count = 2 * MAX_EXPIRED_AT_ONCE + 7
    for number in range(count):
        name = f"x{number}"
        shell.ask(lambda c, request_id, now, n=number, x=name: c.init_producer_id(request_id, x, 1000, None, n, now))  # type: ignore[misc]
    assert len(shell.coordinator.transactions) == count
    shell.pass_time(999)
    assert len(shell.coordinator.transactions) == count
    shell.pass_time(1)
    assert not shell.coordinator.transactions
    assert len(shell.log) == 2 * count


def test_a_mistake_with_parts_is_noticed() -> None:
    right = "on_committed=go_on if len(expired) > MAX_EXPIRED_AT_ONCE else None"
    assert_noticed(transactions, right, "on_committed=None", lambda module: forget_many(module.TransactionCoordinator))
