"""Disks that fail on demand: what an operation is called, and what goes wrong with which of them.

A `Fault` names the operation by its kind and by its number among those of that kind, so "the third sync" and
"the 17th operation of any kind" are said the same way, and the same run always fails at the same place.
"""

import errno
from collections.abc import Collection
from enum import Enum
from typing import Final

from trioka.protocol.lazy_dataclass import frozen


class Kind(Enum):
    """The operations that can fail. Looking (exists, size, free bytes) cannot."""

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
class Operation:
    """One thing that was asked of a disk. `str` of it is a line of a report."""

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
    LIES = "a sync (of a file or a directory) does nothing and says that all is well"


@frozen
class Fault:
    """The `nth` operation (from 1) of these kinds, and `times - 1` after it, go wrong. No kinds means any."""

    nth: int = 1
    kinds: frozenset[Kind] = frozenset()
    effect: Effect = Effect.FAILS
    error: int = errno.EIO
    times: int = 1


ALWAYS: Final = 1 << 62
"""As `times`: from then on for ever."""


class Faults:
    """The faults that a disk was told to have, and how far each of them has counted."""

    def __init__(self) -> None:
        self._counts: dict[Fault, int] = {}
        self.fired = 0

    def add(self, fault: Fault) -> None:
        self._counts[fault] = 0

    def clear(self) -> None:
        self._counts.clear()

    def meet(self, kind: Kind) -> Fault | None:
        """Count an operation of this kind; the fault that strikes it, if one does."""
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
