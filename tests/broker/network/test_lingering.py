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


class Moments:
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
        self.moments = Moments()
        mine = cast(Any, broker)
        mine.perf_counter, mine.MULTI_CPU = self.moments.perf_counter, processors > 1
        self.network = mine.SocketServer(
            None, None, lambda: self.moments.now, cast(ProduceCoalescer, None), Purgatory()
        )

    def waits_for(self, seconds: float) -> tuple[bool, bool]:
        """An event comes after so long: whether it was found, and whether the loop slept meanwhile."""
        self.moments.slept.clear()
        self.moments.due = self.moments.now + seconds
        self.network._round_started_at = self.moments.now
        found = self.network._poll(self.moments.poll)
        return bool(found), bool(self.moments.slept)


def test_who_is_quick_is_waited_for_awake(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    assert lingering.waits_for(30e-6) == (True, True)  # unknown at the first time
    assert lingering.waits_for(30e-6) == (True, False)
    assert lingering.waits_for(50e-6) == (True, False)


def test_who_takes_his_time_is_waited_for_asleep(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    lingering.waits_for(30e-6)
    assert lingering.waits_for(500e-6) == (True, True)
    began = lingering.moments.now
    assert lingering.waits_for(500e-6) == (True, True)
    assert lingering.moments.now - began == pytest.approx(500e-6 + WAKING_S, abs=10e-6)
    assert lingering.waits_for(30e-6) == (True, True)
    assert lingering.waits_for(30e-6) == (True, False)


def test_who_is_always_a_little_late_is_not_waited_for_awake_each_time(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    lingering.waits_for(80e-6)
    assert lingering.waits_for(80e-6) == (True, True)  # without an event
    assert not lingering.network._should_spin


def test_with_one_processor_nobody_is_waited_for_awake(broker: ModuleType) -> None:
    lingering = Lingering(broker, processors=1)
    for _ in range(3):
        assert lingering.waits_for(30e-6) == (True, True)


def test_after_a_wait_in_vain_it_is_not_tried_again_for_a_while(broker: ModuleType) -> None:
    lingering = Lingering(broker)
    assert lingering.waits_for(1) == (False, True)
    assert lingering.waits_for(1) == (False, False)
    lingering.moments.now += broker.IDLE_BACKOFF_S
    assert lingering.waits_for(30e-6) == (True, True)


MISTAKES: list[tuple[str, str, Rule]] = [
    ("if self._should_spin:", "if False:", test_who_is_quick_is_waited_for_awake),
    ("bool(found) and slept_s < FAST_CLIENT_S", "bool(found)", test_who_takes_his_time_is_waited_for_asleep),
    (" and MULTI_CPU", "", test_with_one_processor_nobody_is_waited_for_awake),
    (" and not in_vain", "", test_who_is_always_a_little_late_is_not_waited_for_awake_each_time),
    (
        "self._no_poll_until = self._now() + IDLE_BACKOFF_S",
        "pass",
        test_after_a_wait_in_vain_it_is_not_tried_again_for_a_while,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    with pytest.raises(AssertionError):
        rule(planted(network_module, right, wrong))
