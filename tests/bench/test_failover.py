"""What is made of kills and restarts: the median and the worst of all, and every error."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
failover: Any = importlib.import_module("failover")


@pytest.fixture
def module() -> ModuleType:
    return failover  # type: ignore[no-any-return]


def test_of_kills_the_median_and_the_worst_count(module: ModuleType) -> None:
    assert module.summary([{"seconds": 4.5}, {"seconds": 9.0}, {"seconds": 4.0}]) == {"median": 4.5, "worst": 9.0}


def test_errors_of_all_rounds_are_added_up(module: ModuleType) -> None:
    rounds = [{"seconds": 30.0, "wait": 0.5, "errors": 1}, {"seconds": 40.0, "wait": 2.5, "errors": 2}]
    assert module.summary(rounds) == {
        "median": 35.0,
        "worst": 40.0,
        "wait_median": 1.5,
        "wait_worst": 2.5,
        "errors": 3,
    }


def test_one_error_is_too_many(module: ModuleType) -> None:
    for measure in module.MEASURES:
        for figure in measure.figures:
            assert figure.key != "errors" or figure.bound == 0
    assert {measure.name for measure in module.MEASURES} == set(module.RUNS)


MISTAKES: list[tuple[str, str, Rule]] = [
    ('"worst": max(seconds)', '"worst": min(seconds)', test_of_kills_the_median_and_the_worst_count),
    ("statistics.median(seconds)", "seconds[0]", test_errors_of_all_rounds_are_added_up),
    (
        'sum(each["errors"] for each in samples)',
        'max(each["errors"] for each in samples)',
        test_errors_of_all_rounds_are_added_up,
    ),
    ('"wait_worst": max(waits)', '"wait_worst": min(waits)', test_errors_of_all_rounds_are_added_up),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(failover, right, wrong, rule)
