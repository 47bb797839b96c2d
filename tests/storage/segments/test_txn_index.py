"""The transaction index: Kafka's bytes, and every aborted transaction that a reader has to skip."""

from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.storage.files.layout import CorruptFile
from trioka.storage.segments import txn_index
from trioka.storage.segments.txn_index import AbortedTransaction, TransactionIndex
from trioka.testing.disks.memory_disk import MemoryDisk

PATH = "/logs/orders-0/00000000000000000000.txnindex"

# Written by Kafka 4.3.1: (1000, 5, 11, 12) and (1001, 2, 20, 3).
KAFKA = bytes.fromhex(
    "000000000000000003e80000000000000005000000000000000b000000000000000c"
    "000000000000000003e9000000000000000200000000000000140000000000000003"
)
TWO = [AbortedTransaction(1000, 5, 11, 12), AbortedTransaction(1001, 2, 20, 3)]


@pytest.fixture
def storage() -> ModuleType:
    return txn_index


def index_of(storage: ModuleType, *entries: AbortedTransaction) -> tuple[TransactionIndex, MemoryDisk]:
    disk = MemoryDisk()
    disk.make_directory("/logs/orders-0")
    index = storage.TransactionIndex(disk, PATH, 0)
    for entry in entries:
        index.append(entry)
    return index, disk


def test_entries_are_kafkas_bytes_in_both_directions(storage: ModuleType) -> None:
    index, disk = index_of(storage, *TWO)
    assert disk.read(PATH) == KAFKA
    assert list(index) == list(storage.TransactionIndex(MemoryDisk({PATH: KAFKA}), PATH, 0)) == TWO


def test_there_is_no_file_before_the_first_abort(storage: ModuleType) -> None:
    index, disk = index_of(storage)
    assert len(index) == 0
    assert index.overlapping(0, 100) == ([], False)
    index.truncate_to(5)
    index.reset()
    index.sanity_check()
    index.flush()
    assert not disk.exists(PATH)


def test_a_look_up_finds_what_overlaps_the_range(storage: ModuleType) -> None:
    short, long = AbortedTransaction(1000, 5, 11, 2), AbortedTransaction(1001, 2, 20, 21)
    index, _ = index_of(storage, short, long)
    assert index.overlapping(0, 2).transactions == []
    assert index.overlapping(0, 3).transactions == [long]
    assert index.overlapping(0, 5).transactions == [long]
    assert index.overlapping(0, 6).transactions == [short, long]
    assert index.overlapping(11, 12).transactions == [short, long]
    assert index.overlapping(12, 13).transactions == [long]
    assert index.overlapping(20, 21).transactions == [long]
    assert index.overlapping(21, 22).transactions == []


def test_a_look_up_stops_where_the_log_was_stable(storage: ModuleType) -> None:
    first, second = AbortedTransaction(1, 5, 11, 12), AbortedTransaction(2, 12, 14, 15)
    index, _ = index_of(storage, first, second)
    assert index.overlapping(0, 12) == ([first], True)
    assert index.overlapping(0, 13) == ([first, second], True)
    assert index.overlapping(0, 11) == ([first], True)
    assert index.overlapping(0, 15) == ([first, second], True)
    assert index.overlapping(0, 16) == ([first, second], False)


def test_the_last_offset_rises(storage: ModuleType) -> None:
    index, _ = index_of(storage, *TWO)
    with pytest.raises(AssertionError):
        index.append(AbortedTransaction(1, 15, 20, 21))
    reopened = storage.TransactionIndex(MemoryDisk({PATH: KAFKA}), PATH, 0)
    with pytest.raises(AssertionError):
        reopened.append(AbortedTransaction(1, 15, 20, 21))


def test_truncating_forgets_aborts_whose_marker_is_gone(storage: ModuleType) -> None:
    for offset, left in [(21, 2), (20, 1), (12, 1), (11, 0), (0, 0)]:
        index, disk = index_of(storage, *TWO)
        index.truncate_to(offset)
        assert list(index) == TWO[:left]
        assert disk.size(PATH) == left * 34
        index.append(AbortedTransaction(7, 15, 21, 22))
        assert len(index) == left + 1


def test_a_torn_last_entry_is_not_there_and_is_overwritten(storage: ModuleType) -> None:
    for torn in range(1, 34):
        disk = MemoryDisk({PATH: KAFKA[: 34 + torn]})
        index = storage.TransactionIndex(disk, PATH, 0)
        assert list(index) == TWO[:1]
        with pytest.raises(CorruptFile):
            index.sanity_check()
        index.append(TWO[1])
        assert disk.read(PATH) == KAFKA
        index.sanity_check()


def test_what_cannot_be_is_noticed_by_the_sanity_check(storage: ModuleType) -> None:
    for entries in (
        [AbortedTransaction(-1, 5, 11, 12)],
        [AbortedTransaction(1, -5, 11, 12)],
        [AbortedTransaction(1, 11, 11, 12)],
        [AbortedTransaction(1, 5, 11, 13)],
        [AbortedTransaction(1, 5, 11, -1)],
        [AbortedTransaction(1, 5, 11, 12), AbortedTransaction(1, 5, 11, 12)],
        [AbortedTransaction(1, 1, 2, 3)],  # below the segment's base offset
    ):
        data = b"".join(txn_index.ENTRY.pack(0, *entry) for entry in entries)
        with pytest.raises(CorruptFile):
            storage.TransactionIndex(MemoryDisk({PATH: data}), PATH, 5).sanity_check()
    storage.TransactionIndex(MemoryDisk({PATH: KAFKA}), PATH, 5).sanity_check()


def test_an_entry_of_another_version_is_refused(storage: ModuleType) -> None:
    index = storage.TransactionIndex(MemoryDisk({PATH: b"\0\1" + KAFKA[2:]}), PATH, 0)
    with pytest.raises(CorruptFile, match="version 1"):
        list(index)


def test_a_reset_index_is_empty_whatever_stood_in_it(storage: ModuleType) -> None:
    disk = MemoryDisk({PATH: b"\xff" * 1000})
    index = storage.TransactionIndex(disk, PATH, 0)
    index.reset()
    assert disk.size(PATH) == len(index) == 0
    index.append(TWO[0])
    assert list(index) == TWO[:1]


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_index, "MAX_ABORTED", 1)
    index, _ = index_of(txn_index, *TWO)
    with pytest.raises(CorruptFile, match="more than 1"):
        index.overlapping(0, 100)


def test_a_renamed_index_is_found_under_its_new_name(storage: ModuleType) -> None:
    index, disk = index_of(storage, *TWO)
    index.close()
    disk.rename(PATH, PATH + ".deleted")
    index.moved(PATH + ".deleted")
    assert list(index) == TWO


@pytest.mark.parametrize("seed", range(20))
def test_no_aborted_transaction_is_missed_in_any_range(seed: int) -> None:
    """Transactions of several producers, interleaved, some aborted; the index is compared with all of them."""
    random = Random(seed)
    opened: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    offset = 0
    while len(aborted) < 600 if seed == 0 else offset < 400:  # once with more entries than one chunk has
        producer = random.randrange(6)
        if producer in opened and random.random() < 0.4:
            first = opened.pop(producer)
            stable = min(opened.values(), default=offset + 1)
            if random.random() < 0.7:
                aborted.append(AbortedTransaction(producer, first, offset, stable))
        else:
            opened.setdefault(producer, offset)
        offset += 1
    index, _ = index_of(txn_index, *aborted)
    index.sanity_check()
    for _ in range(300):
        fetch = random.randrange(offset)
        bound = random.randrange(fetch + 1, offset + 2)
        found, complete = index.overlapping(fetch, bound)
        expected = [entry for entry in aborted if entry.last_offset >= fetch and entry.first_offset < bound]
        assert found == expected
        if complete:
            assert all(entry in expected for entry in aborted if entry.first_offset < bound <= entry.last_offset)


MISTAKES: list[tuple[str, str, Rule]] = [
    ('struct.Struct(">hqqqq")', 'struct.Struct("<hqqqq")', test_entries_are_kafkas_bytes_in_both_directions),
    ("if entry.first_offset < upper_bound:", "if entry.first_offset <= upper_bound:",
     test_a_look_up_finds_what_overlaps_the_range),
    ("if self._entry(file, middle).last_offset < offset:",
     "if self._entry(file, middle).last_offset <= offset:",
     test_a_look_up_finds_what_overlaps_the_range),
    ("if entry.last_stable_offset >= upper_bound:", "if entry.last_stable_offset > upper_bound:",
     test_a_look_up_stops_where_the_log_was_stable),
    ("if entry.last_stable_offset >= upper_bound:", "if entry.last_offset >= upper_bound - 1:",
     test_a_look_up_finds_what_overlaps_the_range),
    ("self._size = size - size % ENTRY_SIZE", "self._size = size",
     test_a_torn_last_entry_is_not_there_and_is_overwritten),
    ("                file.truncate(keep * ENTRY_SIZE)\n", "",
     test_truncating_forgets_aborts_whose_marker_is_gone),
    ("if version != VERSION:", "if False:", test_an_entry_of_another_version_is_refused),
    ("self._last_offset = self._entry(file, self._size // ENTRY_SIZE - 1).last_offset", "pass",
     test_the_last_offset_rises),
    ("if not previous < entry.last_offset:", "if False:", test_what_cannot_be_is_noticed_by_the_sanity_check),
    ("if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:", "if False:",
     test_what_cannot_be_is_noticed_by_the_sanity_check),
    ("if self._disk.exists(self.path):\n" "    file = self._disk.open(self.path)\n" "    try:\n"
     "        file.truncate(0)\n" "    finally:\n" "        file.close()",
     "if True:\n" "    file = self._disk.open(self.path, create=True)\n" "    try:\n" "        file.truncate(0)\n"
      "    finally:\n" "        file.close()",
     test_there_is_no_file_before_the_first_abort),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(txn_index, right, wrong, rule)
