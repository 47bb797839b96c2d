"""The rule by which changes become rows: any order, and any repetition, gives the same table."""

import random
from collections.abc import Callable
from types import ModuleType

import pytest
from mutants.plant import assert_noticed, within

from trioka.pipeline.changes import merge_rule
from trioka.pipeline.changes.merge_rule import Change, Version, current_rows, history


def put(key: int, sequence: int, value: str) -> Change:
    return Change(key=(key,), sequence=sequence, columns={"value": value}, text=value)


def gone(key: int, sequence: int) -> Change:
    return Change(key=(key,), sequence=sequence, columns=None)


CHANGES = [put(1, 1, "a"), put(1, 5, "b"), gone(1, 3), put(2, 1, "c"), gone(2, 4), put(2, 4, "d"), gone(3, 2)]
CHANGES += [put(3, 1, "e"), put(4, 7, "x"), put(4, 7, "y"), gone(4, 6), put(5, 2, "f"), gone(5, 1)]


def the_newest_change_of_each_key_counts(module: ModuleType) -> None:
    assert module.current_rows(CHANGES) == {(1,): {"value": "b"}, (4,): {"value": "y"}, (5,): {"value": "f"}}


def a_history_has_a_row_for_each_change_until_the_next_one(module: ModuleType) -> None:
    rows = [(row.key[0], row.columns["value"], row.start, row.end) for row in module.history(CHANGES)]
    assert rows == [
        (1, "a", 1, 3),
        (1, "b", 5, None),
        (2, "c", 1, 4),
        (3, "e", 1, 2),
        (4, "y", 7, None),
        (5, "f", 2, None),
    ]


def order_and_repetition_do_not_matter(module: ModuleType) -> None:
    chance = random.Random(7)
    for _ in range(50):
        shuffled = [*CHANGES, *chance.choices(CHANGES, k=5)]
        chance.shuffle(shuffled)
        assert module.current_rows(shuffled) == current_rows(CHANGES)
        assert [_plain(row) for row in module.history(shuffled)] == [_plain(row) for row in history(CHANGES)]


def _plain(row: Version) -> tuple[object, ...]:
    return row.key, tuple(row.columns.items()), row.start, row.end


RULES = [
    the_newest_change_of_each_key_counts,
    a_history_has_a_row_for_each_change_until_the_next_one,
    order_and_repetition_do_not_matter,
]
MISTAKES = [
    ("return self.sequence, self.columns is None, self.text", "return self.sequence, self.text", RULES[0]),
    ("return self.sequence, self.columns is None, self.text", "return self.sequence, self.columns is None", RULES[2]),
    ("ends = [*(one.sequence for one in ones[1:]), None]", "ends = [None for _ in ones]", RULES[1]),
    (within("current_rows", "if known is None or change.rank > known.rank:"), "if True:", RULES[2]),
]


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule: Callable[[ModuleType], None]) -> None:
    rule(merge_rule)


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    def with_its_changes(module: ModuleType) -> None:
        """The changes as the module's own class has them, which ranks them."""
        global CHANGES
        before = CHANGES
        CHANGES = [
            module.Change(key=one.key, sequence=one.sequence, columns=one.columns, text=one.text) for one in before
        ]
        try:
            rule(module)
        finally:
            CHANGES = before

    assert_noticed(merge_rule, right, wrong, with_its_changes)
