"""The clock of the process: the only module that reads the system time; all other code takes it as an argument.

`now` is monotonic, in seconds, and used for deadlines. `now_ms` is wall-clock time in milliseconds since 1970; it
stamps records and may jump.
"""

import time
from typing import Protocol

import trio


class Clock(Protocol):
    def now(self) -> float: ...

    def now_ms(self) -> int: ...


class SystemClock:
    """trio's clock and the system's wall clock. It belongs to one run of trio and keeps its clock object: looking it up
    for each request would take two more calls."""

    def __init__(self) -> None:
        self._clock: trio.abc.Clock | None = None

    def now(self) -> float:
        if self._clock is None:
            self._clock = trio.lowlevel.current_clock()
        return self._clock.current_time()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
