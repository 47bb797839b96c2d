"""The order in which outputs are filled."""

from collections.abc import Callable
from types import ModuleType

import pytest
from mutants.plant import assert_noticed

from trioka.pipeline.graph import order


def an_output_comes_after_all_that_it_reads(module: ModuleType) -> None:
    reads = {"c": {"a", "b"}, "b": {"a", "elsewhere"}, "a": set(), "d": set()}
    assert module.levels(reads) == [["a", "d"], ["b"], ["c"]]


def outputs_that_read_each_other_are_named(module: ModuleType) -> None:
    with pytest.raises(module.Cycle, match=r"^b reads c reads b$"):
        module.levels({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})


def what_reads_a_failed_output_is_found_at_any_distance(module: ModuleType) -> None:
    reads = {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"e"}, "e": set()}
    assert module.downstream(reads, {"a"}) == {"b", "c"}


RULES = [
    an_output_comes_after_all_that_it_reads,
    outputs_that_read_each_other_are_named,
    what_reads_a_failed_output_is_found_at_any_distance,
]
MISTAKES = [
    ("level = sorted(name for name, read in waiting.items() if not read)", "level = sorted(waiting)", RULES[0]),
    ("path[path.index(following) :]", "path", RULES[1]),
    ("read & (failed | found)", "read & failed", RULES[2]),
]


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule: Callable[[ModuleType], None]) -> None:
    rule(order)


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(order, right, wrong, rule)
