"""Producer ids: each is used once in the life of a cluster.

The controller allocates blocks; the rest of a block is lost when the broker stops. Kafka returns
COORDINATOR_LOAD_IN_PROGRESS while it waits for a block; here the request waits, so that it succeeds the first time.
"""

from collections.abc import Awaitable, Callable

import trio

from trioka.cluster.controller.producer_ids import ProducerIdBlock


class ProducerIds:
    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._lock = trio.Lock()  # one block at a time, even if several requests wait
        self._next = self._end = 0

    def take_nowait(self) -> int | None:
        """A new producer id; None if the block is used up."""
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
