"""Time for whole brokers in one process: a clock that jumps, processes that can be paused, and no threads,
except simulated ones.

trio asks its clock how long to sleep when no task can run. Here the clock jumps at once to the next event: an event of
the network or of the world, or trio's next deadline. So no run ever waits, and the seed decides the order of events at
the same time.

A simulated process is identified by `PROCESS`, which its tasks inherit. While it is paused, its tasks do not run, as
after SIGSTOP: the events that would resume them, deadlines or bytes, wait until it continues.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from math import inf
from random import Random
from typing import Any

import trio
import trio._core._run as trio_loop

EPOCH_MS = 1_700_000_000_000


LOOKS = 300_000


class Livelock(AssertionError):
    """Tasks wake each other without end, and the time does not advance."""


class Process:
    """A process on one machine, from its start to its end."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.random = random
        self.is_alive = True
        self.is_paused = False
        self.thread_s = (0.0002, 0.002)  # how long work in a thread takes, at least and at most
        self._held: list[Any] = []

    def hold(self, task: Any) -> None:
        self._held.append(task)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, []
        queue = trio_loop.GLOBAL_RUN_CONTEXT.runner.runq
        for task in held:
            queue.append(task)


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class _Runnable(deque[Any]):
    """trio's queue of tasks that can run: those of a paused process cannot."""

    def append(self, task: Any) -> None:
        process = task.context.get(PROCESS)
        if process is not None and process.is_paused:
            process.hold(task)
        else:
            super().append(task)


class SimClock(trio.abc.Clock):
    def __init__(self) -> None:
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.event_count = 0
        self._looks = 0  # since time went on last

    def start_clock(self) -> None:
        trio_loop.GLOBAL_RUN_CONTEXT.runner.runq = _Runnable(trio_loop.GLOBAL_RUN_CONTEXT.runner.runq)

    def current_time(self) -> float:
        self._looks += 1
        if self._looks > LOOKS:
            raise Livelock(f"it never comes to rest: {self._now:.3f} s is as far as it gets")
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        events, self._looks = self._events, 0
        if events and events[0][0] <= deadline:
            self._now = now = max(self._now, events[0][0])
            while events and events[0][0] <= now:
                self.event_count += 1
                heapq.heappop(events)[2]()
        elif deadline < inf:
            self._now = max(self._now, deadline)
        return 0.0

    def at(self, when: float, event: Callable[[], None]) -> None:
        """`event` must not wait; it may wake tasks."""
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self.at(self._now + seconds, event)


class WallClock:
    """A broker's clock: the time since the start is common, the calendar is its own, and may be wrong."""

    def __init__(self, clock: SimClock, ahead_ms: int) -> None:
        self.now = clock.current_time
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self._ahead_ms + int(self.now() * 1000)


async def _offload(
    work: Callable[..., Any],
    *arguments: Any,
    thread_name: str | None = None,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> Any:
    """In place of `trio.to_thread.run_sync`. The work is done at some moment between its begin and its end: the caller
    cannot know whether it includes the events in between."""
    await trio.lowlevel.checkpoint_if_cancelled()
    process = PROCESS.get()
    assert process is not None, "work in a thread, outside of every process"
    if limiter is None:
        return await _elsewhere(process, work, *arguments)
    async with limiter:
        return await _elsewhere(process, work, *arguments)


async def _elsewhere(process: Process, work: Callable[..., Any], *arguments: Any) -> Any:
    with trio.CancelScope(shield=True):
        took = process.random.uniform(*process.thread_s)
        before = took * process.random.choice((0.0, 0.5, 1.0))
        await trio.sleep(before)
        try:
            return _in_a_thread(work, *arguments)
        finally:
            await trio.sleep(took - before)


IN_THREAD: ContextVar[bool] = ContextVar("IN_THREAD", default=False)
_in_trio_run = trio.lowlevel.in_trio_run


def _in_a_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """Code that checks meanwhile whether it runs on the event loop finds that it does not."""
    token = IN_THREAD.set(True)
    try:
        return work(*arguments)
    finally:
        IN_THREAD.reset(token)


def _on_the_loop() -> bool:
    return _in_trio_run() and not IN_THREAD.get()


@contextmanager
def simulated_time(seed: int) -> Iterator[None]:
    """While it lasts, trio schedules by the seed, and there are no threads."""
    was_allowed, run_sync = trio_loop._ALLOW_DETERMINISTIC_SCHEDULING, trio.to_thread.run_sync
    trio_loop._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_loop._r.seed(seed)
    trio.to_thread.run_sync = _offload  # type: ignore[assignment]
    trio.lowlevel.in_trio_run = _on_the_loop
    try:
        yield
    finally:
        trio_loop._ALLOW_DETERMINISTIC_SCHEDULING = was_allowed  # type: ignore[misc]
        trio_loop._r.seed()
        trio.to_thread.run_sync = run_sync
        trio.lowlevel.in_trio_run = _in_trio_run
