"""How much of a file is in the page cache: a system call that Python's `os` does not have.

`cachestat` (Linux 6.5) counts the pages of a range that are in the page cache, in one call that costs as little as two
probes, and leaves none out (`bench/log.py` compares them). It does not report whether they are being read at this
moment: the caller has to check the last byte.

Only imported when it is needed: loading ctypes takes longer than opening a log.
"""

import ctypes
import os
import sys
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")

_CACHESTAT: Final = 451  # on all of Linux' processors but Alpha, which Python's trio does not meet
_Numbers = ctypes.c_uint64 * 7  # the range: offset, size; the answer: pages cached, dirty, in writeback, evicted twice
_ANSWER_AT: Final = 2 * ctypes.sizeof(ctypes.c_uint64)

_syscall = ctypes.PyDLL(None).syscall  # keeps the interpreter's lock: it never waits
_syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]


def cached_pages(descriptor: int, offset: int, size: int) -> int | None:
    """The number of pages of a range that are in memory. None if the kernel does not support the call."""
    if sys.platform != "linux":
        return None
    numbers = _Numbers(offset, size)
    address = ctypes.addressof(numbers)
    if _syscall(_CACHESTAT, descriptor, address, address + _ANSWER_AT, 0) != 0:
        return None
    return numbers[2]


def touched_pages(offset: int, size: int) -> int:
    return (offset + size - 1) // PAGE_BYTES - offset // PAGE_BYTES + 1
