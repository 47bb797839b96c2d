"""What time it is. The one place that asks the machine; everything else is told.

`now` is in seconds, never goes back, and is what deadlines are made of. `now_ms` is what people call the time, in
milliseconds since 1970; it stamps records and may jump.
"""

import time
from typing import Protocol

import trio


class Clock(Protocol):
    def now(self) -> float: ...

    def now_ms(self) -> int: ...


class SystemClock:
    """trio's clock and the machine's calendar. It belongs to one run of trio, whose clock it keeps: to ask for that one
    each time would be two more calls, before each request is looked at."""

    def __init__(self) -> None:
        self._clock: trio.abc.Clock | None = None

    def now(self) -> float:
        if self._clock is None:
            self._clock = trio.lowlevel.current_clock()
        return self._clock.current_time()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
