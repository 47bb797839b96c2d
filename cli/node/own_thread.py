"""The thread of a broker, as the system sees it: where it may run, and how long it waits for its turns.

What it is for is said in broker/network/cpu_affinity.py. A broker inside of somebody else's process has none of this.
"""

import contextlib
import os
from typing import Final

SIZE_OF_A_LINE: Final = 128


def own_thread() -> "OwnThread | None":
    """None where there is only one processor, or nobody who tells how long a thread waits for one."""
    with contextlib.suppress(OSError, ValueError):
        if len(os.sched_getaffinity(0)) > 1:
            return OwnThread()
    return None


class OwnThread:
    """The one that makes it. Raises an OSError where the system does not tell how long it waits."""

    def __init__(self) -> None:
        self._usual: set[int] = set()
        self._times = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self.waits()

    def bind(self, processor: int) -> bool:
        try:
            self._usual = os.sched_getaffinity(0)
            if processor not in self._usual:
                return False
            os.sched_setaffinity(0, {processor})
        except OSError:
            return False
        return True

    def release(self, processor: int) -> None:
        if os.sched_getaffinity(0) != {processor}:
            return
        try:
            os.sched_setaffinity(0, self._usual)
        except OSError:  # of those, none is left
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, range(os.cpu_count() or 1))

    def waits(self) -> tuple[float, int]:
        _, waited_ns, turns = os.pread(self._times, SIZE_OF_A_LINE, 0).split()
        return int(waited_ns) / 1e9, int(turns)
