"""Ids for producers: each is given once in the life of a cluster.

The controller hands out blocks, and a block that a broker has not used up when it stops is lost. Kafka answers "load in
progress" while it waits for a block; here the producer waits, so that its first request succeeds.
"""

from collections.abc import Awaitable, Callable

import trio

from trioka.cluster.producer_ids import ProducerIdBlock


class ProducerIds:
    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._lock = trio.Lock()  # one block at a time, however many wait for it
        self._next = self._end = 0

    def take_nowait(self) -> int | None:
        """An id that nobody else has; None if the block is used up."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def take(self) -> int:
        while (taken := self.take_nowait()) is None:
            async with self._lock:
                if self._next == self._end:
                    block = await self._allocate()
                    self._next, self._end = block.first, block.first + block.size
        return taken
