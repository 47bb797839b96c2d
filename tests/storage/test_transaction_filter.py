"""Transactions under compaction: what was aborted goes, and markers stay for as long as they are needed."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.protocol.batch import BatchHeader, build, read_header
from trioka.protocol.record import EndTxnMarker, Record
from trioka.storage import transaction_filter
from trioka.storage.transaction_filter import TransactionFilter
from trioka.storage.txn_index import AbortedTransaction, TransactionIndex
from trioka.testing.disks.memory_disk import MemoryDisk

COMMIT, ABORT = EndTxnMarker(True, 0), EndTxnMarker(False, 0)


@pytest.fixture
def storage() -> ModuleType:
    return transaction_filter


def data(offset: int, producer: int = 1, *, transactional: bool = True) -> BatchHeader:
    record = Record(offset, 0, b"k", b"v")
    return read_header(
        build([record], base_offset=offset, producer_id=producer, producer_epoch=0, transactional=transactional)
    )


def control(offset: int, producer: int = 1, *, records: int = 1) -> BatchHeader:
    return data(offset, producer)._replace(attributes=0x30, record_count=records)


def filtering(storage: ModuleType, *aborted: AbortedTransaction) -> TransactionFilter:
    found = storage.TransactionFilter()
    found.expect(aborted)
    disk = MemoryDisk()
    disk.make_directory("/logs")
    found.index = TransactionIndex(disk, "/logs/00000000000000000000.txnindex", 0)
    return found  # type: ignore[no-any-return]


def test_the_batches_of_an_aborted_transaction_are_aborted_and_no_others(storage: ModuleType) -> None:
    found = filtering(storage, AbortedTransaction(1, 5, 9, 10))
    assert not found.is_aborted(data(3))  # an earlier transaction of the same producer
    assert not found.is_idle_marker(control(4), COMMIT)
    assert found.is_aborted(data(5))
    assert not found.is_aborted(data(6, 2))
    assert not found.is_aborted(data(7, 1, transactional=False))
    assert found.is_aborted(data(8))
    assert not found.is_idle_marker(control(9), ABORT)
    assert not found.is_aborted(data(10))  # the next one


def test_a_marker_is_idle_when_none_of_its_batches_was_met(storage: ModuleType) -> None:
    found = filtering(storage, AbortedTransaction(1, 5, 9, 10))
    assert found.is_idle_marker(control(9), ABORT)
    assert found.is_idle_marker(control(12), COMMIT)
    assert not found.is_aborted(data(13))
    assert not found.is_idle_marker(control(14), COMMIT)
    assert found.is_idle_marker(control(15), COMMIT)


def test_an_aborted_transaction_stays_in_the_index_while_its_batches_are_met(storage: ModuleType) -> None:
    met, unmet = AbortedTransaction(1, 5, 9, 10), AbortedTransaction(2, 6, 10, 11)
    found = filtering(storage, met, unmet)
    found.is_aborted(data(5))
    found.is_idle_marker(control(9, 1), ABORT)
    found.is_idle_marker(control(10, 2), ABORT)
    assert found.index is not None
    assert list(found.index) == [met]


def test_an_emptied_marker_is_idle_and_another_control_record_is_not(storage: ModuleType) -> None:
    found = filtering(storage)
    assert found.is_idle_marker(control(1, records=0), None)
    assert not found.is_idle_marker(control(2), None)


def test_a_transaction_reported_twice_or_late_is_still_one(storage: ModuleType) -> None:
    """It has records in two segments, so it is listed for both."""
    aborted = AbortedTransaction(1, 5, 20, 21)
    found = filtering(storage, aborted)
    assert found.is_aborted(data(5))
    found.expect([aborted])
    assert not found.is_idle_marker(control(20), ABORT)
    assert not found.is_aborted(data(21))


def test_an_aborted_transaction_without_its_marker_harms_no_later_one(storage: ModuleType) -> None:
    found = filtering(storage, AbortedTransaction(1, 5, 9, 10), AbortedTransaction(1, 20, 22, 23))
    assert not found.is_aborted(data(11))
    assert not found.is_idle_marker(control(12), COMMIT)
    assert found.is_aborted(data(20))


MISTAKES: list[tuple[str, str, Rule]] = [
    ("if not batch.is_transactional:", "if False:",
     test_the_batches_of_an_aborted_transaction_are_aborted_and_no_others),
    ("self._to_come[0][0] <= offset", "self._to_come[0][0] <= offset + 5",
     test_the_batches_of_an_aborted_transaction_are_aborted_and_no_others),
    ("if found is None or not found[1]:", "if found is None:",
     test_a_marker_is_idle_when_none_of_its_batches_was_met),
    ("            self._committed.discard(batch.producer_id)\n", "",
     test_a_marker_is_idle_when_none_of_its_batches_was_met),
    ("            self.index.append(found[0])\n", "            pass\n",
     test_an_aborted_transaction_stays_in_the_index_while_its_batches_are_met),
    ("return batch.record_count == 0", "return True",
     test_an_emptied_marker_is_idle_and_another_control_record_is_not),
    ("if known is None or known[0].last_offset < transaction.first_offset:", "if True:",
     test_a_transaction_reported_twice_or_late_is_still_one),
    ("or found[0].last_offset < batch.base_offset", "",
     test_an_aborted_transaction_without_its_marker_harms_no_later_one),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(transaction_filter, right, wrong, rule)
