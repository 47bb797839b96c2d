"""Requests that wait: a Fetch for bytes, a Produce for its replicas, each until something happens or its time is up.

A waiter stands under every key that may concern it (a partition, mostly) and under its deadline. Whoever changes what
a key stands for calls `touch`; the waiters under it look again, and those that are done answer and leave. Time is told
from outside.

A waiter that leaves is not searched for in all the places where it stands: it is marked as done, and whoever meets it
next throws it out. So that a key which is never touched does not collect the dead, a key's list is swept whenever it
has doubled.

A watcher is no request: it stays under its key until it leaves, and hears of every touch before those who wait.

**To answer a request may touch other keys**, because the requests behind it on its connection are served then, and how
many follow upon each other in that way is up to clients. So a touch during another one is put into a queue, and done
when those who look have looked: nothing calls itself, nobody is asked to look again while it answers, and who has
looked in vain already looks again.

What goes wrong with one waiter is told to that one (`Waiter.fail`). The others do not notice, nor does who touched.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

SWEEP_AT_LEAST: Final = 64  # a list shorter than this is not worth sweeping


class Waiter:
    """A request that waits. Answering is the subclass's business, and happens once."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def look(self, key: Hashable) -> bool:
        """Something changed under `key`. True if the request has now been answered."""
        raise NotImplementedError

    def expire(self) -> None:
        """Its time is up: answer with what there is."""
        raise NotImplementedError

    def fail(self, mistake: Exception) -> None:
        """`look` or `expire` has raised this, which they must not, and the request is not waited for any more. Log it,
        and let whoever waits know, without raising anything."""
        raise mistake


class Watcher(Protocol):
    def touched(self, key: Hashable) -> None:
        """Something changed under `key`. Whoever has just left may hear of it too."""


class _Queue:
    __slots__ = ("sweep_at", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.sweep_at = SWEEP_AT_LEAST


class Delayed:
    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = {}
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._numbers = count()
        self._deadlines_sweep_at = SWEEP_AT_LEAST
        self._waiting = 0
        self._watchers: dict[Hashable, list[Watcher]] = {}
        self._touched: deque[Hashable] = deque()
        self._is_looking = False

    def __len__(self) -> int:
        """How many wait."""
        return self._waiting

    def park(self, waiter: Waiter, keys: Iterable[Hashable], deadline: float) -> None:
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

    def touch(self, key: Hashable) -> None:
        """Something changed under `key`. Whoever is there looks before this returns, unless somebody looks already."""
        if self._is_looking:
            self._touched.append(key)
            return
        if key not in self._queues and key not in self._watchers:
            return
        self._touched.append(key)
        self._is_looking = True
        try:
            while self._touched:
                self._look(self._touched.popleft())
        finally:
            self._is_looking = False

    def _look(self, key: Hashable) -> None:
        for watcher in tuple(self._watchers.get(key, ())):
            watcher.touched(key)
        queue = self._queues.pop(key, None)
        if queue is None:
            return
        # Answering may park others under the key: they find a new queue.
        left = []
        for waiter in queue.waiters:
            if not waiter.done:
                try:
                    is_answered = waiter.look(key)
                except Exception as mistake:
                    self.abandon(waiter)
                    waiter.fail(mistake)
                    continue
                if is_answered:
                    self.abandon(waiter)
                else:
                    left.append(waiter)
        if left:
            newer = self._queues.get(key)
            queue.waiters = left if newer is None else left + newer.waiters
            self._queues[key] = queue

    def expire(self, now: float) -> None:
        """Answers all whose time is up."""
        while self._deadlines and self._deadlines[0][0] <= now:
            self.end(heappop(self._deadlines)[2])

    def end(self, waiter: Waiter) -> None:
        """Answers one, as if its time were up, unless it is done."""
        if waiter.done:
            return
        self.abandon(waiter)
        try:
            waiter.expire()
        except Exception as mistake:
            waiter.fail(mistake)

    def abandon(self, waiter: Waiter) -> None:
        """Nobody wants the answer any more: its client is gone, or has it."""
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
        """Throw out all who are done, at once. They hold what they waited for, which may be deleted by now."""
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
