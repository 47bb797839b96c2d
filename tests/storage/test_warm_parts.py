"""What was in memory a moment ago: what is believed of it, and when no longer."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.storage import warm_parts
from trioka.storage.warm_parts import BELIEVED_S, MOST_PARTS, PART_BYTES

MB = 1 << 20
LOG, OTHER = "/t-0/0.log", "/t-1/0.log"


@pytest.fixture
def storage() -> ModuleType:
    return warm_parts


def test_what_was_said_is_believed_for_a_moment_and_nothing_beside_it(storage: ModuleType) -> None:
    parts = storage.WarmParts()
    parts.note(LOG, 2 * MB, 4 * MB, 10.0)
    assert parts.has(LOG, 2 * MB, 4 * MB, 10.0)
    assert parts.has(LOG, 3 * MB, 4 * MB, 10.0 + BELIEVED_S / 2)
    assert not parts.has(LOG, 2 * MB - 1, 4 * MB, 10.0)
    assert not parts.has(LOG, 2 * MB, 4 * MB + 1, 10.0)
    assert not parts.has(LOG, PART_BYTES + 2 * MB, PART_BYTES + 4 * MB, 10.0)
    assert not parts.has(OTHER, 2 * MB, 4 * MB, 10.0)
    assert not parts.has(LOG, 2 * MB, 4 * MB, 10.0 + BELIEVED_S)


def test_neighbours_are_known_together_for_as_long_as_the_older_one(storage: ModuleType) -> None:
    parts = storage.WarmParts()
    parts.note(LOG, 2 * MB, 4 * MB, 10.0)
    parts.note(LOG, 4 * MB, 5 * MB, 10.1)
    parts.note(LOG, MB, 2 * MB, 10.1)
    assert parts.has(LOG, MB, 5 * MB, 10.1)
    assert not parts.has(LOG, MB, 5 * MB, 10.0 + BELIEVED_S)


def test_what_lies_between_two_is_not_known(storage: ModuleType) -> None:
    parts = storage.WarmParts()
    parts.note(LOG, 2 * MB, 4 * MB, 10.0)
    parts.note(LOG, 5 * MB, 6 * MB, 10.0)
    assert not parts.has(LOG, 2 * MB, 6 * MB, 10.0)
    parts.note(LOG, MB, 2 * MB, 10.0)
    assert not parts.has(LOG, MB, 6 * MB, 10.0)


def test_what_was_known_long_ago_counts_for_nothing(storage: ModuleType) -> None:
    parts = storage.WarmParts()
    parts.note(LOG, 2 * MB, 4 * MB, 10.0)
    parts.note(LOG, 4 * MB, 6 * MB, 10.0 + BELIEVED_S)
    assert not parts.has(LOG, 2 * MB, 6 * MB, 10.0 + BELIEVED_S)
    assert parts.has(LOG, 4 * MB, 6 * MB, 10.0 + BELIEVED_S)


def test_so_many_parts_are_kept_and_no_more(storage: ModuleType) -> None:
    parts = storage.WarmParts()
    for start in range(0, (2 * MOST_PARTS + 1) * PART_BYTES, PART_BYTES):
        parts.note(LOG, start, start + MB, 10.0)
        assert parts.has(LOG, start, start + MB, 10.0)
        assert len(parts) <= MOST_PARTS


MISTAKES = [
    ("known_start <= start and", "", test_what_was_said_is_believed_for_a_moment_and_nothing_beside_it),
    ("end <= known_end and", "", test_what_was_said_is_believed_for_a_moment_and_nothing_beside_it),
    (" and now < until", "", test_what_was_said_is_believed_for_a_moment_and_nothing_beside_it),
    (
        "start // PART_BYTES), _NOTHING)\n        return",
        "0), _NOTHING)\n        return",
        test_so_many_parts_are_kept_and_no_more,
    ),
    (", known_until\n", ", until\n", test_neighbours_are_known_together_for_as_long_as_the_older_one),
    ("min(start, known_start)", "start", test_neighbours_are_known_together_for_as_long_as_the_older_one),
    ("max(end, known_end)", "end", test_neighbours_are_known_together_for_as_long_as_the_older_one),
    ("start <= known_end and ", "", test_what_lies_between_two_is_not_known),
    (" and known_start <= end", "", test_what_lies_between_two_is_not_known),
    ("now < known_until and ", "", test_what_was_known_long_ago_counts_for_nothing),
    ("if len(self._parts) >= MOST_PARTS:", "if False:", test_so_many_parts_are_kept_and_no_more),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(warm_parts, right, wrong, rule)
