"""A clock that can be advanced: the machine's time, plus what a test has added.

It is both of a broker's clocks. As trio's clock it decides when a sleep or a deadline is over; as
`trioka.broker.clock.Clock` it gives the timestamps of records and the time of coordinators. So one advance affects
everything: retention, sessions, transactions, offsets, and the periodic tasks that check them.

**Time also passes by itself**, because sockets and clients use the machine's time. A client therefore misses its
heartbeats when an hour is added, and its group does what it would have done in that hour.

**Advancing is done in steps**, from one deadline to the next, and after each step the clock waits until all woken tasks
and threads are idle. So events happen in the order of their deadlines, each at its time and not all at the end: a
transaction is aborted when its minute is over, and its id is forgotten seven days after that, not after the eight days
that were added. A week has very many deadlines (some tasks run every second), so no step is shorter than `1 / STEPS` of
the whole advance, and no event is late by more than that.
"""

import time
from collections.abc import Callable
from typing import Final

import trio
from trio.lowlevel import current_statistics

STEPS: Final = 250  # 8 days take steps of at least 46 minutes, and a fraction of a second
REST_S: Final = 5.0  # time limit for a step to become idle, for clients that poll without a pause
THREADS_LOOK_S: Final = 0.001


class MovableClock(trio.abc.Clock):
    def __init__(self) -> None:
        self._ahead_s = 0.0

    # trio's clock

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return time.perf_counter() + self._ahead_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    # The broker's clock

    now = current_time

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + int(self._ahead_s * 1000)

    async def advance(
        self,
        seconds: float,
        is_busy: Callable[[], bool],
        *,
        passed: Callable[[float], None] = lambda seconds: None,
        cushion_s: float = 0.0,
        steps: int = STEPS,
    ) -> None:
        """Advance by this time, and return when all events that were due have happened. `is_busy`: whether threads are
        at work. `passed` is called with each step before any task notices it. Bytes in flight between two sockets
        belong to no task: with several nodes, all have to be idle for `cushion_s`.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        await _wait_until_idle(is_busy, cushion_s)  # a running task has no deadline yet
        goal, grain = self._ahead_s + seconds, seconds / steps
        while self._ahead_s < goal:
            step = min(goal - self._ahead_s, max(current_statistics().seconds_to_next_deadline, grain))
            self._ahead_s = goal if goal - self._ahead_s <= step else self._ahead_s + step
            passed(step)
            await _wait_until_idle(is_busy, cushion_s)


async def _wait_until_idle(is_busy: Callable[[], bool], cushion_s: float) -> None:
    from trio.testing import wait_all_tasks_blocked

    with trio.move_on_after(REST_S):
        await wait_all_tasks_blocked(cushion_s)
        while is_busy():
            await trio.sleep(THREADS_LOOK_S)
            await wait_all_tasks_blocked(cushion_s)
