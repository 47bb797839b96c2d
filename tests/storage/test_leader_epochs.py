"""The leader-epoch cache: answers that let two logs agree (I8), and a list that only rises (I9)."""

from collections.abc import Sequence
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.crash_enumeration import Promise, crash_everywhere

from trioka.storage import leader_epochs
from trioka.storage.files.checkpoint import EpochEntry, read_epochs
from trioka.storage.files.layout import CorruptFile
from trioka.testing.disks.disk_faults import Fault
from trioka.testing.disks.memory_disk import MemoryDisk

PATH = "/logs/orders-0/leader-epoch-checkpoint"


@pytest.fixture
def storage() -> ModuleType:
    return leader_epochs


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/logs/orders-0")
    return disk


def cache_of(storage: ModuleType, *entries: tuple[int, int]) -> tuple[leader_epochs.LeaderEpochCache, MemoryDisk]:
    disk = new_disk()
    cache = storage.LeaderEpochCache.load(disk, PATH)
    for epoch, start in entries:
        cache.assign(epoch, start)
    return cache, disk


def test_the_end_of_an_epoch_is_the_start_of_the_next_one(storage: ModuleType) -> None:
    cache, _ = cache_of(storage, (2, 10), (3, 17), (7, 30))
    assert cache.end_offset_for(2, 42) == (2, 17)
    assert cache.end_offset_for(3, 42) == (3, 30)


def test_the_latest_epoch_ends_where_the_log_ends(storage: ModuleType) -> None:
    cache, _ = cache_of(storage, (2, 10), (7, 30))
    assert cache.end_offset_for(7, 42) == (7, 42)


def test_an_unknown_epoch_is_answered_with_the_largest_below_it(storage: ModuleType) -> None:
    cache, _ = cache_of(storage, (2, 10), (3, 17), (7, 30))
    assert cache.end_offset_for(5, 42) == (3, 30)
    assert cache.end_offset_for(6, 42) == (3, 30)


def test_an_epoch_older_than_the_log_may_go_on_from_its_start(storage: ModuleType) -> None:
    cache, _ = cache_of(storage, (2, 10), (3, 17))
    assert cache.end_offset_for(1, 42) == (1, 10)


def test_an_epoch_of_the_future_or_none_at_all_is_undefined(storage: ModuleType) -> None:
    cache, _ = cache_of(storage, (2, 10), (3, 17))
    assert cache.end_offset_for(4, 42) == (-1, -1)
    assert cache.end_offset_for(-1, 42) == (-1, -1)
    assert cache_of(storage)[0].end_offset_for(0, 0) == (-1, -1)


def test_the_epoch_of_an_offset_is_the_one_that_covers_it(storage: ModuleType) -> None:
    cache, _ = cache_of(storage, (2, 10), (3, 17))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 16, 17, 99)] == [-1, 2, 2, 3, 3]
    assert (cache.start_offset_of(3), cache.start_offset_of(4), cache.start_offset_of(0)) == (17, -1, -1)
    assert (cache.latest_epoch, cache.earliest) == (3, (2, 10))


def test_a_new_epoch_survives_every_crash_after_assign_and_none_is_half_there(storage: ModuleType) -> None:
    def become_leader_twice(disk: MemoryDisk, promise: Promise) -> None:
        cache = storage.LeaderEpochCache.load(disk, PATH)
        for entry in (EpochEntry(3, 17), EpochEntry(4, 30)):
            cache.assign(*entry)
            promise(entry)

    def check(found: list[EpochEntry], promised: Sequence[EpochEntry]) -> None:
        assert found in ([], [(3, 17)], [(3, 17), (4, 30)])
        assert len(found) >= len(promised)

    report = crash_everywhere(
        become_leader_twice,
        prepare=lambda disk: disk.make_directory("/logs/orders-0"),
        recover=lambda disk: storage.LeaderEpochCache.load(disk, PATH).entries,
        check=check,
    )
    assert report.states > 10


def test_more_of_the_same_epoch_changes_nothing_and_writes_nothing(storage: ModuleType) -> None:
    cache, disk = cache_of(storage, (3, 17))
    disk.remove(PATH)
    assert cache.assign(3, 20) is False
    assert cache.entries == [(3, 17)]
    assert not disk.exists(PATH)


def test_an_entry_removes_what_it_contradicts(storage: ModuleType) -> None:
    for entry, expected in [
        ((4, 17), [(2, 10), (4, 17)]),  # epoch 3 had begun at 17 and written nothing
        ((4, 12), [(2, 10), (4, 12)]),  # the log was cut to 12
        ((3, 12), [(2, 10), (3, 12)]),
        ((1, 40), [(1, 40)]),
        ((4, 0), [(4, 0)]),
    ]:
        cache, disk = cache_of(storage, (2, 10), (3, 17), entry)
        assert cache.entries == expected
        assert read_epochs(disk, PATH) == expected


def test_cutting_the_end_forgets_epochs_that_start_there_or_later(storage: ModuleType) -> None:
    for end, expected in [(31, 3), (30, 2), (18, 2), (17, 1), (10, 0), (0, 0)]:
        cache, disk = cache_of(storage, (2, 10), (3, 17), (7, 30))
        cache.truncate_from_end(end)
        assert cache.entries == [(2, 10), (3, 17), (7, 30)][:expected]
        assert read_epochs(disk, PATH) == cache.entries


def test_cutting_the_start_keeps_the_epoch_that_covers_it_and_moves_its_start(storage: ModuleType) -> None:
    for start, expected in [
        (5, [(2, 10), (3, 17), (7, 30)]),
        (10, [(2, 10), (3, 17), (7, 30)]),
        (12, [(2, 12), (3, 17), (7, 30)]),
        (17, [(3, 17), (7, 30)]),
        (29, [(3, 29), (7, 30)]),
        (99, [(7, 99)]),
    ]:
        cache, disk = cache_of(storage, (2, 10), (3, 17), (7, 30))
        cache.truncate_from_start(start)
        assert cache.entries == expected
        assert read_epochs(disk, PATH) == expected


def test_clearing_forgets_on_disk_too(storage: ModuleType) -> None:
    cache, disk = cache_of(storage, (2, 10))
    cache.clear()
    assert cache.entries == read_epochs(disk, PATH) == []


def test_a_scan_writes_once_at_its_end(storage: ModuleType) -> None:
    disk = new_disk()
    cache = storage.LeaderEpochCache(disk, PATH)
    for epoch in range(5):
        cache.assign(epoch, epoch * 10, write=False)
    assert not disk.exists(PATH)
    cache.write()
    assert read_epochs(disk, PATH) == cache.entries
    assert len(cache.entries) == 5


def test_a_failed_write_leaves_the_cache_as_it_was(storage: ModuleType) -> None:
    for change in (
        lambda cache: cache.assign(9, 50),
        lambda cache: cache.truncate_from_end(17),
        lambda cache: cache.truncate_from_start(17),
        lambda cache: cache.clear(),
    ):
        cache, disk = cache_of(storage, (2, 10), (3, 17))
        disk.faults.add(Fault(nth=1))
        with pytest.raises(OSError, match="Input/output"):
            change(cache)  # type: ignore[no-untyped-call]
        assert cache.entries == [(2, 10), (3, 17)]


def test_a_damaged_checkpoint_is_refused() -> None:
    with pytest.raises(CorruptFile):
        leader_epochs.LeaderEpochCache.load(MemoryDisk({PATH: b"0\n1\n"}), PATH)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_cache_is_what_the_log_says(seed: int) -> None:
    """A log is modelled as a list: at each offset the epoch that wrote it."""
    random = Random(seed)
    cache, disk = cache_of(leader_epochs)
    log: list[int] = []
    start, epoch = 0, 0
    for _ in range(200):
        match random.randrange(5):
            case 0 | 1:
                epoch += random.randrange(3)
                cache.assign(epoch, len(log))
                log += [epoch] * random.randrange(1, 4)
            case 2:
                end = random.randint(start, len(log))
                del log[end:]
                cache.truncate_from_end(end)
            case 3 if len(log) > start:
                start = random.randrange(start, len(log))
                cache.truncate_from_start(start)
            case _:
                cache = leader_epochs.LeaderEpochCache.load(disk, PATH)
        live = log[start:]
        expected = [EpochEntry(e, start + live.index(e)) for e in sorted(set(live))]
        assert [entry for entry in cache.entries if entry.start_offset < len(log)] == expected
        for e in set(live):
            assert cache.end_offset_for(e, len(log)) == (e, start + max(i for i, x in enumerate(live) if x == e) + 1)


def test_what_was_written_ahead_is_taken_over_if_nothing_else_has_changed(storage: ModuleType) -> None:
    cache, disk = cache_of(storage, (2, 10))
    prepared = cache.prepared(5, 20)
    cache.write_ahead(prepared)
    assert read_epochs(disk, PATH) == [(2, 10), (5, 20)]
    assert cache.entries == [(2, 10)]
    cache.take(prepared, 21)
    storage.LeaderEpochCache(disk, PATH, cache.entries).take(prepared, 20)
    assert cache.entries == [(2, 10)]
    cache.take(prepared, 20)
    assert cache.entries == [(2, 10), (5, 20)]
    cache.take(prepared, 20)
    cache.truncate_from_end(15)
    cache.assign(3, 15)
    cache.take(prepared, 20)
    assert cache.entries == read_epochs(disk, PATH) == [(2, 10), (3, 15)]
    other = storage.LeaderEpochCache(disk, PATH, prepared.before)
    other.take(prepared, 20)
    assert other.entries == prepared.before


MISTAKES: list[tuple[str, str, Rule]] = [
    ("prepared.cache is self and", "", test_what_was_written_ahead_is_taken_over_if_nothing_else_has_changed),
    ("and prepared.before == self.entries", "", test_what_was_written_ahead_is_taken_over_if_nothing_else_has_changed),
    ("if is_the_same and prepared.after[-1].start_offset == log_end_offset:", "if is_the_same:",
     test_what_was_written_ahead_is_taken_over_if_nothing_else_has_changed),
    ("return epoch, log_end", "return epoch, self._starts[-1]", test_the_latest_epoch_ends_where_the_log_ends),
    ("return self._epochs[after - 1], self._starts[after]", "return epoch, self._starts[after]",
     test_an_unknown_epoch_is_answered_with_the_largest_below_it),
    ("return epoch, self._starts[0]", "return UNDEFINED_EPOCH, UNDEFINED_OFFSET",
     test_an_epoch_older_than_the_log_may_go_on_from_its_start),
    ("or epoch > self._epochs[-1]:", "or epoch > self._epochs[-1] + 1:",
     test_an_epoch_of_the_future_or_none_at_all_is_undefined),
    ("at = bisect_right(self._starts, offset)", "at = bisect_left(self._starts, offset)",
     test_the_epoch_of_an_offset_is_the_one_that_covers_it),
    ("        if write:\n", "        if False:\n",
     test_a_new_epoch_survives_every_crash_after_assign_and_none_is_half_there),
    ("keep = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))", "keep = len(epochs)",
     test_an_entry_removes_what_it_contradicts),
    ("keep = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))", "keep = bisect_left(epochs, epoch)",
     test_an_entry_removes_what_it_contradicts),
    ("keep = bisect_left(self._starts, end_offset)", "keep = bisect_right(self._starts, end_offset)",
     test_cutting_the_end_forgets_epochs_that_start_there_or_later),
    ("[EpochEntry(entries[covering].epoch, start_offset), *entries[covering + 1 :]]", "[*entries[covering + 1 :]]",
     test_cutting_the_start_keeps_the_epoch_that_covers_it_and_moves_its_start),
    ("EpochEntry(entries[covering].epoch, start_offset)", "entries[covering]",
     test_cutting_the_start_keeps_the_epoch_that_covers_it_and_moves_its_start),
    ("        if write:\n            self._write(entries)\n        self._epochs = [entry.epoch for entry in entries]\n",
     "        self._epochs = [entry.epoch for entry in entries]\n        if write:\n            self._write(entries)\n",
     test_a_failed_write_leaves_the_cache_as_it_was),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(leader_epochs, right, wrong, rule)
