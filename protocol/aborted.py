"""Which batches of a Fetch response belong to aborted transactions: what a reader with `read_committed` leaves out.

The broker lists the aborted transactions of a response by producer id and first offset. A transaction lasts until the
producer's next marker, which may stand behind the response; batches of other producers may lie between.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from .batch import BatchHeader


class Aborted(Protocol):
    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class AbortedBatches:
    """Looks at the batches of one partition in their order."""

    def __init__(self, listed: Iterable[Aborted] | None) -> None:
        self._waiting = deque(sorted((each.first_offset, each.producer_id) for each in listed or ()))
        self._producers: set[int] = set()  # whose transaction is open here, and will be aborted

    def hides(self, header: BatchHeader) -> bool:
        while self._waiting and self._waiting[0][0] <= header.last_offset:
            self._producers.add(self._waiting.popleft()[1])
        if header.is_control:
            self._producers.discard(header.producer_id)
        return header.is_transactional and header.producer_id in self._producers
