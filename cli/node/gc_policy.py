"""What the garbage collector need not look through again.

Nearly all that a broker holds stays: a partition is some hundred objects, and none of them is garbage before its topic
is deleted. A whole collection looks through all of it, on the thread that serves everybody; with ten thousand
partitions that takes a third of a second, and large answers make one due every few requests. So what there is when a
broker is ready is taken out of collections, and so is what a collection that took long has left over: each object is
looked at once, and from then on a collection costs what has come since.

The price: what is taken out and becomes garbage in a circle later is never found. The broker breaks its circles itself
(broker/network/connection.py), and everything else goes when its last user does.
"""

import gc
import time
from typing import Final

LONG_S: Final = 0.01  # of CPU: some fifty thousand objects

WHOLE: Final = 2  # the oldest generation


class Watch:
    """Told by the collector when it begins and ends."""

    def __init__(self, long_s: float = LONG_S) -> None:
        self._long_s = long_s
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == WHOLE:
            if phase == "start":
                self._began = time.thread_time()
            elif time.thread_time() - self._began > self._long_s:
                gc.freeze()


def keep_what_stays() -> None:
    """From now on, in this process. What there is by now stays."""
    gc.freeze()
    gc.callbacks.append(Watch())
