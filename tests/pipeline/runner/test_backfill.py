"""Where a backfill ends: before the stream began, so that no row comes twice. Reading it takes Spark: see the compat
tests.
"""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.pipeline.declaration.toml_reader import read
from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.runner import backfill

BEGAN = {"orders": {0: 10, 1: 0}}


def it_ends_where_the_stream_began(module: ModuleType) -> None:
    end = module.before_the_stream(BEGAN, {"orders": {0: 40, 1: 40}, "new": {0: 5}}, is_given=False)
    assert end == {"orders": {0: 10, 1: 0}, "new": {0: 0}}
    earlier = {"orders": {0: 7, 1: 0}}
    assert module.before_the_stream(BEGAN, earlier, is_given=True) == earlier


def an_end_inside_the_stream_is_refused(module: ModuleType) -> None:
    with pytest.raises(InvalidPipeline, match=r"orders-0 \(the stream began at 10\)\. End before it"):
        module.before_the_stream(BEGAN, {"orders": {0: 11, 1: 0}}, is_given=True)


def a_stream_that_never_ran_has_nothing_before_it(module: ModuleType) -> None:
    with pytest.raises(InvalidPipeline, match="has not run yet"):
        module.before_the_stream(None, BEGAN, is_given=False)


def the_same_range_has_the_same_name(module: ModuleType) -> None:
    declared = read({"name": "orders", "source": {"topics": ["orders"]}, "sink": {"kind": "console"}})
    end = {"orders": {0: 10, 1: 5}}
    ids = {"orders": "a"}
    names = [module._commit(declared, {"orders": {0: 0, 1: at}}, end, ids).name for at in (4, 4, 5, 9)]
    assert [names.index(name) for name in names] == [0, 0, 2, 2]  # a start behind the end is an empty part
    again = module._commit(declared, {"orders": {0: 0, 1: 4}}, end, {"orders": "b"})
    assert again.name not in names  # the same offsets of a topic that was created again are other records


RULES = [
    it_ends_where_the_stream_began,
    an_end_inside_the_stream_is_refused,
    a_stream_that_never_ran_has_nothing_before_it,
    the_same_range_has_the_same_name,
]


@pytest.mark.parametrize("rule", RULES)
def test_a_backfill_is_bounded_by_the_stream(rule: Rule) -> None:
    rule(backfill)


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("min(until, began.get(topic, {}).get(one, 0))", "until", it_ends_where_the_stream_began),
        (
            "until > began.get(topic, {}).get(one, 0)",
            "until >= began.get(topic, {}).get(one, 0)",
            it_ends_where_the_stream_began,
        ),
        ("if late and is_given:", "if False:", an_end_inside_the_stream_is_refused),
        ("if began is None:", "if False:", a_stream_that_never_ran_has_nothing_before_it),
        ("min(at, end.get(t, {}).get(one, 0))", "at", the_same_range_has_the_same_name),
        (
            'f"{to_json(start)}{to_json(end)}{sorted(ids.items())}"',
            'f"{to_json(end)}{sorted(ids.items())}"',
            the_same_range_has_the_same_name,
        ),
        (
            'f"{to_json(start)}{to_json(end)}{sorted(ids.items())}"',
            'f"{to_json(start)}{to_json(end)}"',
            the_same_range_has_the_same_name,
        ),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(backfill, right, wrong, rule)
