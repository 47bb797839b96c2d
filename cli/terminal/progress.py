"""Progress of long work: on a terminal one line that is updated, otherwise one line every ten seconds.

    verify: 1.2 GB of 4.0 GB, 310.0 MB/s, 9s left

Work that ends within a second prints nothing. Progress goes to standard error, to keep standard output for data.
"""

import time
from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Final

from .output import end_status, is_stderr_terminal, status, write_stderr
from .time_parsing import show_bytes, show_duration

FIRST_S: Final = 1.0
ON_TERMINAL_S: Final = 0.2
ELSEWHERE_S: Final = 10.0
BYTES: Final = "bytes"


class Progress:
    """Use it in a `with`, so that the line is removed at the end. `total` None: unknown."""

    def __init__(
        self,
        what: str,
        unit: str,
        total: int | None = None,
        *,
        is_silent: bool = False,
        now: Callable[[], float] = time.monotonic,
        is_terminal: Callable[[], bool] = is_stderr_terminal,
    ) -> None:
        self._action, self._unit, self._total = what, unit, total
        self._now, self._is_terminal = now, is_terminal()
        self._began = now()
        self._next = inf if is_silent else self._began + (FIRST_S if self._is_terminal else ELSEWHERE_S)
        self.done = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end_status()

    def add(self, count: int = 1) -> None:
        self.reach(self.done + count)

    def reach(self, done: int) -> None:
        """Set the amount done, and print it if a line is due."""
        self.done = done
        now = self._now()
        if now >= self._next:
            self._say(line(self._action, self._unit, done, self._total, now - self._began), now)

    def wait(self, reason: str) -> None:
        """Show progress of a wait whose end cannot be estimated."""
        now = self._now()
        if now >= self._next:
            self._say(f"{self._action}: {show_duration(int(1000 * (now - self._began)))} so far; {reason}", now)

    def _say(self, text: str, now: float) -> None:
        self._next = now + (ON_TERMINAL_S if self._is_terminal else ELSEWHERE_S)
        if self._is_terminal:
            status(text)
        else:
            write_stderr(text)


def line(what: str, unit: str, done: int, total: int | None, seconds: float) -> str:
    """The amount done, the total, the rate, and the time left."""
    rate = done / seconds if seconds > 0 else 0.0
    amount = _amount(done, unit) if total is None else f"{_amount(done, unit)} of {_amount(total, unit)}"
    parts = [amount if unit == BYTES else f"{amount} {unit}", f"{_amount(round(rate), unit)}/s"]
    if total is not None and rate > 0 and done < total:
        parts.append(f"{show_duration(round(1000 * (total - done) / rate))} left")
    return f"{what}: {', '.join(parts)}"


def _amount(count: int, unit: str) -> str:
    return show_bytes(count) if unit == BYTES else f"{count:,}"
