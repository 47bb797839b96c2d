"""A clock that can be advanced: the machine's, plus what a test has added.

It is both of a broker's clocks. As trio's it decides when a sleep or a deadline is over; as `trioka.broker.clock.Clock`
it stamps records and tells coordinators what time it is. So one addition moves everything: retention, sessions,
transactions, offsets, and the chores that look at them.

**Time goes on by itself, too**, because sockets and clients live on the machine's. A client therefore misses its
heartbeats when an hour is added, and its group does what it would have done in that hour.

**Advancing is done in steps**, from one deadline to the next, and after each step everything that it has woken comes to
rest, work in threads included. What falls due one after the other so happens one after the other, at its time and not
all at the end: a transaction is aborted when its minute is over, and its id is forgotten seven days after that, not
after the eight days that were added. A week has very many deadlines (some chores look every second), so no step is
shorter than `1 / STEPS` of the whole way, and nothing happens later than so much.
"""

import time
from collections.abc import Callable
from typing import Final

import trio
from trio.lowlevel import current_statistics

STEPS: Final = 250  # 8 days then go in steps of 46 minutes at least, and take a fraction of a second
REST_S: Final = 5.0  # so long may a step take to come to rest; clients that never stop asking must not hold it up
THREADS_LOOK_S: Final = 0.001


class MovableClock(trio.abc.Clock):
    def __init__(self) -> None:
        self._ahead_s = 0.0

    # trio's

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return time.perf_counter() + self._ahead_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    # The broker's

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
        """Adds so much, and returns when all that fell due has happened. `is_busy`: whether threads are at work.
        `passed` is told of each step before anybody notices it. What is on its way between sockets is nobody's for a
        moment: where several nodes talk, everything has to rest for as long as `cushion_s`."""
        if seconds < 0:
            raise ValueError("time does not go back")
        await _come_to_rest(is_busy, cushion_s)  # who has not gone to sleep yet has no deadline
        goal, grain = self._ahead_s + seconds, seconds / steps
        while self._ahead_s < goal:
            step = min(goal - self._ahead_s, max(current_statistics().seconds_to_next_deadline, grain))
            self._ahead_s = goal if goal - self._ahead_s <= step else self._ahead_s + step
            passed(step)
            await _come_to_rest(is_busy, cushion_s)


async def _come_to_rest(is_busy: Callable[[], bool], cushion_s: float) -> None:
    from trio.testing import wait_all_tasks_blocked

    with trio.move_on_after(REST_S):
        await wait_all_tasks_blocked(cushion_s)
        while is_busy():
            await trio.sleep(THREADS_LOOK_S)
            await wait_all_tasks_blocked(cushion_s)
