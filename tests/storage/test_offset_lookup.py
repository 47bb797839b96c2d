"""Offsets by time. (The random walk compares them with a list, too.)"""

from support.log_fixtures import NOW_MS, append, batch, open_log

from trioka.protocol.batch import build, read_header, set_max_timestamp
from trioka.protocol.record import NO_TIMESTAMP, Record
from trioka.storage.log import Log
from trioka.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp


def log_with(*times: int) -> Log:
    log = open_log()
    for time in times:
        append(log, "x" * 50, timestamp=NOW_MS + time)
    return log


def test_the_first_record_at_or_after_a_time_is_found_in_any_segment() -> None:
    log = log_with(*range(0, 400, 10))
    assert len(log.segments) > 3
    for time in (0, 1, 155, 390):
        found = offset_for_timestamp(log, NOW_MS + time)
        assert found is not None
        assert (found.offset, found.timestamp) == (-(-time // 10), NOW_MS - (-time // 10) * 10)
    assert offset_for_timestamp(log, NOW_MS + 391) is None
    assert offset_for_timestamp(log, 0) == (0, NOW_MS, 0)


def test_records_out_of_order_are_found_by_offset() -> None:
    found = offset_for_timestamp(log_with(50, 10, 60, 20), NOW_MS + 20)
    assert found is not None
    assert found.offset == 0
    assert offset_for_timestamp(log_with(5, 10, 60, 20), NOW_MS + 20) == (2, NOW_MS + 60, 0)


def test_the_answer_is_a_record_within_its_batch() -> None:
    log = open_log()
    append(log, "a", "b", "c", epoch=4)
    assert offset_for_timestamp(log, NOW_MS + 1) == (1, NOW_MS + 1, 4)


def test_nothing_beyond_the_limit_or_before_the_start_is_listed() -> None:
    log = log_with(0, 10, 20)
    assert offset_for_timestamp(log, NOW_MS + 10, upto=1) is None
    log.advance_high_watermark(3)
    log.delete_records_before(2)
    assert offset_for_timestamp(log, 0) == (2, NOW_MS + 20, 0)


def test_the_newest_record_is_the_first_of_the_newest() -> None:
    assert offset_of_max_timestamp(log_with(10, 30, 20, 30)) == (1, NOW_MS + 30, 0)
    assert offset_of_max_timestamp(open_log()) is None


def test_records_without_a_time_have_none() -> None:
    log = open_log()
    data = build([Record(0, NO_TIMESTAMP, b"k", b"v")])
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    assert offset_of_max_timestamp(log) is None
    assert offset_for_timestamp(log, 0) is None


def test_a_header_that_promises_more_than_its_records_hold_is_not_believed() -> None:
    log = open_log()
    data = batch("a", timestamp=NOW_MS)
    set_max_timestamp(data, read_header(data), NOW_MS + 500, 0)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    append(log, "b", timestamp=NOW_MS + 400)
    assert offset_for_timestamp(log, NOW_MS + 300) == (1, NOW_MS + 400, 0)
