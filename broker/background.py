"""Periodic log maintenance: retention, compaction and flushes.

Each chore runs in a task of its own, at the interval of its key. A failure of one log (its disk has failed, a batch is
damaged) is logged once and does not stop the chore for the other logs.

Logs belong to the event loop, so the chores run there, in steps, with a checkpoint of trio between two of them. Only
syncs and writing of checkpoint files run in worker threads.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import trio

from trioka.protocol.errors import KafkaError
from trioka.storage.cleaning import retention
from trioka.storage.cleaning.cleaner import CleaningAborted, clean, log_to_clean
from trioka.storage.cleaning.compaction import Candidate, dirtiest
from trioka.storage.directory import LogDirectory
from trioka.storage.log import Log
from trioka.storage.segments.batch_scan import BadBatch

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

FLUSH_CHECK_MS: Final = 1000  # the precision of flush.ms
SNAPSHOT_CHECK_MS: Final = 60_000
SWEEP_MS: Final = 30_000


class LogMaintenance:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # Nothing here may keep a reference to a deleted log.
        self._flushed_ms: WeakKeyDictionary[Log, int] = WeakKeyDictionary()  # when unflushed data was noticed
        self._warnings: WeakKeyDictionary[Log, str] = WeakKeyDictionary()  # the last one of each log
        self._checkpointed: dict[str, object] = {}  # the offsets in each directory's checkpoint files

    async def run(self) -> None:
        """Runs all chores until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, LOG_RETENTION_CHECK_INTERVAL_MS, self.apply_retention)
            nursery.start_soon(self._every, LOG_CLEANER_BACKOFF_MS, self.compact)
            nursery.start_soon(self._every, LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS, self.checkpoint)
            nursery.start_soon(self._every, LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS, self.write_checkpoints)
            nursery.start_soon(self._every, REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS, self.write_checkpoints)
            nursery.start_soon(self._every, PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS, self.expire_producers)
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

    async def _for_each_log(self, chore: Callable[[Log], None]) -> None:
        for each in self._logs():
            if not each.closed:
                try:
                    chore(each)
                except (KafkaError, OSError, BadBatch) as error:
                    self._warn_once(each, error)
            await trio.lowlevel.checkpoint()

    def _warn_once(self, each: Log, error: Exception) -> None:
        """Logs the error unless it is the same as the log's last one."""
        if self._warnings.get(each) != str(error):
            self._warnings[each] = str(error)
            log.warning("%s: %s", each.name, error)

    # -- the chores ----------------------------------------------------------------------------------------------------

    async def apply_retention(self) -> None:
        """Deletes segments by time, by size, and below the log start offset."""
        await self._for_each_log(self._apply_retention)
        if self._broker.tier is not None:
            self._broker.tier.enforce_all_local_retention()

    def _apply_retention(self, each: Log) -> None:
        decision = retention.enforce(each, now_ms=self._broker.clock.now_ms())
        for segment in decision.forgotten:
            log.info("%s: deleting the segment at %d: it %s", each.name, segment.base_offset, segment.reason.value)

    async def sweep(self) -> None:
        """Removes files that were marked as deleted a while ago."""
        for directory in self._broker.directories:
            if directory.failure is None:
                directory.sweep(self._broker.clock.now_ms())
            await trio.lowlevel.checkpoint()

    async def compact(self) -> None:
        """Compacts every log that is due, the dirtiest first."""
        if not self._config[LOG_CLEANER_ENABLE]:
            return
        tried: set[Log] = set()
        while (chosen := self._dirtiest(tried)) is not None:
            candidate, each, directory = chosen
            tried.add(each)
            each.is_compacting = True
            try:
                work = clean(each, candidate.to_clean, now_ms=self._broker.clock.now_ms())
                while True:
                    try:
                        next(work)
                    except StopIteration as done:
                        directory.compacted(each, done.value.first_dirty_offset)
                        break
                    await trio.lowlevel.checkpoint()
            except (CleaningAborted, BadBatch, KafkaError, OSError) as error:
                if not each.closed:  # else its topic was deleted
                    self._warn_once(each, error)
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
                    to_clean = log_to_clean(each, each.first_dirty_offset, now_ms=now_ms)
                    candidates.append(Candidate(partition=name, to_clean=to_clean, config=each.config))
                    by_name[name] = (each, directory)
        chosen = dirtiest(candidates)
        return None if chosen is None else (chosen, *by_name[chosen.partition])

    async def checkpoint(self) -> None:
        """Syncs closed segments, so that recovery after a crash scans active ones only, and writes the checkpoints."""
        for each in self._logs():
            if not each.closed and each.recovery_point < each.segments.active.base_offset:
                await self._make_durable(each)
        await self.write_checkpoints()

    async def _make_durable(self, each: Log) -> None:
        try:
            await self._broker.commit.flush(each)
        except KafkaError as error:
            self._warn_once(each, error)

    async def write_checkpoints(self) -> None:
        """Writes each directory's log start offsets, recovery points and high watermarks if any has changed."""
        for directory in self._broker.directories:
            offsets = [
                (name, each.recovery_point, each.log_start_offset, each.high_watermark)
                for name, each in list(directory.logs.items())  # a worker thread may be making others
            ]
            if directory.failure is None and self._checkpointed.get(directory.path) != offsets:
                await trio.to_thread.run_sync(directory.checkpoint)
                self._checkpointed[directory.path] = offsets

    async def flush(self) -> None:
        """flush.ms: syncs logs whose oldest unflushed data is older than that."""
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

    async def expire_producers(self) -> None:
        """producer.id.expiration.ms: drops the state of producers that were idle for longer."""
        now_ms, expiration_ms = self._broker.clock.now_ms(), self._config[PRODUCER_ID_EXPIRATION_MS]
        await self._for_each_log(lambda each: _ignore(each.producers.expire(now_ms, expiration_ms)))

    async def snapshot(self) -> None:
        """Takes a snapshot of the metadata, every hour in which it has changed."""
        if self._broker.quorum.wants_snapshot:
            await self._broker.quorum.take_snapshot()


def _ignore(_: object) -> None:
    pass
