"""Deadlines: what is due comes once, in order, and not before its time, however often it was moved."""

from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.coordinator import deadlines as deadlines_module
from trioka.coordinator.deadlines import Deadlines


def test_what_is_due_comes_in_order_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("late", 30)
    deadlines.set("early", 10)
    deadlines.set("also early", 10)
    assert deadlines.next() == 10
    assert deadlines.due(9) == []
    assert deadlines.due(10) == ["early", "also early"]
    assert deadlines.due(29) == []
    assert deadlines.due(1000) == ["late"]
    assert deadlines.next() is None and not deadlines


def test_a_deadline_that_moved_holds_at_its_new_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("session", 10)
    deadlines.set("session", 20)
    assert deadlines.due(19) == []
    deadlines.set("session", 15)
    assert deadlines.get("session") == 15
    assert deadlines.due(20) == ["session"]
    assert deadlines.due(20) == []


def test_a_deadline_that_was_cancelled_is_never_due_even_if_it_is_set_again_for_later() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("session", 10)
    deadlines.cancel("session")
    assert deadlines.next() is None
    deadlines.set("session", 30)
    assert deadlines.due(29) == []
    assert deadlines.due(30) == ["session"]


@pytest.fixture
def module() -> ModuleType:
    return deadlines_module


def test_any_mixture_of_setting_moving_and_cancelling_agrees_with_a_plain_table(module: ModuleType) -> None:
    random = Random(848)
    deadlines, plain, now = module.Deadlines(), dict[int, int](), 0
    for _ in range(20_000):
        key, action = random.randrange(200), random.random()
        if action < 0.6:
            plain[key] = now + random.randrange(1, 500)
            deadlines.set(key, plain[key])
        elif action < 0.8:
            plain.pop(key, None)
            deadlines.cancel(key)
        else:
            now += random.randrange(20)
            due = sorted((at, key) for key, at in plain.items() if at <= now)
            assert sorted(deadlines.due(now)) == sorted(key for _, key in due)
            for _, key in due:
                del plain[key]
        soonest = deadlines.next()
        assert soonest is not None or not plain
        assert soonest is None or not plain or soonest <= min(plain.values())


def test_what_was_cancelled_does_not_pile_up(module: ModuleType) -> None:
    deadlines = module.Deadlines()
    deadlines.set("soon", 1)
    for n in range(10_000):
        deadlines.set("far away", 1_000_000 - n)
        deadlines.cancel("far away")
    assert len(deadlines._heap) <= module.SWEEP_AT_LEAST


MISTAKES = [
    ("if holds > now_ms:", "if False:", test_any_mixture_of_setting_moving_and_cancelling_agrees_with_a_plain_table),
    (
        "before is None or at_ms < before",
        "at_ms < before",
        test_any_mixture_of_setting_moving_and_cancelling_agrees_with_a_plain_table,
    ),
    ("2 * len(self._at)", "10**9", test_what_was_cancelled_does_not_pile_up),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(deadlines_module, right, wrong, rule)
