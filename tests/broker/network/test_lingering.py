"""Whom the network waits for awake, whom it waits for asleep, and for whom it does not wait."""

from types import ModuleType
from typing import Any, cast

import pytest
from mutants.plant import Rule, planted

from trioka.broker.fastpath.coalescer import ProduceCoalescer
from trioka.broker.network import server as network_module
from trioka.cluster.purgatory import Purgatory

EVENT = (7, 1)
WAKING_S = 40e-6


class ScriptedEpoll:
    """An epoll at which something comes after so long, and the clock by which that is."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due = 0.0
        self.slept: list[bool] = []

    def perf_counter(self) -> float:
        self.now += 1e-6
        return self.now

    def poll(self, timeout: float, _: int) -> list[tuple[int, int]]:
        if timeout:
            self.slept.append(True)
            self.now = min(max(self.now, self.due), self.now + timeout) + WAKING_S
        else:
            self.now += 1e-6
        return [EVENT] if self.now >= self.due else []


@pytest.fixture
def broker() -> ModuleType:
    return planted(network_module, "import errno", "import errno")  # a copy, whose clock and processors are ours


class Lingering:
    def __init__(self, broker: ModuleType, processors: int = 2) -> None:
        self.epoll = ScriptedEpoll()
        mine = cast(Any, broker)
        mine.perf_counter, mine.MULTI_CPU = self.epoll.perf_counter, processors > 1
        self.network = mine.SocketServer(None, None, lambda: self.epoll.now, cast(ProduceCoalescer, None), Purgatory())

    def waits_for(self, seconds: float) -> tuple[bool, bool]:
        """An event comes after so long: whether it was found, and whether the loop slept meanwhile."""
        self.epoll.slept.clear()
        self.epoll.due = self.epoll.now + seconds
        self.network._round_started_at = self.epoll.now
        found = self.network._poll(self.epoll.poll)
        return bool(found), bool(self.epoll.slept)


def test_a_fast_client_is_polled_for(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    assert lingering.waits_for(30e-6) == (True, True)  # unknown at the first time
    assert lingering.waits_for(30e-6) == (True, False)
    assert lingering.waits_for(50e-6) == (True, False)


def test_a_slow_client_is_not_polled_for(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    lingering.waits_for(30e-6)
    assert lingering.waits_for(500e-6) == (True, True)
    began = lingering.epoll.now
    assert lingering.waits_for(500e-6) == (True, True)
    assert lingering.epoll.now - began == pytest.approx(500e-6 + WAKING_S, abs=10e-6)
    assert lingering.waits_for(30e-6) == (True, True)
    assert lingering.waits_for(30e-6) == (True, False)


def test_a_client_that_is_always_a_little_late_is_not_polled_for_each_time(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    lingering.waits_for(80e-6)
    assert lingering.waits_for(80e-6) == (True, True)  # without an event
    assert not lingering.network._should_spin


def test_with_one_processor_there_is_no_busy_polling(broker: ModuleType) -> None:
    lingering = Lingering(broker, processors=1)
    for _ in range(3):
        assert lingering.waits_for(30e-6) == (True, True)


def test_after_a_fruitless_wait_it_is_not_repeated_for_a_while(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    assert lingering.waits_for(1) == (False, True)
    assert lingering.waits_for(1) == (False, False)
    lingering.epoll.now += broker.IDLE_BACKOFF_S
    assert lingering.waits_for(30e-6) == (True, True)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("if self._should_spin:", "if False:", test_a_fast_client_is_polled_for),
    ("bool(found) and slept_s < FAST_CLIENT_S", "bool(found)", test_a_slow_client_is_not_polled_for),
    (" and MULTI_CPU", "", test_with_one_processor_there_is_no_busy_polling),
    (" and not was_spinning", "", test_a_client_that_is_always_a_little_late_is_not_polled_for_each_time),
    (
        "self._no_poll_until = self._now() + IDLE_BACKOFF_S",
        "pass",
        test_after_a_fruitless_wait_it_is_not_repeated_for_a_while,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    with pytest.raises(AssertionError):
        rule(planted(network_module, right, wrong))
