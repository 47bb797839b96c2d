"""Reads that would wait for a disk, in threads of their own.

A few at a time (`THREADS`), so that consumers of old records neither take all worker threads, which appends need for
their fsyncs, nor set the disk against itself. Others wait for their turn; their connections wait with them.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

import trio

from trioka.storage.page_cache_probe import ColdPart, warm, warmed

THREADS: Final = 4


class ColdReads:
    __slots__ = ("_limiter",)

    def __init__(self) -> None:
        self._limiter: trio.CapacityLimiter | None = None  # made with the first one: it needs a running loop

    async def warm(self, parts: Sequence[ColdPart]) -> None:
        """All of them are in memory when it returns. KafkaStorageError if a disk fails."""
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(THREADS)
        for part in parts:
            with nullcontext() if part.segment is None else part.segment.checked.suspended():
                sound_end = await trio.to_thread.run_sync(partial(warm, part), limiter=self._limiter)
            warmed(part, sound_end)
