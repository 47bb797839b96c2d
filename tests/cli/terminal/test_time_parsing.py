"""Times as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioka.cli.terminal.time_parsing import parse_duration_ms, parse_moment_ms, show_bytes, show_duration, show_moment

NOW = 1_794_800_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", 30_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1.5s", 1500),
        ("7d", 604_800_000),
        ("P7D", 604_800_000),
        ("PT1M", 60_000),
        ("P1DT12H", 129_600_000),
        ("-PT1M", -60_000),
    ],
)
def test_a_length_of_time_is_read(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "P", "PT", "1h nothing", "one hour"])
def test_what_is_no_length_of_time_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is no length of time"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1700000000000", 1_700_000_000_000),
        ("-1h", NOW - 3_600_000),
    ],
)
def test_a_point_in_time_is_utc_without_an_offset(text: str, ms: int) -> None:
    assert parse_moment_ms(text, NOW) == ms


def test_what_is_no_point_in_time_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="is no point in time"):
        parse_moment_ms("yesterday", NOW)


@given(st.integers(0, 4_000_000_000_000))
def test_a_moment_that_is_shown_is_read_again(ms: int) -> None:
    assert parse_moment_ms(show_moment(ms), NOW) == ms


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0ms"), (999, "999ms"), (250_000, "4m10s"), (273_600_000, "3d4h"), (3_600_000, "1h"), (-1, "-1ms")],
)
def test_a_length_is_shown_by_its_two_largest_parts(ms: int, shown: str) -> None:
    assert show_duration(ms) == shown


def test_bytes_are_shown_in_thousands() -> None:
    assert [show_bytes(size) for size in (0, 999, 1200, 1_200_000_000)] == ["0 B", "999 B", "1.2 KB", "1.2 GB"]
