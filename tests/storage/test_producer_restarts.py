"""Producers over restarts and truncations (T1): from snapshots, and from nothing; and long random histories."""

from itertools import pairwise
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.producer_state import ABORT, COMMIT, DAY_MS, DIRECTORY, LAST, Partition

from trioka.protocol.errors import (
    InvalidProducerEpoch,
)
from trioka.storage import producer_state
from trioka.storage.layout import CorruptFile
from trioka.storage.producer_state import CompletedTransaction


@pytest.fixture
def storage() -> ModuleType:
    return producer_state


def busy(storage: ModuleType) -> Partition:
    partition = Partition(storage)
    for sequence in range(6):
        partition.write(sequence, producer=1)
    partition.write(LAST - 1, 3, producer=2, transactional=True)  # 6, 7, 8
    partition.write(0, producer=3, transactional=True)  # 9
    partition.mark(ABORT, producer=3, epoch=1, version=2)  # 10
    return partition


def test_a_snapshot_brings_producers_epochs_and_open_transactions_back(storage: ModuleType) -> None:
    partition = busy(storage)
    assert partition.state.take_snapshot(sync=True)
    again = partition.reopen(storage)
    assert again.end == 11
    assert again.state.first_unstable_offset == 6
    assert again.write(5, producer=1) == 5  # the last batch is known
    assert again.write(LAST - 1, 3, producer=2, transactional=True) == 6
    assert again.write(1, producer=2, transactional=True) == 11
    with pytest.raises(InvalidProducerEpoch):
        again.write(1, producer=3, epoch=0)
    assert again.mark(ABORT, producer=2) == CompletedTransaction(2, 6, 12, 13, True)


def test_there_is_no_second_snapshot_of_the_same_offset(storage: ModuleType) -> None:
    partition = busy(storage)
    assert partition.state.take_snapshot(sync=False)
    assert not partition.state.take_snapshot(sync=True)
    partition.write(6, producer=1)
    assert partition.state.take_snapshot(sync=True)
    assert partition.state.snapshots.offsets == [11, 12]


def test_a_damaged_snapshot_gives_way_to_an_older_one(storage: ModuleType) -> None:
    partition = busy(storage)
    partition.state.take_snapshot(sync=True)
    partition.write(6, producer=1)
    partition.state.take_snapshot(sync=True)
    partition.disk.flip_bit(partition.state.snapshots.path(12), 100, 3)
    again = Partition(storage, partition.disk)
    (damaged,) = again.state.truncate_and_reload(0, 12, now_ms=200, expiration_ms=DAY_MS)
    assert isinstance(damaged, CorruptFile)
    assert again.state.end_offset == 11  # the caller replays from here
    assert again.state.snapshots.offsets == [11]


def test_without_snapshots_the_replay_begins_at_the_start_of_the_log(storage: ModuleType) -> None:
    again = Partition(storage)
    again.state.truncate_and_reload(5, 11, now_ms=200, expiration_ms=DAY_MS)
    assert again.state.end_offset == 5
    assert not again.state.producers


def test_truncation_forgets_what_was_cut(storage: ModuleType) -> None:
    partition = Partition(storage)
    partition.write(0)
    partition.state.take_snapshot(sync=True)  # at 1
    partition.write(1, transactional=True)
    partition.mark(COMMIT)
    partition.state.take_snapshot(sync=True)  # at 3
    partition.state.truncate_and_reload(0, 2, now_ms=200, expiration_ms=DAY_MS)
    assert partition.state.end_offset == 1
    assert partition.state.snapshots.offsets == [1]
    assert partition.state.first_unstable_offset is None
    partition.end = 1
    assert partition.write(1) == 1


def test_truncation_at_the_end_keeps_what_is_known(storage: ModuleType) -> None:
    partition = busy(storage)
    partition.state.truncate_and_reload(3, 11, now_ms=200, expiration_ms=DAY_MS)
    assert partition.write(1, producer=1) == 1
    assert partition.state.first_unstable_offset == 6


def test_an_expired_producer_does_not_come_back_from_a_snapshot(storage: ModuleType) -> None:
    partition = busy(storage)
    partition.state.take_snapshot(sync=True)
    again = partition.reopen(storage, now_ms=100 + DAY_MS)
    assert set(again.state.producers) == {2}  # in a transaction


def test_a_restarted_log_has_no_producers(storage: ModuleType) -> None:
    partition = busy(storage)
    partition.state.take_snapshot(sync=True)
    partition.state.truncate_fully_and_start_at(100)
    assert not partition.state.producers
    assert partition.state.first_unstable_offset is None
    assert partition.state.snapshots.offsets == []
    assert partition.disk.list(DIRECTORY) == []
    assert partition.state.end_offset == 100


def test_a_moved_log_start_frees_transactions_below_it_but_keeps_producers(storage: ModuleType) -> None:
    partition = busy(storage)
    assert partition.state.first_unstable_offset == 6
    partition.mark(COMMIT, producer=2)  # at 11
    partition.state.on_log_start_moved(12)
    assert partition.state.first_unstable_offset is None
    assert partition.write(5, producer=1) == 5  # type: ignore[unreachable]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_client_repeats_nothing_is_written_twice_nor_out_of_order(seed: int) -> None:
    """Producers with up to five batches in flight, replies lost at random, restarts from snapshots in between.

    A client resends in order everything that was not answered. The log is the list of (producer, sequence)."""
    random = Random(seed)
    partition = Partition(producer_state)
    log: list[tuple[int, int]] = []
    sent: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    following = dict.fromkeys(sent, LAST - 20)
    for step in range(400):
        producer = random.choice(list(sent))
        in_flight = sent[producer]
        if len(in_flight) < 5 and random.random() < 0.6:
            count = random.randrange(1, 4)
            in_flight.append((following[producer], count))
            following[producer] = (following[producer] + count) % 2**31
        for sequence, count in list(in_flight):
            offset = partition.write(sequence, count, producer=producer)
            entries = [(producer, (sequence + i) % 2**31) for i in range(count)]
            if offset == len(log):
                log += entries
            assert log[offset : offset + count] == entries
            if random.random() < 0.3:
                break  # the connection breaks: the rest is not sent, and this reply is lost
            in_flight.pop(0)
        if step % 100 == 99 and all(len(left) <= 1 for left in sent.values()):
            partition.state.take_snapshot(sync=True)
            partition = partition.reopen(producer_state)
    for producer in sent:
        mine = [sequence for who, sequence in log if who == producer]
        assert all(after == (before + 1) % 2**31 for before, after in pairwise(mine))


@pytest.mark.parametrize("seed", range(40))
def test_the_last_stable_offset_is_never_past_an_open_transaction(seed: int) -> None:
    random = Random(seed)
    partition = Partition(producer_state)
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    following: dict[int, int] = {}
    high = 0
    for _ in range(300):
        producer = random.randrange(5)
        if producer in opened and random.random() < 0.4:
            first = opened.pop(producer)
            expected = CompletedTransaction(producer, first, partition.end, 0, True)
            stable = min(opened.values(), default=partition.end + 1)
            assert partition.mark(ABORT, producer=producer) == expected._replace(last_stable_offset=stable)
            ended.append((first, partition.end - 1))
        else:
            sequence = following.get(producer, 0)
            first = partition.write(sequence, producer=producer, transactional=True)
            following[producer] = sequence + 1
            opened.setdefault(producer, first)
        high = random.randint(high, partition.end)
        partition.state.on_high_watermark_moved(high)
        unstable = [*opened.values(), *(first for first, mark in ended if mark >= high)]
        assert partition.state.last_stable_offset(high) == min([*unstable, high])


MISTAKES: list[tuple[str, str, Rule]] = [
    ("        self._open = dict(sorted(transactions))\n", "",
     test_a_snapshot_brings_producers_epochs_and_open_transactions_back),
    ("(entry.last_sequence - entry.offset_delta) % SEQUENCES", "entry.last_sequence - entry.offset_delta",
     test_a_snapshot_brings_producers_epochs_and_open_transactions_back),
    ("                self.snapshots.remove(offset)\n", "                break\n",
     test_a_damaged_snapshot_gives_way_to_an_older_one),
    ("self._forget_all()\n" "damaged: list[CorruptFile] = []", "damaged: list[CorruptFile] = []",
     test_truncation_forgets_what_was_cut),
    ("            self.on_log_start_moved(start)\n            return ()\n", "            pass\n",
     test_truncation_at_the_end_keeps_what_is_known),
    ("if not _is_idle(producer, now_ms, expiration_ms):", "if True:",
     test_an_expired_producer_does_not_come_back_from_a_snapshot),
    ("        if self.end_offset <= self._snapshot_offset:\n            return False\n", "",
     test_there_is_no_second_snapshot_of_the_same_offset),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(producer_state, right, wrong, rule)
