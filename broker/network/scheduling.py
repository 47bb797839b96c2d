"""Short scheduler timeslices, for the process and for Python's threads, so that the broker runs soon after it wakes.

A CPU-bound process keeps the processor for some milliseconds, and a broker that wakes for a request waits until that
timeslice ends. Linux schedules threads with shorter timeslices sooner, without giving them more CPU time in all (EEVDF,
from 6.12 on; older kernels accept the request and ignore it). Beside two CPU-bound processes on two processors, that
halves the p99 of a thousand records a second in the median of six rounds, and cuts it to a sixth in the best
(bench/HISTORY.md).

The same holds for Python's threads, of which one holds the GIL at a time: another thread waits until the holder makes a
system call, or for 5 ms. That is long for the event loop if a worker thread computes (a large group is loaded), so the
switch interval is set to about the time of one request.

Imported only when a broker is ready, because loading ctypes takes some milliseconds.
"""

import ctypes
import os
import sys
from struct import Struct
from typing import Final

SLICE_NS: Final = 300_000  # long enough for a round of requests
SWITCH_INTERVAL_S: Final = 20e-6

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  # the number of `sched_setattr`
# `struct sched_attr`: its size, policy, flags, nice, priority, runtime (the timeslice), deadline, period.
_ATTRIBUTES: Final = Struct("=IIQiIQQQ")


def request_short_timeslice() -> bool:
    """Sets the timeslice of the calling thread and of threads that it starts later, and the switch interval of all
    threads. Whether the system accepted the timeslice: a process with another scheduling policy keeps that, and other
    systems than Linux do not support it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    result: int = ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    return result == 0
