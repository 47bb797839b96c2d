"""Segments that have left their log and wait to be removed.

A segment leaves by being renamed to `.deleted`, which is quick, and is removed `file.delete.delay.ms` later, when
no read that was planned before can still open it. (Readers that have it open keep it anyhow.) A crash in
between loses nothing: the next start removes every `.deleted`.
"""

from collections import deque
from collections.abc import Iterable

from ..files.layout import Suffix
from .segment import Segment


class DeletedSegments:
    """The `.deleted` segments of one log, the oldest first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Segment]] | None = None  # most logs never have any

    def __len__(self) -> int:
        return len(self._waiting or ())

    def add(self, segments: Iterable[Segment], due_ms: int) -> None:
        """They are `.deleted` already."""
        if self._waiting is None:
            self._waiting = deque()
        for segment in segments:
            assert segment.suffix is Suffix.DELETED
            self._waiting.append((due_ms, segment))

    def sweep(self, now_ms: int) -> int:
        """Removes the segments whose delay has passed. Returns the number of freed bytes."""
        freed = 0
        while self._waiting and self._waiting[0][0] <= now_ms:
            segment = self._waiting[0][1]
            freed += segment.size
            segment.remove()
            self._waiting.popleft()
        return freed

    def move(self, directory: str) -> None:
        for _, segment in self._waiting or ():
            segment.move(directory)

    def forget(self) -> None:
        self._waiting = None
