"""Ranges of an object: read ahead, never more than a few at a time, and joined where a batch lies in two."""

from random import Random
from threading import Semaphore
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.archive import ranges as ranges_module
from trioka.archive.errors import DamagedSegment, StoreUnavailable
from trioka.archive.store import ReadOnlyStore

SIZE = 1000


class OneObject(ReadOnlyStore):
    """An object in memory, and the ranges that were read of it."""

    def __init__(self, data: bytes) -> None:
        self.url = self.name = "memory"
        self.data = data
        self.reads: list[tuple[int, int]] = []
        self.read_one = Semaphore(0)

    def read_range(self, key: str, start: int, size: int) -> memoryview:
        self.reads.append((start, size))
        self.read_one.release()
        return memoryview(self.data)[start : start + size]


@pytest.fixture
def ranges() -> ModuleType:
    return ranges_module


def small(module: ModuleType, store: OneObject, start: int = 0, *, read_to: int | None = None) -> ranges_module.Ranges:
    module.RANGE_BYTES = 10  # type: ignore[attr-defined]
    made: ranges_module.Ranges = module.Ranges(store, "object", start, SIZE, read_to=read_to)
    return made


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_module, "RANGE_BYTES", ranges_module.RANGE_BYTES)


def test_no_more_ranges_are_in_flight_than_the_limit(ranges: ModuleType) -> None:
    store = OneObject(bytes(SIZE))
    with small(ranges, store) as made:
        made.take()
        assert store.reads == [(0, 10)]  # a reader of a few records stops here
        made.take()
        assert made._next == 10 * (1 + ranges.RANGES_IN_FLIGHT)
        for _ in range(1 + ranges.RANGES_IN_FLIGHT):
            assert store.read_one.acquire(timeout=10)
        assert not store.read_one.acquire(blocking=False)
        assert len(store.reads) == 1 + ranges.RANGES_IN_FLIGHT


def test_nothing_is_read_ahead_beyond_what_the_caller_needs(ranges: ModuleType) -> None:
    store = OneObject(bytes(SIZE))
    with small(ranges, store, 15, read_to=32) as made:
        made.take()
        made.take()
        assert made._next == 40  # where the next range would begin


def test_a_window_has_the_bytes_of_the_object_in_any_pieces(ranges: ModuleType) -> None:
    data = Random(1).randbytes(SIZE)
    for seed in range(20):
        random, position = Random(seed), 0
        with small(ranges, OneObject(data)) as made:
            window = ranges.Window(made)
            while position < SIZE:
                size = random.choice((1, 5, 10, 11, 61, 200))
                assert window.grow(size) == (position + size <= SIZE)
                taken = min(size, SIZE - position)
                assert bytes(window.view[:taken]) == data[position : position + taken]
                window.skip(taken)
                position += taken
        assert not window.grow(1)


def test_an_object_that_ends_too_early_is_damaged(ranges: ModuleType) -> None:
    with small(ranges, OneObject(bytes(25))) as made, pytest.raises(DamagedSegment, match="ends at byte 25"):
        for _ in made:
            pass


def test_an_error_of_the_store_reaches_the_reader(ranges: ModuleType) -> None:
    class Failing(OneObject):
        def read_range(self, key: str, start: int, size: int) -> memoryview:
            if start >= 20:
                raise StoreUnavailable("no answer")
            return super().read_range(key, start, size)

    with small(ranges, Failing(bytes(SIZE))) as made:
        assert len(made.take()) == len(made.take()) == 10
        with pytest.raises(StoreUnavailable):
            made.take()


def test_the_next_object_is_requested_while_the_end_of_this_one_is_used(ranges: ModuleType) -> None:
    stores = [OneObject(bytes(25)), OneObject(bytes(100))]

    def open_ranges(number: int) -> ranges_module.Ranges:
        ranges.RANGE_BYTES = 10  # type: ignore[attr-defined]
        made: ranges_module.Ranges = ranges.Ranges(stores[number], "object", 0, len(stores[number].data))
        return made

    ahead = ranges.ReadAhead(open_ranges)
    with open_ranges(0) as first:
        first.on_last = lambda: ahead.begin(1)
        for _ in range(2):
            first.take()
            assert stores[1].reads == []
        assert len(first.take()) == 5
    begun = ahead.take(1)
    assert begun is not None
    assert stores[1].read_one.acquire(timeout=10)
    assert stores[1].reads == [(0, 10)]
    with begun as second:
        assert len(second.take()) == 10
        for _ in range(ranges.RANGES_IN_FLIGHT - 1):
            assert stores[1].read_one.acquire(timeout=10), "the reader goes on, so several are in flight at once"
        assert sum(len(piece) for piece in second) == 90
    assert ahead.take(1) is None
    ahead.close()


MISTAKES: list[tuple[str, str, Rule]] = [
    ("len(self._in_flight) < self._window", "True", test_no_more_ranges_are_in_flight_than_the_limit),
    (
        "self._in_flight and self._next >= self._read_to",
        "False",
        test_nothing_is_read_ahead_beyond_what_the_caller_needs,
    ),
    (
        "self._after = piece[take:]",
        "self._after = memoryview(b'')",
        test_a_window_has_the_bytes_of_the_object_in_any_pieces,
    ),
    ("self.on_last()", "pass", test_the_next_object_is_requested_while_the_end_of_this_one_is_used),
    ("len(found) != stop - start", "False", test_an_object_that_ends_too_early_is_damaged),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(ranges_module, right, wrong, rule)
