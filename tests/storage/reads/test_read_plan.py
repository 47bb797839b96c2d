"""Planning a read: whole batches, from the right one on, within the limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.log_fixtures import append, batch, open_log, read_all

from trioka.protocol.batch import headers
from trioka.protocol.errors import OffsetOutOfRange
from trioka.storage.files.file_pool import FileRange
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig

SIZES = st.lists(st.sampled_from((10, 40, 300, 5000)), min_size=1, max_size=30)


def filled(sizes: list[int], interval: int = 200) -> Log:
    log = open_log(config=LogConfig(segment_bytes=20_000, index_interval_bytes=interval))
    for number, size in enumerate(sizes):
        append(log, f"{number}:{'x' * size}", "second")
    return log


def batches(records: FileRange | None) -> list[int]:
    assert records is not None
    data = records.read()
    assert len(data) == len(records)
    return [header.base_offset for header in headers(data)]  # raises unless they are whole


@given(
    sizes=SIZES,
    interval=st.sampled_from((0, 200, 4096)),
    start=st.integers(0, 60),
    max_bytes=st.integers(0, 12_000),
    upto=st.integers(0, 60),
    at_least_one=st.booleans(),
)
def test_a_read_is_the_longest_run_of_whole_batches(
    sizes: list[int], interval: int, start: int, max_bytes: int, upto: int, at_least_one: bool
) -> None:
    log = filled(sizes, interval)
    start, upto = min(start, log.log_end_offset), min(upto, log.log_end_offset)
    answer = log.read(start, max_bytes, upto=upto, at_least_one=at_least_one)
    readable = [
        (place.base_offset, place.size)
        for segment in log.segments
        for place in segment.places()
        if place.last_offset >= start and place.last_offset < upto and segment is holding(log, start)
    ]
    if start >= upto or not readable or (readable[0][1] > max_bytes and not at_least_one):
        assert answer.records is None
        assert answer.next_offset == start
        return
    found = batches(answer.records)
    assert found == [base for base, _ in readable[: len(found)]]
    assert answer.start_offset == found[0] <= start
    assert found[-1] < answer.next_offset <= upto
    assert len(found) == 1 or len(answer.records or ()) <= max_bytes
    if len(found) < len(readable):
        left = max_bytes - len(answer.records or ())
        following = readable[len(found)][1]
        assert following > left or left <= 8192, "much more would have fitted"
    else:
        assert answer.next_offset >= min(upto, found[-1] + 2)


def holding(log: Log, offset: int) -> object:
    return log.segments[log.segments.number_for(offset)]


def test_an_offset_within_a_batch_gets_the_whole_batch() -> None:
    log = open_log()
    append(log, "a", "b", "c")
    assert log.read(1, 10_000).start_offset == 0
    assert [record.value for record in read_all(log, 1)] == [b"b", b"c"]


def test_the_first_batch_goes_out_whole_however_small_the_limit() -> None:
    log = filled([5000])
    assert batches(log.read(0, 1).records) == [0]
    assert log.read(0, 1, at_least_one=False).records is None


def test_a_read_at_the_end_is_empty_and_beyond_it_out_of_range() -> None:
    log = filled([10])
    assert log.read(2, 100).records is None
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 100)
    log.advance_high_watermark(2)
    log.delete_records_before(1)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)


def test_nothing_is_read_from_the_limit_on() -> None:
    """The high watermark, or the last stable offset (I11)."""
    log = filled([10, 10, 10])
    assert batches(log.read(0, 10_000, upto=4).records) == [0, 2]
    assert batches(log.read(0, 10_000, upto=5).records) == [0, 2], "half a batch is not readable"
    assert log.read(4, 10_000, upto=4).records is None


def test_a_read_goes_on_in_the_next_segment_where_compaction_left_a_gap() -> None:
    log = open_log(config=LogConfig(segment_bytes=200))
    log.append_as_follower(batch("a", base_offset=0) + batch("b" * 100, base_offset=7), now_ms=0)
    assert len(log.segments) == 2
    assert log.read(3, 1000).start_offset == 7


def test_a_plan_costs_a_bounded_number_of_reads() -> None:
    """However long the segment: one look for the first batch, one for the end."""
    log = filled([300] * 50, interval=200)
    disk = log.files.disk
    log.read(20, 3000)
    before = disk.operation_count  # type: ignore[attr-defined]
    log.read(20, 3000)
    assert disk.operation_count - before <= 3  # type: ignore[attr-defined]
