"""Excludes long-lived objects from garbage collection.

Nearly all objects of a broker are long-lived: a partition has some hundred objects, and none of them becomes garbage
before its topic is deleted. A full collection traverses all of them on the thread that serves every client; with ten
thousand partitions that takes a third of a second, and large responses trigger one every few requests. So the objects
that exist when a broker is ready are frozen, and so are the survivors of a collection that took long: each object is
traversed once, and from then on a collection costs only what was allocated since.

The price: a frozen object that later becomes part of a garbage cycle is never freed. The broker breaks its cycles
itself (broker/network/connection.py), and reference counting frees everything else.
"""

import gc
import time
from typing import Final

LONG_S: Final = 0.01  # of CPU: some fifty thousand objects

WHOLE: Final = 2  # the oldest generation


class Watch:
    """Called by the collector when a collection begins and ends."""

    def __init__(self, long_s: float = LONG_S) -> None:
        self._long_s = long_s
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == WHOLE:
            if phase == "start":
                self._began = time.thread_time()
            elif time.thread_time() - self._began > self._long_s:
                gc.freeze()


def freeze_startup_objects() -> None:
    """Freeze the objects that exist now, and from now on the survivors of long collections, in this process."""
    gc.freeze()
    gc.callbacks.append(Watch())
