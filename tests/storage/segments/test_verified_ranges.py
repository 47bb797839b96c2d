"""The set of checked bytes, against a set of numbers."""

from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from trioka.storage.segments.verified_ranges import MAX_VERIFIED_RANGES, VerifiedRanges

RANGES = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted)


@given(st.lists(RANGES, max_size=12), RANGES, st.integers(0, 60))
def test_spans_are_a_set_of_bytes(added: list[list[int]], requested: list[int], size: int) -> None:
    spans, model = VerifiedRanges(), set[int]()
    for start, end in added:
        spans.grow(start, end)
        model |= set(range(start, end))
    assert spans.covers(*requested) == (set(range(*requested)) <= model)
    spans.cut(size)
    model = {byte for byte in model if byte < size}
    assert spans.covers(*requested) == (set(range(*requested)) <= model)


def test_too_many_spans_are_forgotten_and_never_made_up() -> None:
    spans = VerifiedRanges()
    for index in range(MAX_VERIFIED_RANGES * 2):
        spans.add(index * 10, index * 10 + (1 if index == 3 else 5))
    assert not spans.covers(30, 31), "the shortest went"
    assert not spans.covers(0, 10)
    assert spans.covers((MAX_VERIFIED_RANGES * 2 - 1) * 10, (MAX_VERIFIED_RANGES * 2 - 1) * 10 + 5)


@given(st.lists(RANGES, max_size=12), st.lists(st.integers(0, 60), min_size=1, max_size=3), RANGES)
def test_nothing_is_remembered_of_what_a_worker_thread_reads(
    added: list[list[int]], positions: list[int], requested: list[int]
) -> None:
    spans, model = VerifiedRanges(), set[int]()
    with ExitStack() as workers:
        for position in positions:
            workers.enter_context(spans.suspended(position))
        for start, end in added:
            spans.grow(start, end)
            model |= set(range(start, min(end, *positions, end)))
        assert spans.covers(*requested) == (set(range(*requested)) <= model)
    assert spans.covers(*requested) == (set(range(*requested)) <= model)
    spans.grow(0, 60)
    assert spans.covers(0, 60)
