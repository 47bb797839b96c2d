"""Deadlines by key: member sessions, rebalances, transactions.

Most deadlines are moved before they are reached (each heartbeat moves one), so moving must be cheap: the heap keeps the
earlier time, and the current time is looked up when that entry is reached. A heap with more outdated than current
entries is rebuilt.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SWEEP_AT_LEAST: Final = 64


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []  # times at or before those in `_at`
        self._numbers = count()  # keys need not be comparable; equal times keep the order in which they were set

    def __len__(self) -> int:
        return len(self._at)

    def get(self, key: K) -> int | None:
        return self._at.get(key)

    def set(self, key: K, at_ms: int) -> None:
        before = self._at.get(key)
        self._at[key] = at_ms
        if before is None or at_ms < before:
            heappush(self._heap, (at_ms, next(self._numbers), key))
            if len(self._heap) > max(SWEEP_AT_LEAST, 2 * len(self._at)):
                self._heap = [(at, next(self._numbers), key) for key, at in self._at.items()]
                heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._at.pop(key, None)

    def next(self) -> int | None:
        """When to call `due` next. Nothing is due before; maybe nothing is due then."""
        while self._heap and self._heap[0][2] not in self._at:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[K]:
        """Removes and returns the keys that are due, in order."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, number, key = heappop(self._heap)
            holds = self._at.get(key)
            if holds is None:
                continue
            if holds > now_ms:
                heappush(self._heap, (holds, number, key))
            else:
                found.append((holds, number, key))
                del self._at[key]
        return [key for _, _, key in sorted(found, key=lambda entry: entry[:2])]
