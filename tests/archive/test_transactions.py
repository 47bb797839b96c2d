"""Which batches of a slice are aborted, whichever segment has the marker, and what is not decided."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.archive_manifests import made_up_manifest

from trioka.archive import transactions as transactions_module
from trioka.archive.errors import DamagedSegment, MissingOffsets
from trioka.archive.lineage import Slice
from trioka.protocol.batch import BatchHeader, build, read_header
from trioka.protocol.record import Record
from trioka.protocol.remote_segment.indexes import AbortedTransaction, LeaderEpoch

AbortedIn = Callable[[Slice], Sequence[AbortedTransaction]]


def slices_of(*ranges: tuple[int, int]) -> list[Slice]:
    """Slices that are used to the end of their segments."""
    return [slice_of(start, end) for start, end in ranges]


def slice_of(start: int, end: int, segment_end: int | None = None) -> Slice:
    manifest = made_up_manifest(start, segment_end or end, [LeaderEpoch(0, start)])
    return Slice(manifest=manifest, start_offset=start, end_offset=end)


def entries(found: Mapping[int, Sequence[AbortedTransaction]]) -> AbortedIn:
    """The transaction index of each segment, by the start of the slice."""
    return lambda each: found.get(each.start_offset, ())


def nothing_open(_: Slice) -> dict[int, int]:
    return {}


def batch(offset: int, *, producer: int = 7, transactional: bool = True, control: bool = False) -> BatchHeader:
    return read_header(
        build(
            [Record(offset, 0, b"", b"")],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
            control=control,
        )
    )


@pytest.fixture
def transactions() -> ModuleType:
    return transactions_module


def test_a_batch_is_aborted_between_the_first_record_and_the_marker(transactions: ModuleType) -> None:
    aborted = transactions.AbortedTransactions(
        [AbortedTransaction(7, 30, 35, 30), AbortedTransaction(7, 10, 20, 10), AbortedTransaction(8, 0, 9, 0)]
    )
    assert [offset for offset in range(40) if aborted.has(batch(offset))] == [*range(10, 21), *range(30, 36)]
    assert not aborted.has(batch(15, transactional=False))
    assert not aborted.has(batch(20, control=True))
    assert not aborted.has(batch(15, producer=9))


def test_the_marker_may_be_in_a_later_segment(transactions: ModuleType) -> None:
    slices = slices_of((0, 10), (10, 20), (20, 30))
    late = AbortedTransaction(7, 5, 25, 5)
    found = transactions.aborted_transactions(slices, 0, entries({20: [late]}), nothing_open, fail_on_data_loss=True)
    assert [tuple(each) for each in found] == [tuple(late)]


def test_the_search_ends_at_an_entry_that_was_stable_beyond_the_slice(transactions: ModuleType) -> None:
    searched: list[int] = []

    def aborted_in(each: Slice) -> Sequence[AbortedTransaction]:
        searched.append(each.start_offset)
        return [AbortedTransaction(7, 12, 15, 10)] if each.start_offset == 10 else ()

    slices = slices_of((0, 10), (10, 20), (20, 30))
    assert transactions.aborted_transactions(slices, 0, aborted_in, nothing_open, fail_on_data_loss=True) == []
    assert searched == [0, 10]


def test_entries_of_another_leaders_rest_do_not_count(transactions: ModuleType) -> None:
    slices = [slice_of(0, 10, segment_end=30), slice_of(10, 20)]
    index = {0: [AbortedTransaction(7, 2, 4, 2), AbortedTransaction(7, 5, 15, 5)], 10: ()}
    found = transactions.aborted_transactions(slices, 0, entries(index), nothing_open, fail_on_data_loss=True)
    assert [each.first_offset for each in found] == [2]


def test_before_a_hole_what_is_open_is_lost_and_said_so(transactions: ModuleType) -> None:
    slices = slices_of((0, 10), (20, 30))

    def open_at_end_of(_: Slice) -> dict[int, int]:
        return {7: 6}

    found = transactions.aborted_transactions(slices, 0, entries({}), open_at_end_of, fail_on_data_loss=False)
    aborted = transactions.AbortedTransactions(found)
    assert [offset for offset in range(10) if aborted.has(batch(offset))] == [6, 7, 8, 9]
    with pytest.raises(MissingOffsets, match="10 to 19"):
        transactions.aborted_transactions(slices, 0, entries({}), open_at_end_of, fail_on_data_loss=True)
    closed = transactions.aborted_transactions(slices, 0, entries({}), nothing_open, fail_on_data_loss=True)
    assert closed == []


def test_a_hole_behind_another_leaders_rest_is_not_guessed(transactions: ModuleType) -> None:
    slices = [slice_of(0, 10, segment_end=15), slice_of(20, 30)]
    with pytest.raises(DamagedSegment, match="is not known"):
        transactions.aborted_transactions(slices, 0, entries({}), nothing_open, fail_on_data_loss=False)


def test_the_archive_is_stable_up_to_its_first_open_transaction(transactions: ModuleType) -> None:
    assert transactions.stable_end(slice_of(10, 30), {}) == 30
    assert transactions.stable_end(slice_of(10, 30), {7: 25, 8: 5}) == 5


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "first <= batch.base_offset <= last",
        "first <= batch.base_offset",
        test_a_batch_is_aborted_between_the_first_record_and_the_marker,
    ),
    (
        "batch.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL",
        "False",
        test_a_batch_is_aborted_between_the_first_record_and_the_marker,
    ),
    ("range(number, len(slices))", "range(number, number + 1)", test_the_marker_may_be_in_a_later_segment),
    (
        "entry.last_stable_offset >= upper_bound",
        "False",
        test_the_search_ends_at_an_entry_that_was_stable_beyond_the_slice,
    ),
    (
        "not current.start_offset <= entry.last_offset < current.end_offset",
        "False",
        test_entries_of_another_leaders_rest_do_not_count,
    ),
    ("return found + lost", "return found", test_before_a_hole_what_is_open_is_lost_and_said_so),
    ("lost and fail_on_data_loss", "False", test_before_a_hole_what_is_open_is_lost_and_said_so),
    (
        "last.end_offset != last.manifest.next_offset",
        "False",
        test_a_hole_behind_another_leaders_rest_is_not_guessed,
    ),
    (
        "min([*open_transactions.values(), last.end_offset])",
        "last.end_offset",
        test_the_archive_is_stable_up_to_its_first_open_transaction,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(transactions_module, right, wrong, rule)
