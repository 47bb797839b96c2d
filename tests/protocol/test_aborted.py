"""A reader with read_committed leaves out the batches of aborted transactions, and no others."""

from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
from mutants.plant import assert_noticed

from trioka.protocol import aborted, batch
from trioka.protocol.batch import BatchHeader
from trioka.protocol.record import EndTxnMarker, Record


class Listed(NamedTuple):
    producer_id: int
    first_offset: int


def of(producer: int, offset: int, *, transactional: bool = True, count: int = 2) -> BatchHeader:
    records = [Record(offset + index, 0, None, b"") for index in range(count)]
    data = batch.build(
        records,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )
    return batch.read_header(data)


def marker(producer: int, offset: int) -> BatchHeader:
    data = batch.build_marker(
        EndTxnMarker(False, 0), offset=offset, timestamp=0, leader_epoch=0, producer_id=producer, producer_epoch=0
    )
    return batch.read_header(data)


LOG: Final = [
    (of(1, 0), True),  # aborted
    (of(2, 2), False),  # committed, between the batches of an aborted transaction
    (of(1, 4), True),
    (of(1, 6, transactional=False), False),
    (marker(1, 8), False),
    (of(1, 9), False),  # the next transaction of the same producer
    (marker(1, 11), False),
    (of(1, 12), True),  # listed again; the response begins within it
    (of(3, 14), True),
]


@pytest.fixture
def module() -> ModuleType:
    return aborted


def test_batches_of_aborted_transactions_are_hidden(module: ModuleType) -> None:
    listed = [Listed(3, 14), Listed(1, 13), Listed(1, 0)]
    found: Any = module.AbortedBatches(listed)
    assert [found.hides(header) for header, _ in LOG] == [hidden for _, hidden in LOG]
    nothing: Any = module.AbortedBatches(None)
    assert not any(nothing.hides(header) for header, _ in LOG)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("header.last_offset", "header.base_offset"),
        ("self._producers.discard(header.producer_id)", "pass"),
        ("header.is_transactional and header.producer_id in self._producers", "header.producer_id in self._producers"),
        ("self._waiting = deque(sorted(((each.first_offset, each.producer_id) for each in listed or ())))",
         "self._waiting = deque((each.first_offset, each.producer_id) for each in listed or ())"),
    ],
)  # fmt: skip
def test_a_planted_mistake_is_noticed(right: str, wrong: str) -> None:
    assert_noticed(aborted, right, wrong, test_batches_of_aborted_transactions_are_hidden)
