"""Group commit: one fsync completes many flush requests.

An fsync costs about the same for one record as for a thousand. So callers request a flush, and an fsync completes all
requests made before it *began*. A request made while it runs may have bytes that are not part of it, and shares the
next one:

    a: flush ─┬─ fsync 1 ─┬ done
    b: flush ─┘           ├ done
    c:          flush ────┴─ fsync 2 ─┬ done
    d:               flush ───────────┘ done

This is the only module of the package that waits. The fsyncs run in worker threads, at most `FLUSH_THREADS` at a time;
a simulation passes an `offload` of its own, since threads have no place on its clock.

The work is done by tasks of the nursery, so a cancelled waiter does not cancel the flush of others. An error goes to
every waiter of that fsync and is kept: there is no second try, on any file of this log directory, because a failed
fsync leaves the pages in an unknown state. Each log directory has its own `GroupCommit` (`GroupCommits`): a disk that
fails or hangs does not delay writes to another.

A shortage of descriptors is not a failed fsync: the file was not even opened. The pools close idle files, and the work
is tried again, `SHORTAGE_TRIES` times; then the current waiters get an error, and later requests are served normally.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import trio

from trioka.protocol.errors import KafkaStorageError

from .failstop_disk import OutOfDescriptors, is_out_of_descriptors, take_offline
from .file_pool import FilePool

FLUSH_THREADS: Final = 4
"""A disk does not get faster with more fsyncs at a time, and each holds a thread."""

SHORTAGE_TRIES: Final = 20
"""So often a sync looks for a descriptor; then it is the clients' turn to try again."""

Offload: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a blocking function elsewhere, and returns or raises what it did."""


OnShortage: TypeAlias = Callable[[], Awaitable[None]]


class Syncable(Protocol):
    """A File, or anything that makes several of them durable. It stays open while a flush is under way."""

    def sync(self) -> None: ...


class PooledLog(Syncable, Protocol):
    """A Log, as far as it matters here."""

    @property
    def files(self) -> FilePool: ...


class FlushRound:
    """One future fsync and its waiters."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: BaseException | None = None

    def end(self, error: BaseException | None) -> None:
        self.error = error
        self.done.set()


class GroupCommit:
    """The flushes of one log directory.

    `failure` is the first error; once it is set, every flush raises `KafkaStorageError` and none is begun.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        offload: Offload | None = None,
        limit: int = FLUSH_THREADS,
        on_shortage: OnShortage | None = None,
        on_failure: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        """`on_shortage` frees descriptors, and waits until a retry is useful. `on_failure` is called with an error that
        is no failure of the volume: a file of the log is gone, for example."""
        self.failure: BaseException | None = None
        self._on_shortage = on_shortage or trio.lowlevel.checkpoint
        self._on_failure = on_failure
        self._nursery = nursery
        self._offload = offload or self._in_a_thread
        self._limiter = trio.CapacityLimiter(limit)
        self._threads = trio.CapacityLimiter(limit)  # its own limiter: other work in threads must not delay an fsync
        self._served: set[Syncable] = set()  # those that have a task
        self._next: dict[Syncable, FlushRound] = {}  # the fsync that has not begun, by its log

    @property
    def is_busy(self) -> bool:
        """Whether a flush is pending."""
        return bool(self._served)

    async def flush(self, file: Syncable) -> None:
        """Return once everything that was written to `file` before this call is durable."""
        if self.failure is not None:
            raise _refusal(self.failure)
        if file not in self._served:
            self._nursery.start_soon(self._serve, file)
            self._served.add(file)
        flush = self._next.setdefault(file, FlushRound())
        await flush.done.wait()
        if flush.error is not None:
            raise _refusal(flush.error)

    async def _serve(self, file: Syncable) -> None:
        """One fsync after the other, until no flush is pending."""
        try:
            while file in self._next:
                async with self._limiter:
                    # The fsync counts as begun: a request from here on opens the next round.
                    await self._sync(file, self._next.pop(file))
        finally:
            self._served.discard(file)
            if (flush := self._next.pop(file, None)) is not None:
                flush.end(self.failure or trio.BrokenResourceError("the flush was given up"))

    async def _sync(self, file: Syncable, flush: FlushRound) -> None:
        error = self.failure
        try:
            if error is None:
                await retry_out_of_descriptors(lambda: self._offload(file.sync), self._on_shortage)
        except (OSError, KafkaStorageError) as failure:
            error = failure
            if not is_out_of_descriptors(failure):
                self.failure = self.failure or failure
                if isinstance(failure, OSError):
                    self._on_failure(failure)
        except BaseException as failure:  # a bug, or the nursery was cancelled: the file is in doubt too
            error = failure
            self.failure = self.failure or failure
            raise
        finally:
            flush.end(error)

    async def _in_a_thread(self, work: Callable[[], None]) -> None:
        await trio.to_thread.run_sync(work, limiter=self._threads)


class GroupCommits:
    """One `GroupCommit` for each log directory, by the disk of its pool of files."""

    def __init__(self, nursery: trio.Nursery, pools: Sequence[FilePool], on_shortage: OnShortage) -> None:
        self.by_disk = {
            pool.disk: GroupCommit(nursery, on_shortage=on_shortage, on_failure=partial(take_offline, pool.disk))
            for pool in pools
        }

    @property
    def is_busy(self) -> bool:
        """Whether a flush of any disk is pending."""
        return any(each.is_busy for each in self.by_disk.values())

    async def flush(self, log: PooledLog) -> None:
        """Return once everything that was written to `log` before this call is durable."""
        await self.by_disk[log.files.disk].flush(log)


async def retry_out_of_descriptors(work: Callable[[], Awaitable[None]], on_shortage: OnShortage) -> None:
    """Does `work`, which may be done twice; where it finds no descriptor, again after `on_shortage`."""
    for _ in range(SHORTAGE_TRIES - 1):
        try:
            await work()
        except (OSError, KafkaStorageError) as error:
            if not is_out_of_descriptors(error):
                raise
            await on_shortage()
        else:
            return
    await work()


def _refusal(error: BaseException) -> KafkaStorageError:
    """The error for a waiter. Each gets its own exception, since raising one writes into it."""
    if is_out_of_descriptors(error):
        refusal: KafkaStorageError = OutOfDescriptors(f"no descriptor was left for the flush, try again: {error}")
    else:
        refusal = KafkaStorageError(f"the flush failed and is not tried again: {error!r}")
    refusal.__cause__ = error
    return refusal
