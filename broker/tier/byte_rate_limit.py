"""Limits the bytes per second of copies to the object store, and of reads from it.

    remote.log.manager.copy.max.bytes.per.second, remote.log.manager.fetch.max.bytes.per.second

Who acquires bytes waits until those acquired before are paid for, at the limit as it is configured meanwhile: a higher
limit takes effect for those who wait, too, within a second.
"""

from collections.abc import Callable
from typing import Final

import trio

LONGEST_SLEEP_S: Final = 1.0  # then the limit is looked at again


class ByteRateLimit:
    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit  # bytes per second, as configured now
        self._unpaid = 0.0  # bytes that were acquired and whose time has not passed yet
        self._paid_at = 0.0
        self.throttled_s = 0.0

    async def acquire(self, size: int) -> None:
        """Waits until earlier bytes are paid for; the time of these begins then."""
        self._pay()
        before = self._unpaid
        self._unpaid += size
        began = trio.current_time()
        while before > 0:
            limit = self._limit()
            pause = min(before / limit, LONGEST_SLEEP_S)
            await trio.sleep(pause)
            before -= pause * limit
            self._pay()
        self.throttled_s += trio.current_time() - began

    def _pay(self) -> None:
        now = trio.current_time()
        self._unpaid = max(0.0, self._unpaid - (now - self._paid_at) * self._limit())
        self._paid_at = now
