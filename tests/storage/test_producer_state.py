"""Producers of a partition: sequences (T1, T2), epochs, transactions (T3, T7), and all of it over restarts."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.producer_state import ABORT, COMMIT, DAY_MS, LAST, Partition, batch, marker

from trioka.protocol.batch import build, build_marker, read_header
from trioka.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from trioka.protocol.record import EndTxnMarker
from trioka.storage import producer_state
from trioka.storage.producer_state import CompletedTransaction


@pytest.fixture
def storage() -> ModuleType:
    return producer_state


# Sequences -----------------------------------------------------------------------------------------------------------


def test_a_producer_writes_one_batch_after_the_other(storage: ModuleType) -> None:
    partition = Partition(storage)
    assert [partition.write(sequence, 3) for sequence in (0, 3, 6, 9)] == [0, 3, 6, 9]


def test_a_retry_of_any_of_the_last_five_batches_is_answered_with_its_first_offset(storage: ModuleType) -> None:
    partition = Partition(storage)
    for sequence in range(7):
        partition.write(sequence)
    for sequence in (6, 2, 4, 3, 5):
        assert partition.write(sequence) == sequence
    assert partition.end == 7


def test_a_retry_of_the_sixth_last_batch_is_refused(storage: ModuleType) -> None:
    partition = Partition(storage)
    for sequence in range(7):
        partition.write(sequence)
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.write(1)


def test_a_retry_cut_in_another_way_is_refused(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, 4)
    for sequence, count in ((0, 3), (1, 3), (0, 5), (3, 1)):
        with pytest.raises(OutOfOrderSequenceNumber):
            partition.write(sequence, count)


def test_a_gap_is_refused(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, 4)
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.write(5)
    assert partition.write(4) == 4


def test_after_the_last_sequence_comes_nought(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(LAST - 1, 2)
    assert partition.write(0) == 2
    assert partition.write(LAST - 1, 2) == 0  # a retry
    other = Partition(storage)
    other.write(LAST - 1, 4)  # LAST - 1, LAST, 0, 1
    assert other.write(2) == 4
    assert other.write(LAST - 1, 4) == 0
    with pytest.raises(OutOfOrderSequenceNumber):
        other.write(4)


def test_an_unknown_producer_may_begin_anywhere(storage: ModuleType) -> None:
    assert Partition(storage).write(17) == 0


def test_a_newer_epoch_begins_at_nought(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, 5)
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.write(5, epoch=1)
    assert partition.write(0, epoch=1) == 5
    assert partition.write(1, epoch=1) == 6


def test_an_older_epoch_is_fenced_even_with_a_known_batch(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0)
    partition.write(0, epoch=1)
    for sequence in (0, 1):
        with pytest.raises(InvalidProducerEpoch):
            partition.write(sequence, epoch=0)
    with pytest.raises(InvalidProducerEpoch):
        partition.write(0, epoch=0, client=False)


def test_a_newer_epoch_forgets_the_batches_of_the_older_one(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0)
    partition.write(1)
    assert partition.write(0, epoch=1) == 2
    assert partition.write(0, epoch=1) == 2  # a retry of this one, not of the other epoch's
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.write(2, epoch=1)


def test_a_coordinator_writes_for_a_producer_without_its_sequences(storage: ModuleType) -> None:
    partition = Partition(storage)
    assert [partition.write(-1, client=False) for _ in range(3)] == [0, 1, 2]


def test_producers_do_not_disturb_one_another(storage: ModuleType) -> None:
    partition = Partition(storage)
    for sequence in range(8):
        for producer in (1, 2, 3):
            partition.write(sequence, producer=producer)
    assert partition.write(7, producer=2) == 22


def test_a_check_changes_nothing(storage: ModuleType) -> None:
    partition = Partition(storage)
    for _ in range(3):
        assert partition.state.check(batch(0, producer=5)) is None
        partition.state.check_marker(marker(producer=5, epoch=3), COMMIT)
    assert not partition.state.producers
    partition.write(0)
    for _ in range(3):
        assert partition.state.check(batch(1)) is None
        assert partition.state.check(batch(0, epoch=1)) is None
    assert partition.write(1) == 1


# Transactions --------------------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset_back(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, producer=1)
    partition.write(0, producer=2, transactional=True)
    partition.write(0, producer=3, transactional=True)
    partition.write(1, producer=2, transactional=True)
    state = partition.state
    assert state.first_unstable_offset == state.first_undecided_offset == 1
    assert [state.last_stable_offset(high) for high in (0, 1, 2, 4)] == [0, 1, 1, 1]


def test_an_ended_transaction_holds_it_back_until_its_marker_is_replicated(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, 2, transactional=True)
    partition.mark(COMMIT)  # at offset 2
    state = partition.state
    state.on_high_watermark_moved(2)
    assert state.last_stable_offset(2) == 0
    assert state.first_undecided_offset is None
    state.on_high_watermark_moved(3)
    assert state.last_stable_offset(3) == 3
    assert state.first_unstable_offset is None


def test_the_earliest_of_open_and_unreplicated_transactions_counts(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, producer=1, transactional=True)  # 0
    partition.write(0, producer=2, transactional=True)  # 1
    partition.mark(COMMIT, producer=1)  # 2
    partition.write(1, producer=1, transactional=True)  # 3
    partition.mark(ABORT, producer=2)  # 4
    state = partition.state
    assert state.first_unstable_offset == 0
    state.on_high_watermark_moved(3)
    assert state.first_unstable_offset == 1
    state.on_high_watermark_moved(5)
    assert state.first_unstable_offset == 3


def test_an_aborted_transaction_is_reported_with_its_range_and_the_stable_offset(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, 2, producer=1, transactional=True)  # 0, 1
    partition.write(0, 2, producer=2, transactional=True)  # 2, 3
    assert partition.mark(ABORT, producer=2) == CompletedTransaction(2, 2, 4, 0, True)
    assert partition.mark(COMMIT, producer=1) == CompletedTransaction(1, 0, 5, 6, False)


def test_a_marker_without_a_transaction_ends_nothing(storage: ModuleType) -> None:
    partition = Partition(storage)
    assert partition.mark(COMMIT) is None
    assert partition.state.first_unstable_offset is None


def test_no_write_outside_of_an_open_transaction(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, transactional=True)
    with pytest.raises(InvalidTxnState):
        partition.write(1)
    partition.mark(COMMIT)
    assert partition.write(1) == 2


def test_sequences_go_on_after_a_marker_of_the_same_epoch_and_restart_after_a_bump(storage: ModuleType) -> None:
    same = Partition(storage)
    same.write(0, transactional=True)
    same.mark(COMMIT)
    assert same.write(1, transactional=True) == 2
    bumped = Partition(storage)
    bumped.write(0, transactional=True)
    bumped.mark(COMMIT, epoch=1, version=2)
    with pytest.raises(InvalidProducerEpoch):
        bumped.write(1, transactional=True)
    with pytest.raises(OutOfOrderSequenceNumber):
        bumped.write(1, epoch=1, transactional=True)
    assert bumped.write(0, epoch=1, transactional=True) == 2


def test_a_marker_of_an_older_producer_epoch_is_fenced(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, epoch=2, transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        partition.mark(ABORT, epoch=1)
    assert partition.mark(ABORT, epoch=2) is not None


def test_a_marker_of_an_older_coordinator_is_fenced(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.mark(EndTxnMarker(True, 5))
    with pytest.raises(TransactionCoordinatorFenced):
        partition.mark(EndTxnMarker(True, 4))
    partition.mark(EndTxnMarker(True, 5))
    partition.mark(EndTxnMarker(True, 6))


def test_under_transaction_version_2_a_marker_needs_a_bumped_epoch(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, epoch=3, transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        partition.mark(COMMIT, epoch=3, version=2)
    assert partition.mark(COMMIT, epoch=4, version=2) is not None


def test_under_transaction_version_2_the_same_marker_again_is_harmless(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, epoch=3, transactional=True)
    partition.mark(COMMIT, epoch=4, version=2)
    assert partition.mark(COMMIT, epoch=4, version=2) is None
    with pytest.raises(InvalidProducerEpoch):
        partition.mark(COMMIT, epoch=3, version=2)


def test_under_transaction_version_2_the_last_epoch_is_ended_by_itself(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, epoch=2**15 - 1, transactional=True)
    assert partition.mark(COMMIT, epoch=2**15 - 1, version=2) is not None


def test_the_log_replayed_makes_the_same_state_as_writing_it(storage: ModuleType) -> None:
    written = Partition(storage)
    completed = []
    for sequence in range(7):
        written.write(2 * sequence, 2, transactional=True, timestamp=7)
    completed.append(written.mark(ABORT, epoch=1, timestamp=8))
    written.write(0, 2, epoch=1, timestamp=9)
    replayed = Partition(storage).state
    batches = [batch(2 * n, 2, offset=2 * n, timestamp=7, transactional=True) for n in range(7)]
    for header in batches:
        replayed.replay(b"", header)
    control = build_marker(ABORT, offset=14, timestamp=8, leader_epoch=0, producer_id=1000, producer_epoch=1)
    assert [replayed.replay(control, read_header(control))] == completed
    replayed.replay(b"", batch(0, 2, epoch=1, offset=15, timestamp=9))
    ours, theirs = written.state.producers[1000], replayed.producers[1000]
    assert [getattr(ours, name) for name in ours.__slots__] == [getattr(theirs, name) for name in theirs.__slots__]


def test_a_batch_without_a_producer_and_an_emptied_marker_are_stepped_over(storage: ModuleType) -> None:
    state = Partition(storage).state
    assert state.replay(b"", batch(-1, producer=-1, epoch=-1)) is None
    emptied = build([], producer_id=1000, producer_epoch=0, transactional=True, control=True)
    assert state.replay(emptied, read_header(emptied)) is None
    assert not state.producers


# Age and number ------------------------------------------------------------------------------------------------------


def test_an_idle_producer_expires_and_one_in_a_transaction_does_not(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0, producer=1, timestamp=100)
    partition.write(0, producer=2, timestamp=101)
    partition.write(0, producer=3, timestamp=0, transactional=True)
    assert partition.state.expire(100 + DAY_MS, DAY_MS) == 1
    assert set(partition.state.producers) == {2, 3}
    assert partition.write(17, producer=1) == 3


def test_the_number_of_producers_is_bounded_and_transactions_survive_it(storage: ModuleType) -> None:
    limit, storage.MAX_PRODUCERS = storage.MAX_PRODUCERS, 16  # type: ignore[attr-defined]
    try:
        partition = Partition(storage)
        partition.write(0, producer=0, timestamp=0, transactional=True)
        for producer in range(1, 100):
            partition.write(0, producer=producer, timestamp=producer)
            assert len(partition.state.producers) <= 16
        assert 0 in partition.state.producers
        assert set(range(92, 100)) <= set(partition.state.producers)
    finally:
        storage.MAX_PRODUCERS = limit  # type: ignore[attr-defined]


MISTAKES: list[tuple[str, str, Rule]] = [
    ("WINDOW_BATCHES: Final = 5", "WINDOW_BATCHES: Final = 4",
     test_a_retry_of_any_of_the_last_five_batches_is_answered_with_its_first_offset),
    ("WINDOW_BATCHES: Final = 5", "WINDOW_BATCHES: Final = 6", test_a_retry_of_the_sixth_last_batch_is_refused),
    ("and written.last_sequence == last", "", test_a_retry_cut_in_another_way_is_refused),
    ("(window[-1].last_sequence + 1) % SEQUENCES", "window[-1].last_sequence + 1",
     test_after_the_last_sequence_comes_nought),
    ("sequence != ((window[-1].last_sequence + 1) % SEQUENCES if window else 0)",
     "sequence < ((window[-1].last_sequence + 1) % SEQUENCES if window else 0)", test_a_gap_is_refused),
    ("(window[-1].last_sequence + 1) % SEQUENCES if window else 0",
     "(window[-1].last_sequence + 1) % SEQUENCES if window else sequence",
     test_sequences_go_on_after_a_marker_of_the_same_epoch_and_restart_after_a_bump),
    ("if sequences and batch.base_sequence != 0 and producer.epoch != NO_EPOCH:", "if False:",
     test_a_newer_epoch_begins_at_nought),
    ("if batch.producer_epoch < producer.epoch:", "if False:",
     test_an_older_epoch_is_fenced_even_with_a_known_batch),
    ("            producer.epoch = batch.producer_epoch\n            window.clear()\n",
     "            producer.epoch = batch.producer_epoch\n",
     test_a_newer_epoch_forgets_the_batches_of_the_older_one),
    ("elif sequences:\n" "    window = producer.window\n" "    sequence = batch.base_sequence\n"
     "    if sequence != ((window[-1].last_sequence + 1) % SEQUENCES if window else 0):\n"
     "        return self._retry(batch, producer)", "window = producer.window\n" "sequence = batch.base_sequence\n"
     "if sequence != ((window[-1].last_sequence + 1) % SEQUENCES if window else 0):\n"
     "    return self._retry(batch, producer)", test_a_coordinator_writes_for_a_producer_without_its_sequences),
    ("        if producer.transaction_first_offset >= 0 and not batch.is_transactional:\n", "        if False:\n",
     test_no_write_outside_of_an_open_transaction),
    ("return high_watermark if unstable == NO_OFFSET or unstable >= high_watermark else unstable",
     "return high_watermark", test_an_open_transaction_holds_the_last_stable_offset_back),
    ("return high_watermark if unstable == NO_OFFSET or unstable >= high_watermark else unstable",
     "return high_watermark if unstable == NO_OFFSET else unstable",
     test_an_open_transaction_holds_the_last_stable_offset_back),
    ("        self._completed[first_offset] = offset\n", "",
     test_an_ended_transaction_holds_it_back_until_its_marker_is_replicated),
    ("if marker >= high_watermark:", "if marker > high_watermark:",
     test_an_ended_transaction_holds_it_back_until_its_marker_is_replicated),
    ("            first = ended if first == NO_OFFSET else min(first, ended)\n", "            pass\n",
     test_the_earliest_of_open_and_unreplicated_transactions_counts),
    ("stable = next(iter(self._open), offset + 1)", "stable = offset + 1",
     test_an_aborted_transaction_is_reported_with_its_range_and_the_stable_offset),
    ("stale = epoch < producer.epoch", "stale = False", test_a_marker_of_an_older_producer_epoch_is_fenced),
    ("if marker.coordinator_epoch < producer.coordinator_epoch:", "if False:",
     test_a_marker_of_an_older_coordinator_is_fenced),
    ("transaction_version >= BUMPING_TRANSACTION_VERSION and epoch == producer.epoch", "False",
     test_under_transaction_version_2_a_marker_needs_a_bumped_epoch),
    ("producer.transaction_first_offset >= 0 and epoch != MAX_EPOCH", "True",
     test_under_transaction_version_2_the_same_marker_again_is_harmless),
    (" and epoch != MAX_EPOCH", "", test_under_transaction_version_2_the_last_epoch_is_ended_by_itself),
    ("producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp >= " "expiration_ms",
     "now_ms - producer.last_timestamp >= expiration_ms",
     test_an_idle_producer_expires_and_one_in_a_transaction_does_not),
    ("now_ms - producer.last_timestamp >= expiration_ms", "now_ms - producer.last_timestamp > expiration_ms",
     test_an_idle_producer_expires_and_one_in_a_transaction_does_not),
    ("((p.last_timestamp, key) for key, p in self._producers.items() if " "p.transaction_first_offset < 0)",
     "((p.last_timestamp, key) for key, p in self._producers.items())",
     test_the_number_of_producers_is_bounded_and_transactions_survive_it),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(producer_state, right, wrong, rule)
