"""A description of the machine for files with figures; and warm memory on virtual machines."""

import contextlib
import mmap
import os
import platform
import threading
from pathlib import Path
from typing import Self

PORTION = 1 << 26  # a multiple of any large page
AHEAD = 2 * PORTION  # ready for brokers, and no more, because the host would reclaim it
LOOK_SECONDS = 0.01


def machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}", "cpu": _processor()}


class WarmMemory:
    """Holds recently used memory, gives it to the next process that needs some, and takes it back.

    A virtual machine gives unused memory back to its host, two seconds after a file was deleted; the next process to
    touch a page waits until the host provides one, which costs eight times as much as writing a file. A broker that
    writes a log would pay this cost. So between two measures this process holds the memory, and each broker writes to
    memory that is available, as on a physical machine.

    It is held in large pages, because a log's page cache uses large pages: small ones would be in other places than
    the log's.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: list[mmap.mmap] = []
        self._is_over = threading.Event()
        self._giving: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_giving()
        self._drop(len(self._held))

    @property
    def held(self) -> int:
        return len(self._held) * PORTION

    def give(self, size: int) -> None:
        """Release this much gradually, as other processes use it, until it is taken back."""
        self._stop_giving()
        self._is_over.clear()
        self._giving = threading.Thread(target=self._give, args=(-(-size // PORTION),), daemon=True)
        self._giving.start()

    def take(self) -> None:
        """Hold the full amount again, as long as enough stays free for other processes."""
        self._stop_giving()
        while self.held + PORTION <= self._size and _free_bytes() >= 2 * PORTION:
            memory = mmap.mmap(-1, PORTION, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(AttributeError, OSError):  # a system without large pages
                memory.madvise(mmap.MADV_HUGEPAGE)
            for position in range(0, PORTION, mmap.PAGESIZE):
                memory[position] = 1
            self._held.append(memory)

    def _give(self, portions: int) -> None:
        wanted = _free_bytes() + AHEAD
        while portions and self._held:
            if _free_bytes() < wanted:
                self._drop(1)
                portions -= 1
            elif self._is_over.wait(LOOK_SECONDS):
                return

    def _stop_giving(self) -> None:
        self._is_over.set()
        if self._giving is not None:
            self._giving.join()
            self._giving = None

    def _drop(self, portions: int) -> None:
        for _ in range(portions):
            self._held.pop().close()


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
