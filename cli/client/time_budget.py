"""How long a command waits for brokers: its `--timeout` in total, not per broker.

All connections of a command share one `TimeoutBudget`. Each wait for a connection or a response is taken from it, and
a response restores it. So a command without any response ends when its timeout is over, however many servers it was
given, and a command that gets responses goes on, however many requests it sends. The time that a user takes to answer
a question, and the sleep between two polls, do not count.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TimeoutBudget:
    def __init__(self, timeout_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.timeout_s = timeout_s
        self._now = now
        self._left_s = timeout_s
        self._reserve_s = 0.0  # kept for brokers that are tried later

    @property
    def left_s(self) -> float:
        return max(0.0, self._left_s - self._reserve_s)

    def restore(self) -> None:
        """A broker answered: restore the full budget."""
        self._left_s = self.timeout_s

    @contextmanager
    def waiting(self) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            self._left_s -= self._now() - began

    @contextmanager
    def share(self, askers: int) -> Iterator[None]:
        """Limit the first of several brokers that are tried one after the other to its part of the rest, so that time
        is left for the others. A caller that sends more requests after the last of them counts those, too.
        """
        before = self._reserve_s
        self._reserve_s = before + self.left_s * (1 - 1 / max(askers, 1))
        try:
            yield
        finally:
            self._reserve_s = before
