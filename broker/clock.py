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
    """trio's clock and the machine's calendar."""

    def now(self) -> float:
        return trio.current_time()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
