"""Reads ahead in worker threads, so that the event loop does not wait for a disk.

At most `THREADS` reads run at once, so that consumers of old records neither take all worker threads, which appends
need for fsyncs, nor cause too many seeks. Further reads, and their connections, wait.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

import trio

from trioka.storage.reads.page_cache_probe import UncachedRange, warm, warmed

THREADS: Final = 4


class ColdReads:
    __slots__ = ("_limiter",)

    def __init__(self) -> None:
        self._limiter: trio.CapacityLimiter | None = None  # created on first use, because it needs a running loop

    async def warm(self, parts: Sequence[UncachedRange]) -> None:
        """Load the ranges into the page cache. Raises KafkaStorageError if a disk fails."""
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(THREADS)
        for part in parts:
            with nullcontext() if part.segment is None else part.segment.checked.suspended():
                sound_end = await trio.to_thread.run_sync(partial(warm, part), limiter=self._limiter)
            warmed(part, sound_end)
