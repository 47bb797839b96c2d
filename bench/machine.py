"""Which machine the figures come from, for the files that they are kept in; and its memory, which may be its host's."""

import contextlib
import mmap
import os
import platform
from pathlib import Path


def machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}", "cpu": _processor()}


def touch_memory(size: int) -> int:
    """Has so much memory handed out, touched and taken back, as far as it is free. How much that was.

    A virtual machine gives memory that nobody uses back to its host, some seconds after a file was deleted; who is next
    to touch a page waits until the host has found one, which costs five times what writing to it does. Whoever writes a
    log is that one. So each broker has memory at hand that was just in use, as a machine of its own would have.
    """
    size = min(size, _free_bytes() // 2) // mmap.PAGESIZE * mmap.PAGESIZE
    if size:
        with mmap.mmap(-1, size) as memory:
            with contextlib.suppress(AttributeError, OSError):  # without large pages it takes longer
                memory.madvise(mmap.MADV_HUGEPAGE)
            for position in range(0, size, mmap.PAGESIZE):
                memory[position] = 1
    return size


def _free_bytes() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemFree:"):
                return int(line.split()[1]) * 1024
    return 0


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
