"""Disks that fail on demand: the kinds of operations, and the faults that strike them.

A `Fault` names the operation by its kind and by its number among those of that kind, so "the third sync" and
"the 17th operation of any kind" are expressed the same way, and the same run always fails at the same operation.
"""

import errno
from collections.abc import Collection
from enum import Enum
from typing import Final

from trioka.protocol.lazy_dataclass import frozen


class Kind(Enum):
    """The operations that can fail. Queries (exists, size, free bytes) cannot."""

    OPEN = "open"
    CREATE = "create"
    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    MAP = "map"
    LIST = "list"
    MAKE_DIRECTORY = "make directory"
    RENAME = "rename"
    REMOVE = "remove"
    SYNC_DIRECTORY = "sync directory"


@frozen
class DiskOperation:
    """One operation on a disk. Its `str` is a line of a report."""

    number: int
    kind: Kind
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.number:>4}  {self.kind.value} {self.path}{' ' if self.detail else ''}{self.detail}"


class Effect(Enum):
    FAILS = "nothing happens, and the error is raised"
    HALF = "half of a write arrives, then the error is raised; other operations just fail"
    DROPS = "a sync raises the error and forgets what it should have written, so the next sync has nothing to do"
    LIES = "a sync (of a file or a directory) does nothing and reports success"


@frozen
class Fault:
    """The `nth` operation (from 1) of these kinds, and `times - 1` after it, fail. No kinds means any."""

    nth: int = 1
    kinds: frozenset[Kind] = frozenset()
    effect: Effect = Effect.FAILS
    error: int = errno.EIO
    times: int = 1


ALWAYS: Final = 1 << 62
"""For `times`: all operations from then on."""


class Faults:
    """The faults of a disk, and the number of operations that each has counted."""

    def __init__(self) -> None:
        self._counts: dict[Fault, int] = {}
        self.fired = 0

    def add(self, fault: Fault) -> None:
        self._counts[fault] = 0

    def clear(self) -> None:
        self._counts.clear()

    def meet(self, kind: Kind) -> Fault | None:
        """Count an operation of this kind; return the fault that strikes it, if any."""
        struck = None
        for fault in self._counts:
            if _concerns(fault.kinds, kind):
                self._counts[fault] += 1
                if fault.nth <= self._counts[fault] < fault.nth + fault.times:
                    struck = struck or fault
        self.fired += struck is not None
        return struck


def _concerns(kinds: Collection[Kind], kind: Kind) -> bool:
    return not kinds or kind in kinds
