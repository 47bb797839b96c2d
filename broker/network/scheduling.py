"""Short turns on the processor, and so early ones.

Whoever computes has the processor for some milliseconds at a time, and a broker that wakes for a request beside such
neighbours waits until a turn is over. Linux gives those who ask for shorter turns theirs sooner, and no more of the
processor in all (EEVDF, from 6.12 on; before that it takes the wish, and does nothing). Beside two processes that
compute, on two processors, that makes the p99 of a thousand records a second half as long in the median, and a sixth of
it in the best of six rounds (docs/PERFORMANCE.md).

The same goes for the threads of the broker itself, of which one at a time has the interpreter: who wants it waits until
it is let go for a system call, or for 5 ms. That is long for the thread that serves everybody, if another one computes
(a large group is loaded). So turns are asked for that are as long as a request takes.

Only imported when a broker is ready: loading ctypes takes some milliseconds, and nobody waits for this.
"""

import ctypes
import os
import sys
from struct import Struct
from typing import Final

TURN_NS: Final = 300_000  # long enough for a round of requests
INTERPRETER_TURN_S: Final = 20e-6

_SET_ATTRIBUTES: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  # the number of `sched_setattr`
# `struct sched_attr`: its size, policy, flags, nice, priority, length of a turn, deadline, period.
_ATTRIBUTES: Final = Struct("=IIQiIQQQ")


def ask_for_short_turns() -> bool:
    """For the thread that calls, and those that it starts from then on; those of the interpreter for all. Whether the
    system has granted them: a process to which somebody has given another policy keeps it, and so does one on a system
    that does not know of this."""
    sys.setswitchinterval(INTERPRETER_TURN_S)
    number = _SET_ATTRIBUTES.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wished = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, TURN_NS, 0, 0)
    answer: int = ctypes.CDLL(None).syscall(number, 0, wished, 0)
    return answer == 0
