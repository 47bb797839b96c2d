"""Which machine the figures come from, for the files that they are kept in; and its memory, which may be its host's."""

import contextlib
import mmap
import os
import platform
import threading
from pathlib import Path
from typing import Self

PORTION = 1 << 26  # a multiple of any large page
AHEAD = 2 * PORTION  # so much lies ready for others, and no more: it must not grow cold again
LOOK_SECONDS = 0.01


def machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}", "cpu": _processor()}


class WarmMemory:
    """So much memory that was just in use: given to whoever needs some next, and taken back.

    A virtual machine gives memory that nobody uses back to its host, two seconds after a file was deleted; who is next
    to touch a page waits until the host has found one, which costs eight times what writing a file does. Whoever writes
    a log is that one. So between two measures this process holds the memory, and each broker writes to memory that is
    at hand, as on a machine of its own.

    It is held in large pages, because a log's cache is: small ones would be found in other places than the log's.
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
        """So much, by and by, as others use it; until it is taken back."""
        self._stop_giving()
        self._is_over.clear()
        self._giving = threading.Thread(target=self._give, args=(-(-size // PORTION),), daemon=True)
        self._giving.start()

    def take(self) -> None:
        """Holds as much as it should again, if that leaves as much to others."""
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
