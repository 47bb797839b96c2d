"""Expectations as decorators: what they say, and what they do without trioka's runner."""

import pytest

from trioka.pipeline.expectations.rules import (
    Expectation,
    dead_letters,
    declared,
    expect,
    expect_all_or_fail,
    expect_or_drop,
)


class Rows:
    """Stands for a DataFrame: the conditions that it was filtered by."""

    def __init__(self, conditions: tuple[str, ...] = ()) -> None:
        self.conditions = conditions

    def where(self, condition: str) -> "Rows":
        return Rows((*self.conditions, condition))


def rows() -> Rows:
    return Rows()


def test_rules_are_kept_from_the_top_to_the_bottom_with_the_function_below_them() -> None:
    found = declared(expect("a", "x > 0")(dead_letters("dead")(expect_or_drop("b", "y > 0")(rows))))
    assert found.function is rows
    assert found.dead_letters == "dead"
    assert found.rules == (
        Expectation(name="a", condition="x > 0", action="warn"),
        Expectation(name="b", condition="y > 0", action="drop"),
    )
    assert declared(rows).rules == ()


def test_another_runner_gets_the_filtered_rows() -> None:
    decorated = expect("a", "x > 0")(expect_or_drop("b", "y > 0")(expect_all_or_fail({"it's c": "z > 0"})(rows)))
    drop, fail = decorated().conditions
    assert drop == "coalesce(y > 0, false)"
    assert fail == r"if(coalesce(z > 0, false), true, raise_error('the expectation it\'s c failed'))"


def test_a_decorator_in_the_wrong_place_is_said_at_once() -> None:
    with pytest.raises(TypeError, match=r"@expect stands below @dp\.table"):
        expect("a", "x > 0")(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a name and a condition in SQL"):
        expect("a", " ")
