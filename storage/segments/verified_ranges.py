"""Which bytes of a segment have been checked, and have stayed in memory since.

No batch with a wrong CRC leaves this node (S5), yet a fetch sends file ranges that this process does not read. So the
bytes of a segment are checked once, the first time that they are fetched, and remembered as checked; what this process
appended or recovered was checked then. When some of a segment turns out not to be in the page cache any more
(page_cache_probe.py, scrub.py), all of it is forgotten here: what comes back from the disk may be damaged.

While a worker thread reads the file, it may bring back such bytes at any moment: from where it reads on, nothing is
remembered meanwhile (`suspended`).

A reader that follows the log never waits for it, a reader of old segments pays 50 µs for each new MB (the CRC of bytes
that the kernel has to fetch anyway), and a second reader pays nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MAX_VERIFIED_RANGES: Final = 16
NO_LIMIT: Final = 1 << 62
"""Readers go forward, so spans grow together. With more than this the shortest is forgotten, and checked again."""


class VerifiedRanges:
    """Disjoint ranges [start, end), in order, in one flat list: start, end, start, end, …"""

    __slots__ = ("_edges", "_limit", "_suspensions")

    def __init__(self) -> None:
        self._edges: list[int] = []
        self._limit = NO_LIMIT  # no span reaches beyond it
        self._suspensions: list[int] = []

    def __repr__(self) -> str:
        return f"VerifiedRanges({list(zip(self._edges[::2], self._edges[1::2], strict=True))})"

    def grow(self, start: int, end: int) -> None:
        """`add` for what is appended: nearly always the last span becomes longer."""
        edges = self._edges
        if edges and edges[-1] == start and end <= self._limit:
            edges[-1] = end
        else:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        end = min(end, self._limit)
        if start >= end:
            return
        merged: list[int] = []
        edges = self._edges
        for index in range(0, len(edges), 2):
            low, high = edges[index], edges[index + 1]
            if high < start or low > end:
                merged += (low, high)
            else:
                start, end = min(start, low), max(end, high)
        merged += (start, end)
        pairs = sorted(zip(merged[::2], merged[1::2], strict=True))
        if len(pairs) > MAX_VERIFIED_RANGES:
            pairs.remove(min(pairs, key=lambda pair: pair[1] - pair[0]))
        self._edges = [edge for pair in pairs for edge in pair]

    def covers(self, start: int, end: int) -> bool:
        edges = self._edges
        if edges and edges[-2] <= start < end <= edges[-1]:  # most reads want the newest bytes
            return True
        for index in range(len(edges) - 2, -1, -2):
            if edges[index] <= start:
                return end <= edges[index + 1] or start >= end
        return start >= end

    def cut(self, size: int) -> None:
        """Removes the ranges from `size` on: the file ends there now, and may grow again."""
        pairs = zip(self._edges[::2], self._edges[1::2], strict=True)
        self._edges = [edge for low, high in pairs if low < size for edge in (low, min(high, size))]

    @contextmanager
    def suspended(self, position: int = 0) -> Iterator[None]:
        """While it is open, and right after it, no byte from `position` on counts as checked. Open and close it in the
        log's own thread, around the time in which a worker thread reads the file from this position on."""
        self._suspensions.append(position)
        self._limit = min(self._suspensions)
        self.cut(position)
        try:
            yield
        finally:
            self._suspensions.remove(position)
            self._limit = min(self._suspensions, default=NO_LIMIT)
