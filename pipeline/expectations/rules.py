"""Expectations: rules about the rows of a flow, as decorators below `@dp.table` and the others.

    @dp.table
    @expect("has a currency", "currency IS NOT NULL")            # counted, and kept
    @expect_or_drop("an amount is above zero", "amount > 0")     # counted, and dropped
    @expect_or_fail("an id is there", "id IS NOT NULL")          # stops the flow before anything of the batch is seen
    @dead_letters("refused_orders")                              # gets the dropped rows, with the reason
    def orders():
        return spark.readStream.table("raw_orders")

A row for which a condition is false, null or cannot be computed breaks the rule. The files also run under
`spark-pipelines`: there a decorated function filters its rows itself, without counts and dead letters.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from trioka.protocol.lazy_dataclass import frozen

Action = Literal["warn", "drop", "fail"]
Query = Callable[[], Any]
MAX_RULES = 100
_DECLARED = "__trioka_declared__"


@frozen
class Expectation:
    """`condition` is SQL over the columns of the flow's rows."""

    name: str
    condition: str
    action: Action


@frozen
class Counts:
    """`broken` counts the rows that break each rule; a row may break several. `refused` rows are not in the table."""

    records: int
    refused: int
    broken: dict[str, int] = field(default_factory=dict)


@frozen
class Declared:
    """What the decorators of one query function said, and the function below them."""

    function: Query
    rules: tuple[Expectation, ...] = ()
    dead_letters: str | None = None


def declared(function: Query) -> Declared:
    """What was declared for a function; nothing but the function if it has no decorator of this module."""
    found = getattr(function, _DECLARED, None)
    return found if isinstance(found, Declared) else Declared(function=function)


def expect(name: str, condition: str) -> Callable[[Query], Query]:
    """Count the rows that break the rule, and keep them."""
    return expect_all({name: condition})


def expect_or_drop(name: str, condition: str) -> Callable[[Query], Query]:
    """Drop the rows that break the rule."""
    return expect_all_or_drop({name: condition})


def expect_or_fail(name: str, condition: str) -> Callable[[Query], Query]:
    """Stop the flow at the first batch with a row that breaks the rule."""
    return expect_all_or_fail({name: condition})


def expect_all(conditions: Mapping[str, str]) -> Callable[[Query], Query]:
    return _with_rules(conditions, "warn")


def expect_all_or_drop(conditions: Mapping[str, str]) -> Callable[[Query], Query]:
    return _with_rules(conditions, "drop")


def expect_all_or_fail(conditions: Mapping[str, str]) -> Callable[[Query], Query]:
    return _with_rules(conditions, "fail")


def dead_letters(target: str) -> Callable[[Query], Query]:
    """Write dropped rows to a streaming table or a sink of the same pipeline."""

    def decorate(function: Query) -> Query:
        known = declared(_checked(function, "dead_letters"))
        return _decorated(Declared(function=known.function, rules=known.rules, dead_letters=target))

    return decorate


def _with_rules(conditions: Mapping[str, str], action: Action) -> Callable[[Query], Query]:
    rules = tuple(Expectation(name=name, condition=condition, action=action) for name, condition in conditions.items())
    for rule in rules:
        if not isinstance(rule.name, str) or not isinstance(rule.condition, str) or not rule.condition.strip():
            raise TypeError(
                f"An expectation has a name and a condition in SQL, both texts, and not {rule.condition!r}."
            )

    def decorate(function: Query) -> Query:
        known = declared(_checked(function, "expect"))
        if len(known.rules) + len(rules) > MAX_RULES:
            raise ValueError(f"A flow has at most {MAX_RULES} expectations.")
        # Decorators are applied from the bottom to the top, and are read from the top to the bottom.
        return _decorated(Declared(function=known.function, rules=rules + known.rules, dead_letters=known.dead_letters))

    return decorate


def _checked(function: Query, decorator: str) -> Query:
    if not callable(function):
        raise TypeError(f"@{decorator} stands below @dp.table, @dp.append_flow and the others, not above.")
    return function


def _decorated(known: Declared) -> Query:
    @functools.wraps(known.function)
    def filtered() -> Any:
        return _filtered(known.function(), known.rules)

    setattr(filtered, _DECLARED, known)
    return filtered


def _filtered(rows: Any, rules: tuple[Expectation, ...]) -> Any:
    """The rows that rules let pass, for a runner that knows nothing of expectations."""
    for rule in rules:
        holds = f"coalesce({rule.condition}, false)"
        if rule.action == "drop":
            rows = rows.where(holds)
        elif rule.action == "fail":
            text = rule.name.replace("\\", "\\\\").replace("'", "\\'")
            rows = rows.where(f"if({holds}, true, raise_error('the expectation {text} failed'))")
    return rows
