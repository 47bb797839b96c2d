"""Parked requests: a Fetch waits for bytes, a Produce for its replicas, each until an event or its deadline.

An operation is registered under every key that may complete it (mostly partitions) and under its deadline. Code that
changes the state behind a key calls `notify`; the operations under that key are tried, and completed ones send their
response and leave. The time is an argument.

A completed operation is not searched for under its other keys: it is marked as done, and removed on the next visit.
So that a key without notifications does not collect completed operations, its list is swept whenever it has doubled.

A watcher is not a request: it stays under its key until it leaves, and is notified before the operations. `on_notified`
follows when all keys that were notified together have been passed on; the watcher may respond then.

**A response may notify other keys**, because the next requests on its connection are served then; clients
control how long such a chain is. So a notification during another one is queued, and runs after it: there is no
recursion, no operation is tried while it completes, and an operation that did not complete is tried again.

An exception of one operation goes to that operation alone (`DelayedOperation.fail`), not to others or to the notifier.

**A round** (`hold` … `release`): while many requests are served one after the other, notifications are collected, each
key once, and the operations are tried when the round ends. A follower that waits for records of several partitions is
then answered once for all that the round has appended, and not with the first record of it.
"""

from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

SWEEP_AT_LEAST: Final = 64  # a list shorter than this is not worth sweeping


class DelayedOperation:
    """A request that waits. Answering is the subclass's business, and happens once."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def try_complete(self, key: Hashable) -> bool:
        """Something changed under `key`. True if the request has now been answered."""
        raise NotImplementedError

    def expire(self) -> None:
        """The deadline has passed: answers with the current result."""
        raise NotImplementedError

    def fail(self, mistake: Exception) -> None:
        """`try_complete` or `expire` has raised this, which they must not, and the operation is removed. Log it and
        answer the request, without raising."""
        raise mistake


class Watcher(Protocol):
    def on_notify(self, key: Hashable) -> None:
        """Something changed under `key`; an operation that has just left may still be notified. The watcher records it
        and does not respond yet."""

    def on_notified(self) -> None:
        """All keys that were notified together have been passed on."""


class _Queue:
    __slots__ = ("sweep_at", "waiters")

    def __init__(self) -> None:
        self.waiters: list[DelayedOperation] = []
        self.sweep_at = SWEEP_AT_LEAST


class Purgatory:
    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = {}
        self._deadlines: list[tuple[float, int, DelayedOperation]] = []
        self._numbers = count()
        self._deadlines_sweep_at = SWEEP_AT_LEAST
        self._waiting = 0
        self._watchers: dict[Hashable, list[Watcher]] = {}
        self._notified: dict[Hashable, None] = {}  # in the order of completion
        self._is_completing = False
        self._is_held = False

    def __len__(self) -> int:
        """How many wait."""
        return self._waiting

    def park(self, waiter: DelayedOperation, keys: Iterable[Hashable], deadline: float) -> None:
        assert not waiter.done
        self._waiting += 1
        for key in keys:
            queue = self._queues.setdefault(key, _Queue())
            queue.waiters.append(waiter)
            if len(queue.waiters) >= queue.sweep_at:
                queue.waiters = [w for w in queue.waiters if not w.done]
                queue.sweep_at = max(SWEEP_AT_LEAST, 2 * len(queue.waiters))
        heappush(self._deadlines, (deadline, next(self._numbers), waiter))
        if len(self._deadlines) >= self._deadlines_sweep_at:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapify(self._deadlines)
            self._deadlines_sweep_at = max(SWEEP_AT_LEAST, 2 * len(self._deadlines))

    def notify(self, key: Hashable) -> None:
        """Something changed under `key`. The operations there are tried before this returns, unless a notification is
        running (then after it) or a round is held (then at its end)."""
        if key not in self._queues and key not in self._watchers and not self._is_completing:
            return
        self._notified[key] = None
        if not (self._is_completing or self._is_held):
            self._complete_notified()

    def hold(self) -> None:
        """From now on notifications are collected."""
        self._is_held = True

    def release(self) -> None:
        """The waiters under all keys that were notified since `hold` look."""
        self._is_held = False
        if self._notified and not self._is_completing:
            self._complete_notified()

    def _complete_notified(self) -> None:
        notified = self._notified
        self._is_completing = True
        try:
            while notified:
                keys = tuple(notified)
                notified.clear()
                self._notify_watchers(keys)
                for key in keys:
                    self._complete(key)
        finally:
            self._is_completing = False

    def _notify_watchers(self, keys: Iterable[Hashable]) -> None:
        result: dict[Watcher, None] = {}
        for key in keys:
            for watcher in self._watchers.get(key, ()):
                watcher.on_notify(key)
                result[watcher] = None
        for watcher in result:
            watcher.on_notified()

    def _complete(self, key: Hashable) -> None:
        queue = self._queues.pop(key, None)
        if queue is None:
            return
        # Answering may park others under the key: they find a new queue.
        left = []
        for waiter in queue.waiters:
            if not waiter.done:
                try:
                    is_answered = waiter.try_complete(key)
                except Exception as mistake:
                    self.cancel(waiter)
                    waiter.fail(mistake)
                    continue
                if is_answered:
                    self.cancel(waiter)
                else:
                    left.append(waiter)
        if left:
            newer = self._queues.get(key)
            queue.waiters = left if newer is None else left + newer.waiters
            self._queues[key] = queue

    def expire(self, now: float) -> None:
        """Answers all operations whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            self.force_complete(heappop(self._deadlines)[2])

    def force_complete(self, waiter: DelayedOperation) -> None:
        """Answers an operation as if its deadline had passed, unless it is done."""
        if waiter.done:
            return
        self.cancel(waiter)
        try:
            waiter.expire()
        except Exception as mistake:
            waiter.fail(mistake)

    def cancel(self, waiter: DelayedOperation) -> None:
        """Removes an operation: the client is gone or has its response."""
        if not waiter.done:
            waiter.done = True
            self._waiting -= 1

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        self._watchers.setdefault(key, []).append(watcher)

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        watchers = self._watchers[key]
        watchers.remove(watcher)
        if not watchers:
            del self._watchers[key]

    def sweep(self) -> None:
        """Remove all completed operations at once: they refer to partitions that may be deleted."""
        self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
        heapify(self._deadlines)
        for key, queue in list(self._queues.items()):
            queue.waiters = [waiter for waiter in queue.waiters if not waiter.done]
            if not queue.waiters:
                del self._queues[key]

    def next_deadline(self) -> float | None:
        while self._deadlines and self._deadlines[0][2].done:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
