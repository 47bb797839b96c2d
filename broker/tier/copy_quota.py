"""remote.log.manager.copy.max.bytes.per.second: copies to the object store wait for their turn."""

from collections.abc import Callable

import trio


class CopyQuota:
    """Spreads copies so that on average no more bytes per second are read for them than the limit."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit  # bytes per second, as configured now
        self._free_at = 0.0
        self.throttled_s = 0.0

    async def acquire(self, size: int) -> None:
        """Waits until earlier copies have used up their time; this one's time begins then."""
        start = max(self._free_at, trio.current_time())
        self._free_at = start + size / self._limit()
        pause = start - trio.current_time()
        if pause > 0:
            self.throttled_s += pause
            await trio.sleep(pause)
