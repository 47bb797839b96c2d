"""The scrubber: periodically compares every byte of every log on this broker with its checksum.

It scrubs one partition at a time, the one scrubbed least recently first; each again after trioka.scrub.interval.ms. It
reads in a worker thread (storage/recovery/scrub.py), a megabyte at a time, at most trioka.scrub.bytes.per.second. It
covers leaders and followers, closed segments and the active one.

Damage that it finds is recorded in the log, is no longer served to readers, and is healed (healing.py). The times of
the last scrubs are in memory only; a restart begins with all partitions again.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from trioka.protocol.errors import KafkaError
from trioka.storage.recovery.scrub import SegmentScrub
from trioka.storage.segments.segment import Segment

from ..config.trioka_keys import SCRUB_BYTES_PER_SECOND, SCRUB_ENABLE, SCRUB_INTERVAL_MS
from .partitions import NEVER_SCRUBBED, Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.scrubber")

MAX_PAUSE_S: Final = 10.0  # between two checks of what is due


def due(replicas: Iterable[Replica], now_ms: int, interval_ms: int) -> list[Replica]:
    """The partitions that are due, the one scrubbed least recently first."""
    found = [
        each
        for each in replicas
        if each.scrubbed_ms == NEVER_SCRUBBED or now_ms - each.scrubbed_ms >= interval_ms
        if not each.log.closed
    ]
    return sorted(found, key=lambda each: (each.scrubbed_ms, each.topic, each.index))


class Scrubber:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._limiter = trio.CapacityLimiter(1)

    async def run(self) -> None:
        """Runs until the broker stops."""
        while True:
            interval_ms = self._broker.config[SCRUB_INTERVAL_MS]
            if self._broker.config[SCRUB_ENABLE]:
                for replica in due(self._broker.partitions, self._broker.clock.now_ms(), interval_ms):
                    if self._broker.config[SCRUB_ENABLE] and not replica.log.closed:
                        await self._scrub_safely(replica)
            await trio.sleep(min(interval_ms / 1000, MAX_PAUSE_S))

    async def _scrub_safely(self, replica: Replica) -> None:
        try:
            await self.scrub(replica)
        except (KafkaError, OSError) as error:
            log.warning("%r cannot be scrubbed: %s", replica, error)
        except Exception as mistake:  # an internal error; the other partitions are still scrubbed
            log.error("internal error: scrubbing %r", replica, exc_info=mistake)
        replica.scrubbed_ms = self._broker.clock.now_ms()
        await trio.lowlevel.checkpoint()

    async def scrub(self, replica: Replica) -> None:
        """Scrubs the whole log, up to its present end."""
        its_log = replica.log
        for segment in list(its_log.segments):
            if segment.size and segment in its_log.segments and not its_log.closed:
                await self._scrub_segment(replica, segment)

    async def _scrub_segment(self, replica: Replica, segment: Segment) -> None:
        scrub = SegmentScrub(replica.log, segment)
        while not scrub.is_done and self._broker.config[SCRUB_ENABLE]:
            began = self._broker.clock.now()
            with scrub.distrusted():
                size = await trio.to_thread.run_sync(scrub.step, limiter=self._limiter)
            self._broker.counts.scrubbed_bytes += size
            took = self._broker.clock.now() - began
            await trio.sleep(max(size / self._broker.config[SCRUB_BYTES_PER_SECOND] - took, 0))
        found = scrub.note(replica.log)
        if found:
            _ = self._broker.replication.healing  # creates the healer, which then runs
        self._broker.counts.damage_found += len(found)
        for damage in found:
            log.warning("%r: a scrub has found damage: %s", replica, damage)
