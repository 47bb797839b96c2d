"""The rule of exactly once, and the window of a subscriber: pure, each with its planted mistakes."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed, within

from trioka.gateway.producing import sequences
from trioka.gateway.reading import batches
from trioka.gateway.subscribing import window
from trioka.protocol import batch
from trioka.protocol.record import EndTxnMarker, Record, marker_record


@pytest.fixture
def rules() -> ModuleType:
    return sequences


def verdicts(rules: ModuleType, state: "sequences.Sequences", *numbers: int) -> list[str]:
    return [each.value for each in state.plan(numbers)]


def test_what_the_cluster_has_committed_is_a_duplicate(rules: ModuleType) -> None:
    state = rules.Sequences(7)  # sequence 6 is the highest that was committed
    assert verdicts(rules, state, 6, 7, 8) == ["duplicate", "write", "write"]


def test_sequences_may_have_gaps_and_each_is_written_once(rules: ModuleType) -> None:
    state = rules.Sequences(0)
    assert verdicts(rules, state, 3, 3, 10, 10, 3) == ["write", "duplicate", "write", "duplicate", "duplicate"]
    state.committed([3, 10])
    assert state.next == 11
    assert verdicts(rules, state, 3, 10, 11) == ["duplicate", "duplicate", "write"]


def test_a_late_sequence_that_was_never_written_is_refused_and_no_duplicate(rules: ModuleType) -> None:
    state = rules.Sequences(0)
    state.committed([5])
    assert verdicts(rules, state, 4, 9, 8) == ["out of order", "write", "out of order"]


def test_a_plan_that_was_not_committed_changes_nothing(rules: ModuleType) -> None:
    state = rules.Sequences(0)
    assert verdicts(rules, state, 1, 2) == ["write", "write"]
    assert verdicts(rules, state, 1, 2) == ["write", "write"]


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_a_duplicate(rules: ModuleType) -> None:
    state = rules.Sequences(0)
    written = list(range(0, 4 * rules.MAX_REMEMBERED, 2))
    for start in range(0, len(written), 1000):
        state.committed(written[start : start + 1000])
    assert len(state._written) == rules.MAX_REMEMBERED
    assert verdicts(rules, state, 0, written[-1], written[-1] - 1) == ["duplicate", "duplicate", "out of order"]
    first = written[-rules.MAX_REMEMBERED]
    assert verdicts(rules, state, first - 3, first - 2) == ["duplicate", "duplicate"]
    assert verdicts(rules, state, first - 1, first, first + 1) == ["out of order", "duplicate", "out of order"]


def test_after_a_failure_later_requests_of_the_stream_wait_for_its_repetition(rules: ModuleType) -> None:
    order = rules.StreamOrder()
    assert order.may_write(1)
    order.failed(3)
    order.failed(2)
    order.failed(4)
    assert [order.may_write(each) for each in (3, 4, 5)] == [False, False, False]
    assert order.expected == 2
    assert [order.may_write(each) for each in (2, 3, 4)] == [True, True, True]


def test_a_stream_may_also_go_back_further(rules: ModuleType) -> None:
    order = rules.StreamOrder()
    order.failed(5)
    assert order.may_write(1) and order.may_write(9)


SEQUENCE_MISTAKES = [
    ("sequence >= upcoming", "sequence > upcoming", test_what_the_cluster_has_committed_is_a_duplicate),
    ("upcoming = sequence + 1", "pass", test_sequences_may_have_gaps_and_each_is_written_once),
    (
        "self._next = sequences[-1] + 1",
        "self._next = sequences[-1]",
        test_sequences_may_have_gaps_and_each_is_written_once,
    ),
    (
        "sequence < self._floor or sequence in chosen or self._was_written(sequence)",
        "sequence < self._next or sequence in chosen",
        test_a_late_sequence_that_was_never_written_is_refused_and_no_duplicate,
    ),
    (
        "self._floor = self._written[surplus - 1] + 1",
        "self._floor = self._written[surplus] + 1",
        test_what_is_remembered_is_bounded_and_what_is_forgotten_is_a_duplicate,
    ),
    ("del self._written[:surplus]", "pass", test_what_is_remembered_is_bounded_and_what_is_forgotten_is_a_duplicate),
    (
        "self._failed is None or sequence < self._failed",
        "True",
        test_after_a_failure_later_requests_of_the_stream_wait_for_its_repetition,
    ),
    (
        "self._failed is not None and sequence <= self._failed",
        "self._failed is not None",
        test_after_a_failure_later_requests_of_the_stream_wait_for_its_repetition,
    ),
    (
        "sequence <= self._failed",
        "sequence == self._failed",
        test_a_stream_may_also_go_back_further,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), SEQUENCE_MISTAKES)
def test_a_planted_mistake_in_sequences_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(sequences, right, wrong, rule)


# -- the window of a subscriber


@pytest.fixture
def windows() -> ModuleType:
    return window


def filled(windows: ModuleType, count: int = 3) -> "window.DeliveryWindow":
    state: window.DeliveryWindow = windows.DeliveryWindow(max_records=5, max_bytes=100)
    state.add_credit(10)
    for offset in range(count):
        state.sent(windows.Place("t", 0), offset, 10)
    return state


def test_credit_and_what_is_unacknowledged_limit_what_is_sent(windows: ModuleType) -> None:
    state = filled(windows)
    assert state.allowed == 2  # five may be unacknowledged
    assert state.accept(windows.Place("t", 0), 1)
    assert (state.allowed, state.unacknowledged) == (4, 1)
    assert not state.accept(windows.Place("t", 0), 1)
    assert not state.accept(windows.Place("other", 0), 1)
    for offset in range(3, 7):
        state.sent(windows.Place("t", 0), offset, 10)
    state.accept(windows.Place("t", 0), 99)
    assert state.allowed == 3  # of the credit


def test_bytes_limit_what_is_sent(windows: ModuleType) -> None:
    state = filled(windows, 0)
    state.sent(windows.Place("t", 0), 0, 100)
    assert state.allowed == 0
    state.accept(windows.Place("t", 0), 0)
    assert state.allowed == 5


def test_a_release_takes_back_what_was_sent_from_there_on(windows: ModuleType) -> None:
    state = filled(windows)
    assert state.release(windows.Place("t", 0), 1) == 1
    assert state.unacknowledged == 1
    assert state.release(windows.Place("t", 0), 1) is None
    assert state.accept(windows.Place("t", 0), 0)


def test_a_revoked_partition_holds_nothing(windows: ModuleType) -> None:
    state = filled(windows)
    state.revoke([windows.Place("t", 0), windows.Place("never", 1)])
    assert (state.unacknowledged, state.allowed) == (0, 5)
    assert not state.accept(windows.Place("t", 0), 2)


WINDOW_MISTAKES = [
    ("self._credit -= 1", "pass", test_credit_and_what_is_unacknowledged_limit_what_is_sent),
    ("self._bytes >= self._max_bytes", "False", test_bytes_limit_what_is_sent),
    ("waiting[0][0] <= offset", "waiting[0][0] < offset", test_credit_and_what_is_unacknowledged_limit_what_is_sent),
    ("waiting[-1][0] >= offset", "waiting[-1][0] > offset", test_a_release_takes_back_what_was_sent_from_there_on),
    (
        within("DeliveryWindow.revoke", "self._forget(size)"),
        "pass",
        test_a_revoked_partition_holds_nothing,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), WINDOW_MISTAKES)
def test_a_planted_mistake_in_the_window_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(window, right, wrong, rule)


# -- batches of aborted transactions


@pytest.fixture
def seen() -> ModuleType:
    return batches


def transactional(offset: int, producer_id: int) -> bytes:
    record = Record(offset, 0, None, b"%d" % offset, ())
    return bytes(
        batch.build(
            [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    record = marker_record(EndTxnMarker(commit=commit, coordinator_epoch=0), offset=offset, timestamp=0)
    return bytes(
        batch.build(
            [record],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def visible(seen: ModuleType, data: bytes, position: int, aborted: "list[batches.Aborted] | None") -> list[int]:
    return [each.header.base_offset for each in seen.seen_batches(memoryview(data), position, aborted) if each.visible]


def test_batches_of_an_aborted_transaction_are_left_out_until_its_marker(seen: ModuleType) -> None:
    data = (
        transactional(0, 1)
        + transactional(1, 2)
        + marker(2, 1, commit=False)
        + transactional(3, 1)
        + marker(4, 1, commit=True)
        + marker(5, 2, commit=True)
    )
    assert visible(seen, data, 0, [seen.Aborted(1, 0)]) == [1, 3]
    assert visible(seen, data, 0, []) == [0, 1, 3]
    assert visible(seen, data, 0, None) == [0, 1, 3]
    assert visible(seen, data, 2, []) == [3]


def test_a_transaction_that_aborts_later_does_not_hide_what_was_before_it(seen: ModuleType) -> None:
    data = transactional(0, 1) + marker(1, 1, commit=True) + transactional(2, 1) + marker(3, 1, commit=False)
    assert visible(seen, data, 0, [seen.Aborted(1, 2)]) == [0]


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(seen: ModuleType) -> None:
    data = transactional(0, 1) + transactional(1, 1)
    assert visible(seen, data[:-5], 0, None) == [0]


BATCH_MISTAKES = [
    (
        "producers.discard(header.producer_id)",
        "pass",
        test_batches_of_an_aborted_transaction_are_left_out_until_its_marker,
    ),
    (
        "waiting[-1].first_offset <= header.last_offset",
        "True",
        test_a_transaction_that_aborts_later_does_not_hide_what_was_before_it,
    ),
    ("header.last_offset < position", "False", test_batches_of_an_aborted_transaction_are_left_out_until_its_marker),
    ("partial_tail=True", "partial_tail=False", test_a_batch_that_is_cut_off_is_left_for_the_next_fetch),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), BATCH_MISTAKES)
def test_a_planted_mistake_in_batches_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    if right == "partial_tail=True":
        right, wrong = "batch.headers(data, partial_tail=True)", "batch.headers(data)"
    assert_noticed(batches, right, wrong, rule)
