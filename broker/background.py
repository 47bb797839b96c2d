"""What a broker does when nobody asks: old segments go, logs are compacted, data becomes durable.

Each chore runs by itself, at the interval that its key says. What one log cannot do (its disk has failed, a batch in it
is damaged) is said once and must not keep the others from their turn.

A log belongs to the event loop, so the chores work there, in pieces, and let everyone else have a turn between two of
them. Only what a log says may run elsewhere does: making it durable, and writing the checkpoints.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import trio

from trioka.protocol.errors import KafkaError
from trioka.storage import retention
from trioka.storage.batch_scan import BadBatch
from trioka.storage.cleaner import Abandoned, clean, dirt_of
from trioka.storage.compaction import Candidate, dirtiest
from trioka.storage.directory import LogDirectory
from trioka.storage.log import Log

from .config.key import Key
from .config.layers import Config
from .config.log_keys import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_ENABLE,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS,
    PRODUCER_ID_EXPIRATION_MS,
)
from .config.replication_keys import REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger("trioka.housekeeping")

FLUSH_CHECK_MS: Final = 1000  # flush.ms is kept to the second
SNAPSHOT_CHECK_MS: Final = 60_000
SWEEP_MS: Final = 30_000


class Housekeeping:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # A log that is deleted is nobody's business any more: nothing here may hold it.
        self._flushed_ms: WeakKeyDictionary[Log, int] = WeakKeyDictionary()  # since when each has something to flush
        self._complaints: WeakKeyDictionary[Log, str] = WeakKeyDictionary()
        self._noted: dict[str, object] = {}  # what the checkpoints of a directory say

    async def run(self) -> None:
        """All chores, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, LOG_RETENTION_CHECK_INTERVAL_MS, self.forget)
            nursery.start_soon(self._every, LOG_CLEANER_BACKOFF_MS, self.compact)
            nursery.start_soon(self._every, LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS, self.checkpoint)
            nursery.start_soon(self._every, LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS, self.note)
            nursery.start_soon(self._every, REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS, self.note)
            nursery.start_soon(self._every, PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS, self.forget_producers)
            nursery.start_soon(self._every, FLUSH_CHECK_MS, self.flush)
            nursery.start_soon(self._every, SWEEP_MS, self.sweep)
            nursery.start_soon(self._every, SNAPSHOT_CHECK_MS, self.snapshot)
            nursery.start_soon(self._broker.replication.scrubber.run)

    async def _every(self, interval: Key[int] | int, chore: Callable[[], Awaitable[None]]) -> None:
        while True:
            interval_ms = interval if isinstance(interval, int) else self._config[interval]
            await trio.sleep(interval_ms / 1000)
            try:
                await chore()
            except (KafkaError, OSError) as error:
                log.warning("%s: %s", getattr(chore, "__name__", chore), error)

    @property
    def _config(self) -> Config:
        return self._broker.config

    def _logs(self) -> list[Log]:
        return [replica.log for replica in self._broker.partitions]

    async def _of_each(self, chore: Callable[[Log], None]) -> None:
        for each in self._logs():
            if not each.closed:
                try:
                    chore(each)
                except (KafkaError, OSError, BadBatch) as reason:
                    self._complain(each, reason)
            await trio.lowlevel.checkpoint()

    def _complain(self, each: Log, reason: Exception) -> None:
        """Once, until it is another reason."""
        if self._complaints.get(each) != str(reason):
            self._complaints[each] = str(reason)
            log.warning("%s: %s", each.name, reason)

    # -- the chores ----------------------------------------------------------------------------------------------------

    async def forget(self) -> None:
        """Retention: by time, by size, and what lies before a log's start."""
        await self._of_each(self._forget)

    def _forget(self, each: Log) -> None:
        decision = retention.enforce(each, now_ms=self._broker.clock.now_ms())
        for gone in decision.forgotten:
            log.info("%s: the segment at %d goes, it %s", each.name, gone.base_offset, gone.reason.value)

    async def sweep(self) -> None:
        """Files that were deleted a while ago are removed now."""
        for directory in self._broker.directories:
            if directory.failure is None:
                directory.sweep(self._broker.clock.now_ms())
            await trio.lowlevel.checkpoint()

    async def compact(self) -> None:
        """One round for every log that is due, the dirtiest first."""
        if not self._config[LOG_CLEANER_ENABLE]:
            return
        tried: set[Log] = set()
        while (chosen := self._dirtiest(tried)) is not None:
            candidate, each, directory = chosen
            tried.add(each)
            each.is_compacting = True
            try:
                work = clean(each, candidate.dirt, now_ms=self._broker.clock.now_ms())
                while True:
                    try:
                        next(work)
                    except StopIteration as done:
                        directory.compacted(each, done.value.first_dirty_offset)
                        break
                    await trio.lowlevel.checkpoint()
            except (Abandoned, BadBatch, KafkaError, OSError) as reason:
                if not each.closed:  # the topic is deleted
                    self._complain(each, reason)
            finally:
                each.is_compacting = False

    def _dirtiest(self, tried: set[Log]) -> tuple[Candidate, Log, LogDirectory] | None:
        now_ms = self._broker.clock.now_ms()
        by_name = {}
        candidates = []
        for directory in self._broker.directories:
            if directory.failure is not None:
                continue
            for name, each in list(directory.logs.items()):  # a worker thread may be making others
                if each.config.compacts and each not in tried and not each.closed and not each.quarantine:
                    dirt = dirt_of(each, each.first_dirty_offset, now_ms=now_ms)
                    candidates.append(Candidate(partition=name, dirt=dirt, config=each.config))
                    by_name[name] = (each, directory)
        chosen = dirtiest(candidates)
        return None if chosen is None else (chosen, *by_name[chosen.partition])

    async def checkpoint(self) -> None:
        """Closed segments become durable, so that a crash has only the active ones to look at; then it is noted."""
        for each in self._logs():
            if not each.closed and each.recovery_point < each.segments.active.base_offset:
                await self._make_durable(each)
        await self.note()

    async def _make_durable(self, each: Log) -> None:
        try:
            await self._broker.commit.flush(each)
        except KafkaError as reason:
            self._complain(each, reason)

    async def note(self) -> None:
        """Where each log starts, how far it is durable and how far replicated, if any of that has changed."""
        for directory in self._broker.directories:
            offsets = [
                (name, each.recovery_point, each.log_start_offset, each.high_watermark)
                for name, each in list(directory.logs.items())  # a worker thread may be making others
            ]
            if directory.failure is None and self._noted.get(directory.path) != offsets:
                await trio.to_thread.run_sync(directory.checkpoint)
                self._noted[directory.path] = offsets

    async def flush(self) -> None:
        """flush.ms: what was appended is durable after so long at the latest."""
        now_ms = self._broker.clock.now_ms()
        due = []
        for each in self._logs():
            if each.closed or each.recovery_point >= each.log_end_offset:
                self._flushed_ms.pop(each, None)
            elif now_ms - self._flushed_ms.setdefault(each, now_ms) >= each.config.flush_ms:
                due.append(each)
        for each in due:
            self._flushed_ms.pop(each, None)
            await self._make_durable(each)

    async def forget_producers(self) -> None:
        """producer.id.expiration.ms: a producer that was idle for so long starts anew."""
        now_ms, expiration_ms = self._broker.clock.now_ms(), self._config[PRODUCER_ID_EXPIRATION_MS]
        await self._of_each(lambda each: _ignore(each.producers.expire(now_ms, expiration_ms)))

    async def snapshot(self) -> None:
        """Of the metadata, every hour in which something happened."""
        if self._broker.quorum.wants_snapshot:
            await self._broker.quorum.take_snapshot()


def _ignore(_: object) -> None:
    pass
