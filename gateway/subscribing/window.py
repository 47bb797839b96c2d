"""What may be sent to a subscriber, and what it has not acknowledged. Pure.

A record is sent if there is credit for it, and if what is sent and not acknowledged stays within limits. An
acknowledgement is of a record and of those before it in its partition, as Kafka's offsets are.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

MAX_CREDIT = 1_000_000


class Place(NamedTuple):
    topic: str
    partition: int


class DeliveryWindow:
    def __init__(self, *, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._credit = 0
        self._unacknowledged: dict[Place, deque[tuple[int, int]]] = {}  # offset and size
        self._records = self._bytes = 0

    @property
    def allowed(self) -> int:
        """So many records may be sent now."""
        if self._bytes >= self._max_bytes:
            return 0
        return max(0, min(self._credit, self._max_records - self._records))

    @property
    def unacknowledged(self) -> int:
        return self._records

    def add_credit(self, count: int) -> None:
        self._credit = min(self._credit + count, MAX_CREDIT)

    def sent(self, place: Place, offset: int, size_bytes: int) -> None:
        self._credit -= 1
        self._unacknowledged.setdefault(place, deque()).append((offset, size_bytes))
        self._records += 1
        self._bytes += size_bytes

    def accept(self, place: Place, offset: int) -> bool:
        """False if nothing up to this offset is unacknowledged: an acknowledgement that comes twice, or too late."""
        waiting, found = self._unacknowledged.get(place), False
        while waiting and waiting[0][0] <= offset:
            self._forget(waiting.popleft()[1])
            found = True
        return found

    def release(self, place: Place, offset: int) -> int | None:
        """The offset from which the partition is sent again; None if no such record is unacknowledged."""
        waiting, first = self._unacknowledged.get(place), None
        while waiting and waiting[-1][0] >= offset:
            first, size = waiting.pop()
            self._forget(size)
        return first

    def revoke(self, places: Iterable[Place]) -> None:
        for place in places:
            for _, size in self._unacknowledged.pop(place, ()):
                self._forget(size)

    def _forget(self, size_bytes: int) -> None:
        self._records -= 1
        self._bytes -= size_bytes
