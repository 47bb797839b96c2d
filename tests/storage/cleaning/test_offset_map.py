"""The offset map: exact, and bounded."""

import tracemalloc
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.storage.cleaning import offset_map


@pytest.fixture
def storage() -> ModuleType:
    return offset_map


def test_a_key_has_its_last_offset_and_an_unknown_one_none(storage: ModuleType) -> None:
    offsets = storage.OffsetMap()
    offsets.put(b"a", 3)
    offsets.put(b"b", 4)
    offsets.put(b"a", 7)
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"c"), len(offsets)) == (7, 4, -1, 2)


def test_only_new_keys_count_towards_the_limit(storage: ModuleType) -> None:
    offsets = storage.OffsetMap(500)
    for offset in range(100):
        offsets.put(b"a", offset)
    assert not offsets.is_full
    offsets.put(b"b", 100)
    offsets.put(b"c", 101)
    assert offsets.is_full


def test_long_keys_fill_the_map_sooner(storage: ModuleType) -> None:
    offsets = storage.OffsetMap(1000)
    offsets.put(b"x" * 900, 0)
    assert offsets.is_full


@pytest.mark.parametrize(("first", "size"), [(0, 8), (2**40, 1), (2**40, 40)])
def test_a_full_map_needs_no_more_memory_than_its_limit_says(first: int, size: int) -> None:
    limit = 2 * 1024 * 1024
    tracemalloc.start()
    try:
        offsets = offset_map.OffsetMap(limit)
        number = first
        while not offsets.is_full:
            offsets.put(number.to_bytes(8, "big") + bytes(size), number)
            number += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit


MISTAKES: list[tuple[str, str, Rule]] = [
    ("        self._offsets[key] = offset\n", "        self._offsets.setdefault(key, offset)\n",
     test_a_key_has_its_last_offset_and_an_unknown_one_none),
    ("if key not in self._offsets:", "if True:", test_only_new_keys_count_towards_the_limit),
    ("len(key) + ENTRY_BYTES", "ENTRY_BYTES", test_long_keys_fill_the_map_sooner),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(offset_map, right, wrong, rule)
