"""The sparse indexes: Kafka's bytes, a list's answers, and no trust in either."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioka.storage.files.file_pool import FilePool
from trioka.storage.segments.index import TAIL_ENTRIES, CorruptIndex, OffsetIndex, TimeIndex
from trioka.testing.disks.memory_disk import MemoryDisk

PATH = "/d/00000000000000000100.index"


def files() -> FilePool:
    disk = MemoryDisk()
    disk.make_directory("/d")
    return FilePool(disk)


def test_the_offset_index_is_kafkas_to_the_byte() -> None:
    pool = files()
    index = OffsetIndex(pool, PATH, 100)
    index.append(105, 0)
    index.append(100 + 2**31 - 1, 4097)
    index.entries.write_out()
    assert pool.disk.read(PATH).hex() == "00000005 00000000 7fffffff 00001001".replace(" ", "")


def test_the_time_index_is_kafkas_to_the_byte() -> None:
    pool = files()
    index = TimeIndex(pool, PATH, 100)
    index.append(1_700_000_000_000, 105)
    index.append(1_700_000_000_000, 120)  # no news
    index.append(1_699_999_999_999, 130)  # older
    index.append(1_700_000_000_001, 140)
    index.entries.write_out()
    assert pool.disk.read(PATH).hex() == "0000018bcfe56800 00000005 0000018bcfe56801 00000028".replace(" ", "")


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), min_size=1, max_size=60),
    written=st.integers(0, 60),
    reopened=st.booleans(),
    target=st.integers(-5, 3100),
)
def test_a_look_up_is_a_bisection_of_a_list(
    steps: list[tuple[int, int]], written: int, reopened: bool, target: int
) -> None:
    """Wherever the border lies between what is on disk and what waits in memory."""
    pool = files()
    index = OffsetIndex(pool, PATH, 100)
    entries: list[tuple[int, int]] = []
    offset, position = 99, 0
    for number, (more, size) in enumerate(steps):
        offset, position = offset + more, position + size
        index.append(offset, position)
        entries.append((offset, position))
        if number == written:
            index.entries.write_out()
    if reopened:
        index.entries.write_out()
        index = OffsetIndex(pool, PATH, 100)
        assert index.load_last() == entries[-1]
    assert index.count_up_to(100 + target) == bisect_right([entry[0] for entry in entries], 100 + target)
    for guess in (0, len(entries) // 2, len(entries) + 5):
        assert index.count_before(target * 50, guess) == bisect_right([entry[1] for entry in entries], target * 50)
    assert [index.entry(number) for number in range(len(entries))] == entries
    index.truncate_to(100 + target)
    left = [entry for entry in entries if entry[0] < 100 + target]
    assert len(index.entries) == len(left)
    assert index.load_last() == (left[-1] if left else None)


def test_no_more_entries_wait_in_memory_than_the_limit() -> None:
    pool = files()
    index = OffsetIndex(pool, PATH, 0)
    for number in range(TAIL_ENTRIES * 2 + 3):
        index.append(number, number * 10)
    assert len(index.entries.tail) == 3 * 8
    assert pool.disk.size(PATH) == TAIL_ENTRIES * 2 * 8
    assert index.count_up_to(TAIL_ENTRIES * 2) == TAIL_ENTRIES * 2 + 1


def test_an_index_of_an_odd_size_is_damaged() -> None:
    pool = files()
    pool.disk.open(PATH, create=True).write(0, bytes(9))
    with pytest.raises(CorruptIndex):
        OffsetIndex(pool, PATH, 0).count_up_to(5)


def test_an_entry_that_cannot_be_is_damage() -> None:
    pool = files()
    pool.disk.open(PATH, create=True).write(0, b"\xff" * 24)
    with pytest.raises(CorruptIndex):
        OffsetIndex(pool, PATH, 0).entry(1)
    with pytest.raises(CorruptIndex):
        TimeIndex(pool, PATH, 0).entry(1)


def test_offsets_must_rise() -> None:
    index = OffsetIndex(files(), PATH, 0)
    index.append(5, 0)
    with pytest.raises(AssertionError):
        index.append(5, 10)


def test_an_index_knows_when_it_is_full() -> None:
    pool = files()
    offsets, times = OffsetIndex(pool, PATH, 0), TimeIndex(pool, "/d/t", 0)
    offsets.append(1, 0)
    assert not offsets.is_full(16)
    assert offsets.is_full(15)
    times.append(1, 1)
    assert not times.is_full(36), "one more, and the one that closes the segment"
    assert times.is_full(35)


def test_an_index_that_was_not_there_has_no_entries() -> None:
    index = OffsetIndex(files(), PATH, 0)
    assert len(index.entries) == 0
    assert index.count_up_to(10**6) == 0
    assert index.load_last() is None
