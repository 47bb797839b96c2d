"""Who waits is answered once: when what it waits for happens, or when its time is up."""

from collections.abc import Hashable
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed, within

from trioka.cluster import purgatory
from trioka.cluster.purgatory import SWEEP_AT_LEAST, DelayedOperation, Purgatory


class Patient(DelayedOperation):
    """Waits for a number of touches."""

    __slots__ = ("answers", "wants")

    def __init__(self, wants: int = 1) -> None:
        super().__init__()
        self.wants = wants
        self.answers: list[str] = []

    def try_complete(self, key: Hashable) -> bool:
        self.wants -= 1
        if self.wants <= 0:
            self.answers.append("served")
        return self.wants <= 0

    def expire(self) -> None:
        self.answers.append("expired")


def test_a_waiter_is_answered_when_one_of_its_keys_is_touched() -> None:
    delayed, waiter = Purgatory(), Patient()
    delayed.park(waiter, ["a", "b"], deadline=10.0)
    delayed.notify("c")
    assert waiter.answers == []
    delayed.notify("b")
    delayed.notify("a")
    delayed.expire(11.0)
    assert waiter.answers == ["served"]
    assert len(delayed) == 0


def test_a_waiter_that_is_not_content_goes_on_waiting() -> None:
    delayed, waiter = Purgatory(), Patient(wants=3)
    delayed.park(waiter, ["a"], deadline=10.0)
    delayed.notify("a")
    delayed.notify("a")
    assert waiter.answers == []
    delayed.notify("a")
    assert waiter.answers == ["served"]


def test_a_waiter_is_answered_when_its_time_is_up() -> None:
    delayed, early, late = Purgatory(), Patient(), Patient()
    delayed.park(late, ["a"], deadline=20.0)
    delayed.park(early, ["a"], deadline=10.0)
    assert delayed.next_deadline() == 10.0
    delayed.expire(9.9)
    assert early.answers == []
    delayed.expire(10.0)
    assert (early.answers, late.answers) == (["expired"], [])
    assert delayed.next_deadline() == 20.0
    delayed.notify("a")
    assert (early.answers, late.answers) == (["expired"], ["served"])
    assert delayed.next_deadline() is None


def test_an_abandoned_waiter_is_never_answered() -> None:
    delayed, waiter = Purgatory(), Patient()
    delayed.park(waiter, ["a"], deadline=10.0)
    delayed.cancel(waiter)
    delayed.notify("a")
    delayed.expire(99.0)
    assert waiter.answers == []
    assert len(delayed) == 0


def test_an_answer_may_touch_and_park_again() -> None:
    delayed = Purgatory()

    class Chain(Patient):
        __slots__ = ()

        def try_complete(self, key: Hashable) -> bool:
            delayed.park(second, ["a"], deadline=5.0)
            delayed.notify("a")
            return super().try_complete(key)

    first, second, behind = Chain(), Patient(), Patient(wants=2)
    delayed.park(first, ["a"], deadline=5.0)
    delayed.park(behind, ["a"], deadline=5.0)
    delayed.notify("a")
    assert (first.answers, second.answers) == (["served"], ["served"])
    delayed.notify("a")
    assert behind.answers == ["served"]  # it was not forgotten while the first one answered


def test_keys_that_are_never_touched_do_not_collect_the_dead() -> None:
    delayed = Purgatory()
    for n in range(100 * SWEEP_AT_LEAST):
        delayed.park(Patient(), ["quiet", "busy"], deadline=float(n + 1_000_000))
        delayed.notify("busy")
    assert len(delayed) == 0
    assert len(delayed._queues["quiet"].waiters) <= SWEEP_AT_LEAST
    assert len(delayed._deadlines) <= SWEEP_AT_LEAST


def test_everyone_is_answered_exactly_once_whatever_happens() -> None:
    for seed in range(50):
        random, delayed, now = Random(seed), Purgatory(), 0.0
        everyone: list[Patient] = []
        for _ in range(400):
            action = random.random()
            if action < 0.5:
                waiter = Patient(wants=random.randint(1, 3))
                everyone.append(waiter)
                delayed.park(waiter, random.sample("abcdef", random.randint(1, 3)), now + random.uniform(0, 5))
            elif action < 0.8:
                delayed.notify(random.choice("abcdef"))
            else:
                now += random.uniform(0, 1)
                delayed.expire(now)
        delayed.expire(now + 5)
        assert all(len(waiter.answers) == 1 for waiter in everyone), seed
        assert len(delayed) == 0


def a_round_is_looked_at_once_at_its_end(module: ModuleType) -> None:
    delayed = module.Purgatory()
    waiter, other = Patient(wants=3), Patient()
    delayed.park(waiter, ["a", "b"], deadline=10.0)
    delayed.hold()
    for key in "abab":
        delayed.notify(key)
    assert waiter.wants == 3, "nothing is checked before the end"
    delayed.park(other, ["b"], deadline=10.0)
    delayed.release()
    assert waiter.wants == 1, "each key is looked at once"
    assert other.answers == ["served"]
    delayed.notify("a")
    assert waiter.answers == ["served"], "the round is over"


def what_a_round_answers_may_touch_more(module: ModuleType) -> None:
    """Also if it is a key of the same round that was looked at already."""
    delayed = module.Purgatory()

    class Chain(Patient):
        __slots__ = ()

        def try_complete(self, key: Hashable) -> bool:
            delayed.notify("a")
            return super().try_complete(key)

    last = Patient(wants=2)
    delayed.park(last, ["a"], deadline=5.0)
    delayed.park(Chain(), ["b"], deadline=5.0)
    delayed.hold()
    delayed.notify("a")
    delayed.notify("b")
    delayed.release()
    assert last.answers == ["served"]


def what_a_round_answers_may_touch_more_of_the_key_that_is_looked_at(module: ModuleType) -> None:
    delayed = module.Purgatory()

    class Chain(Patient):
        __slots__ = ()

        def try_complete(self, key: Hashable) -> bool:
            delayed.notify(key)
            return super().try_complete(key)

    last = Patient(wants=2)
    delayed.park(last, ["a"], deadline=5.0)
    delayed.park(Chain(), ["a"], deadline=5.0)
    delayed.hold()
    delayed.notify("a")
    delayed.release()
    assert last.answers == ["served"]


ROUND_RULES = [
    a_round_is_looked_at_once_at_its_end,
    what_a_round_answers_may_touch_more,
    what_a_round_answers_may_touch_more_of_the_key_that_is_looked_at,
]


@pytest.mark.parametrize("rule", ROUND_RULES)
def test_a_rule_of_rounds_holds(rule: Rule) -> None:
    rule(purgatory)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("        self._is_held = True\n", "        pass\n", a_round_is_looked_at_once_at_its_end),
    ("self._is_completing or self._is_held", "self._is_completing", a_round_is_looked_at_once_at_its_end),
    (within("Purgatory.release", "self._is_held = False"), "pass", a_round_is_looked_at_once_at_its_end),
    ("if self._notified and not self._is_completing:", "if False:", a_round_is_looked_at_once_at_its_end),
    (
        "                notified.clear()\n                self._notify_watchers(keys)\n"
        "                for key in keys:\n"
        "                    self._complete(key)\n",
        "                self._notify_watchers(keys)\n                for key in keys:\n"
        "                    self._complete(key)\n                notified.clear()\n",
        what_a_round_answers_may_touch_more_of_the_key_that_is_looked_at,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(purgatory, right, wrong, rule)


class Watching:
    def __init__(self) -> None:
        self.heard: list[Hashable] = []  # None: that was all

    def on_notify(self, key: Hashable) -> None:
        self.heard.append(key)

    def on_notified(self) -> None:
        self.heard.append(None)


def test_a_watcher_is_notified_until_it_leaves() -> None:
    delayed, one, other = Purgatory(), Watching(), Watching()
    delayed.watch("a", one)
    delayed.watch("a", other)
    delayed.watch("b", one)
    assert len(delayed) == 0
    for key in ("a", "b", "c", "a"):
        delayed.notify(key)
    assert (one.heard, other.heard) == (["a", None, "b", None, "a", None], ["a", None, "a", None])
    delayed.unwatch("a", one)
    delayed.notify("a")
    assert (len(one.heard), len(other.heard)) == (6, 6)


def keys_notified_together_reach_watchers_together(module: ModuleType) -> None:
    delayed, watcher = module.Purgatory(), Watching()
    waiter = Patient()
    for key in "ab":
        delayed.watch(key, watcher)
    delayed.park(waiter, ["a"], deadline=5.0)
    delayed.hold()
    delayed.notify("a")
    delayed.notify("b")
    delayed.notify("a")
    delayed.release()
    assert watcher.heard == ["a", "b", None]
    assert waiter.answers == ["served"]


def test_keys_notified_together_reach_watchers_together() -> None:
    keys_notified_together_reach_watchers_together(purgatory)


def test_a_watcher_that_is_notified_once_per_key_is_noticed() -> None:
    right = "self._notify_watchers(keys)\nfor key in keys:\n    self._complete(key)"
    wrong = "for key in keys:\n    self._notify_watchers([key])\n    self._complete(key)"
    assert_noticed(purgatory, right, wrong, keys_notified_together_reach_watchers_together)
