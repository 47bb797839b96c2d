"""The ledger of a topic: each part of a batch is written once, or the flow stops."""

from collections.abc import Callable
from types import ModuleType

import pytest
from mutants.plant import assert_noticed

from trioka.pipeline.tables import topic_ledger


def entry(module: ModuleType, run: str, next_batch: int) -> object:
    return module.Entry(run=run, next_batch=next_batch)


def a_part_is_written_once(module: ModuleType) -> None:
    assert module.step(None, "run", 0) is module.Step.WRITE
    assert module.step(entry(module, "run", 1), "run", 0) is module.Step.SKIP
    assert module.step(entry(module, "run", 1), "run", 1) is module.Step.WRITE


def a_repeated_batch_writes_the_parts_that_are_missing(module: ModuleType) -> None:
    entries = {0: entry(module, "run", 8), 1: entry(module, "run", 7)}
    found = module.steps(entries, 2, "run", 7, is_restart=False)
    assert found == {0: module.Step.SKIP, 1: module.Step.WRITE}


@pytest.mark.parametrize(
    ("known", "batch", "clause"),
    [
        (None, 3, "the group that says what the topic has is gone"),
        (("other", 3), 0, "written with another checkpoint"),
        (("run", 9), 3, "the topic has the batches before 9"),
        (("run", 2), 3, "the topic has the batches before 2"),
    ],
)
def test_a_ledger_that_does_not_fit_stops_the_flow_unless_it_is_restarted(
    known: tuple[str, int] | None, batch: int, clause: str
) -> None:
    found = None if known is None else topic_ledger.Entry(run=known[0], next_batch=known[1])
    with pytest.raises(topic_ledger.LedgerMismatch, match=clause):
        topic_ledger.step(found, "run", batch)
    assert topic_ledger.step(found, "run", batch, is_restart=True) is topic_ledger.Step.WRITE


def a_ledger_that_does_not_fit_stops_the_flow(module: ModuleType) -> None:
    for known, batch in ((None, 3), (entry(module, "other", 3), 0), (entry(module, "run", 9), 3)):
        with pytest.raises(module.LedgerMismatch):
            module.step(known, "run", batch)


def a_part_is_in_the_topic_already(module: ModuleType) -> None:
    try:
        found = module.step(entry(module, "run", 1), "run", 0)
    except module.LedgerMismatch:
        found = None
    assert found is module.Step.SKIP


RULES = [a_part_is_written_once, a_repeated_batch_writes_the_parts_that_are_missing]
MISTAKES = [
    ("if entry.next_batch == batch + 1:", "if False:", a_part_is_in_the_topic_already),
    ("if entry.next_batch == batch or is_restart:", "if True:", a_ledger_that_does_not_fit_stops_the_flow),
    ("if batch > 0:", "if False:", a_ledger_that_does_not_fit_stops_the_flow),
    ("entries.get(part)", "entries.get(0)", RULES[1]),
]


@pytest.mark.parametrize("rule", [*RULES, a_ledger_that_does_not_fit_stops_the_flow])
def test_the_rule_holds(rule: Callable[[ModuleType], None]) -> None:
    rule(topic_ledger)


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(topic_ledger, right, wrong, rule)
