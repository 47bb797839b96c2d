"""Compaction between everything else that happens to a log: whatever was written, no answer changes."""

from random import Random
from types import ModuleType
from typing import NamedTuple

import pytest
from mutants.plant import planted
from support.compacted_log import NOW, Pair, Partition, committed

from trioka.protocol.compression import Codec
from trioka.storage.cleaning import cleaner
from trioka.storage.log_config import LogConfig

PLAIN, TRANSACTIONAL = (0, 1), (2, 3)  # producers


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    transaction: int  # 0: none


class History:
    """A log, and beside it a plain list of what was written and what became of each transaction."""

    def __init__(self, random: Random, storage: ModuleType) -> None:
        self.random = random
        self.storage = storage
        config = LogConfig(
            cleanup_policy=frozenset({"compact"}),
            segment_bytes=random.choice([300, 1_000, 10**6]),
            delete_retention_ms=1_000,
            index_interval_bytes=random.choice([0, 200]),
        )
        self.partition = Partition(config=config)
        self.written: list[Written] = []
        self.commits: set[int] = {0}
        self.opened: dict[int, int] = {}  # by producer
        self.transactions = 0
        self.sequences = dict.fromkeys((*PLAIN, *TRANSACTIONAL), 0)
        self.now = NOW

    def step(self, number: int) -> None:
        choice = self.random.random()
        if choice < 0.7:
            self.write(number)
        elif choice < 0.8 and self.opened:
            self.end(self.random.choice(sorted(self.opened)), commit=self.random.random() < 0.5)
        elif choice < 0.85:
            self.partition.roll()
        elif choice < 0.97:
            self.compact(again=self.random.random() < 0.3, keys=self.random.choice([10**9, 3 * 182]))
        else:
            self.partition.close()
            checkpoint = self.partition.checkpoint
            self.partition = Partition(self.partition.disk, self.partition.log.config)
            self.partition.checkpoint = checkpoint

    def write(self, number: int) -> None:
        random = self.random
        producer = random.choice((*PLAIN, *TRANSACTIONAL))
        pairs: list[Pair] = [
            (b"k%d" % random.randrange(12), None if random.random() < 0.2 else b"%d-%d" % (number, at))
            for at in range(random.randrange(1, 4))
        ]
        first = self.partition.put(
            *pairs,
            producer=producer,
            epoch=0,
            sequence=self.sequences[producer],
            transactional=producer in TRANSACTIONAL,
            codec=random.choice([Codec.NONE, Codec.LZ4]),
        )
        self.sequences[producer] += len(pairs)
        transaction = 0
        if producer in TRANSACTIONAL:
            if producer not in self.opened:
                self.transactions += 1
                self.opened[producer] = self.transactions
            transaction = self.opened[producer]
        for at, (key, value) in enumerate(pairs):
            assert key is not None
            self.written.append(Written(first + at, key, value, transaction))

    def end(self, producer: int, *, commit: bool) -> None:
        self.partition.end(commit=commit, producer=producer)
        transaction = self.opened.pop(producer)
        if commit:
            self.commits.add(transaction)

    def compact(self, *, again: bool, keys: int = 10**9) -> None:
        self.now += self.random.choice([0, 500, 2_000])
        self.partition.compact(self.storage, now=self.now, again=again, keys=keys)

    def answers(self) -> dict[bytes, bytes]:
        """What a reader of committed records must find in the end."""
        last = {record.key: record.value for record in self.written if record.transaction in self.commits}
        return {key: value for key, value in last.items() if value is not None}


def live(storage: ModuleType, seed: int) -> None:
    history = History(Random(seed), storage)
    for number in range(250):
        history.step(number)
    for producer in sorted(history.opened):
        history.end(producer, commit=False)
    history.partition.roll()
    for _ in range(3):
        found = committed(history.partition)
        assert {key: value for key, value in found.items() if value is not None} == history.answers()
        history.now += 2_000
        history.compact(again=True)
    left = history.partition.left()
    everything = {record.offset: (record.key, record.value) for record in history.written}
    assert all(everything[offset] == (key, value) for offset, key, value in left)
    assert {key: value for _, key, value in left} == history.answers()  # and no tombstone any more
    assert len(left) == len(history.answers())
    for producer, sequence in history.sequences.items():
        if sequence:
            assert history.partition.log.producers.producers[producer].last_sequence == sequence - 1


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_written_compaction_changes_no_answer(seed: int) -> None:
    live(cleaner, seed)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("elif not transactions.is_aborted(header):", "elif True:"),
        ("for span in spans:", "for span in (each for each in spans if each.offset <= latest):"),
        ("dropped = self.transactions.is_aborted(header)", "dropped = False"),
        ("        offsets.latest_offset = following - 1\n", "        offsets.latest_offset = following + 1\n"),
    ],
)
def test_a_planted_mistake_is_noticed_by_one_history_or_another(right: str, wrong: str) -> None:
    mistaken = planted(cleaner, right, wrong)

    def survives(seed: int) -> bool:
        try:
            live(mistaken, seed)
        except Exception:
            return False
        return True

    assert not all(survives(seed) for seed in range(25))
