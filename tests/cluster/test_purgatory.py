"""Who waits is answered once: when what it waits for happens, or when its time is up."""

from collections.abc import Hashable
from random import Random

from trioka.cluster.purgatory import SWEEP_AT_LEAST, Delayed, Waiter


class Patient(Waiter):
    """Waits for a number of touches."""

    __slots__ = ("answers", "wants")

    def __init__(self, wants: int = 1) -> None:
        super().__init__()
        self.wants = wants
        self.answers: list[str] = []

    def look(self, key: Hashable) -> bool:
        self.wants -= 1
        if self.wants <= 0:
            self.answers.append("served")
        return self.wants <= 0

    def expire(self) -> None:
        self.answers.append("expired")


def test_a_waiter_is_answered_when_one_of_its_keys_is_touched() -> None:
    delayed, waiter = Delayed(), Patient()
    delayed.park(waiter, ["a", "b"], deadline=10.0)
    delayed.touch("c")
    assert waiter.answers == []
    delayed.touch("b")
    delayed.touch("a")
    delayed.expire(11.0)
    assert waiter.answers == ["served"]
    assert len(delayed) == 0


def test_a_waiter_that_is_not_content_goes_on_waiting() -> None:
    delayed, waiter = Delayed(), Patient(wants=3)
    delayed.park(waiter, ["a"], deadline=10.0)
    delayed.touch("a")
    delayed.touch("a")
    assert waiter.answers == []
    delayed.touch("a")
    assert waiter.answers == ["served"]


def test_a_waiter_is_answered_when_its_time_is_up() -> None:
    delayed, early, late = Delayed(), Patient(), Patient()
    delayed.park(late, ["a"], deadline=20.0)
    delayed.park(early, ["a"], deadline=10.0)
    assert delayed.next_deadline() == 10.0
    delayed.expire(9.9)
    assert early.answers == []
    delayed.expire(10.0)
    assert (early.answers, late.answers) == (["expired"], [])
    assert delayed.next_deadline() == 20.0
    delayed.touch("a")
    assert (early.answers, late.answers) == (["expired"], ["served"])
    assert delayed.next_deadline() is None


def test_an_abandoned_waiter_is_never_answered() -> None:
    delayed, waiter = Delayed(), Patient()
    delayed.park(waiter, ["a"], deadline=10.0)
    delayed.abandon(waiter)
    delayed.touch("a")
    delayed.expire(99.0)
    assert waiter.answers == []
    assert len(delayed) == 0


def test_an_answer_may_touch_and_park_again() -> None:
    delayed = Delayed()

    class Chain(Patient):
        __slots__ = ()

        def look(self, key: Hashable) -> bool:
            delayed.park(second, ["a"], deadline=5.0)
            delayed.touch("a")
            return super().look(key)

    first, second, behind = Chain(), Patient(), Patient(wants=2)
    delayed.park(first, ["a"], deadline=5.0)
    delayed.park(behind, ["a"], deadline=5.0)
    delayed.touch("a")
    assert (first.answers, second.answers) == (["served"], ["served"])
    delayed.touch("a")
    assert behind.answers == ["served"]  # it was not forgotten while the first one answered


def test_keys_that_are_never_touched_do_not_collect_the_dead() -> None:
    delayed = Delayed()
    for n in range(100 * SWEEP_AT_LEAST):
        delayed.park(Patient(), ["quiet", "busy"], deadline=float(n + 1_000_000))
        delayed.touch("busy")
    assert len(delayed) == 0
    assert len(delayed._queues["quiet"].waiters) <= SWEEP_AT_LEAST
    assert len(delayed._deadlines) <= SWEEP_AT_LEAST


def test_everyone_is_answered_exactly_once_whatever_happens() -> None:
    for seed in range(50):
        random, delayed, now = Random(seed), Delayed(), 0.0
        everyone: list[Patient] = []
        for _ in range(400):
            action = random.random()
            if action < 0.5:
                waiter = Patient(wants=random.randint(1, 3))
                everyone.append(waiter)
                delayed.park(waiter, random.sample("abcdef", random.randint(1, 3)), now + random.uniform(0, 5))
            elif action < 0.8:
                delayed.touch(random.choice("abcdef"))
            else:
                now += random.uniform(0, 1)
                delayed.expire(now)
        delayed.expire(now + 5)
        assert all(len(waiter.answers) == 1 for waiter in everyone), seed
        assert len(delayed) == 0


class Watching:
    def __init__(self) -> None:
        self.heard: list[Hashable] = []

    def touched(self, key: Hashable) -> None:
        self.heard.append(key)


def test_a_watcher_hears_of_every_touch_until_it_leaves() -> None:
    delayed, one, other = Delayed(), Watching(), Watching()
    delayed.watch("a", one)
    delayed.watch("a", other)
    delayed.watch("b", one)
    assert len(delayed) == 0
    for key in ("a", "b", "c", "a"):
        delayed.touch(key)
    assert (one.heard, other.heard) == (["a", "b", "a"], ["a", "a"])
    delayed.unwatch("a", one)
    delayed.touch("a")
    assert (one.heard, other.heard) == (["a", "b", "a"], ["a", "a", "a"])
