"""How long a command waits for those whom it asks: its `--timeout`, and not that long for each of them.

All connections of a command share one `Patience`. What they wait, for a connection or for an answer, is taken from it,
and an answer restores it. So a command that nobody answers ends when its timeout is over, however many servers it was
told of, and one that is answered goes on, however much there is to ask. What a person needs to answer a question, and
what a command sleeps between two looks, does not count.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Patience:
    def __init__(self, timeout_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.timeout_s = timeout_s
        self._now = now
        self._left_s = timeout_s
        self._reserve_s = 0.0  # kept for those who are asked later

    @property
    def left_s(self) -> float:
        return max(0.0, self._left_s - self._reserve_s)

    def restore(self) -> None:
        """Somebody has answered."""
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
        """For the first of so many who are asked one after the other, whatever becomes of it: its part of what is left,
        so that there is something left for the others. Who has more to ask after the last of them counts that, too."""
        before = self._reserve_s
        self._reserve_s = before + self.left_s * (1 - 1 / max(askers, 1))
        try:
            yield
        finally:
            self._reserve_s = before
