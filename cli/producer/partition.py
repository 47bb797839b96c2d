"""The batches of one partition: their order, their sequence numbers, and when a gap lets the numbers begin again.

order        batches are sent in the order of their records. One that failed is sent again before all later ones, and
             alone: the next one follows when it is written
first        the first batch with a producer id and epoch is sent alone: a leader that knows nothing of them takes
             any number, so the second batch could overtake the first one
numbers      a batch gets its sequence number when it is first sent, and keeps it, so the leader recognises it
gap          a batch that is given up leaves a gap, which the leader refuses to step over. Once no batch is in
             flight, and the first one is surely not in the log, the partition takes a new producer epoch and
             numbers its batches from 0 on. A batch that may be in the log keeps its number until that is known
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import Final

from trioka.protocol.batch import MAX_SEQUENCE

from .batches import NO_PRODUCER, Batch, ProducerId

NO_LEADER: Final = -1
MAX_IN_FLIGHT: Final = 5  # batches of a partition: the leader remembers as many, to recognise those sent again


class Partition:
    def __init__(self, index: int, *, is_idempotent: bool) -> None:
        self.index = index
        self.leader = NO_LEADER
        self.is_idempotent = is_idempotent
        self.queue: deque[Batch] = deque()
        self.flying: list[Batch] = []
        self.open: Batch | None = None  # the last one of the queue, if records may be added to it
        self.added = 0  # records
        self.producer = NO_PRODUCER
        self.next_sequence = 0
        self.is_recognised = False  # whether the leader has written a batch with this producer id and epoch
        self.has_gap = False
        self.not_before = 0.0
        self.stalled_since: float | None = None  # for how long batches have waited for a leader or its response
        self.last_error = 0

    def close(self) -> None:
        """Add no more records to the open batch."""
        self.open = None

    def next_batch(self, now: float, linger_s: float) -> Batch | None:
        """The batch to send now."""
        if not self.queue or now < self.not_before:
            return None
        head = self.queue[0]
        if head is self.open and now < head.opened_at + linger_s:
            return None
        may_overtake = not self.is_recognised or self.has_gap or any(batch.attempts > 1 for batch in self.flying)
        limit = 1 if not self.is_idempotent or head.attempts or may_overtake else MAX_IN_FLIGHT
        return head if len(self.flying) < limit else None

    def wakes_at(self, linger_s: float) -> float | None:
        """When `next_batch` may find one, if nothing else happens."""
        if not self.queue:
            return None
        head = self.queue[0]
        return max(self.not_before, head.opened_at + linger_s if head is self.open else 0.0)

    def needs_new_epoch(self) -> bool:
        """Whether the gap can be left behind: no batch is in flight, and the first one is surely not in the log. Then
        all later ones are not either.
        """
        if not self.has_gap or self.flying:
            return False
        return not self.queue or self.queue[0].sequence is None or not self.queue[0].may_be_written

    def begin_again(self) -> None:
        """Number the batches from 0 on, with the next producer epoch."""
        self.has_gap, self.is_recognised = False, False
        self.producer, self.next_sequence = NO_PRODUCER, 0
        for batch in self.queue:
            batch.renumber()

    def take(self, batch: Batch, current: Callable[[], ProducerId], now: float) -> None:
        """The first batch of the queue is sent now."""
        assert self.queue[0] is batch
        self.queue.popleft()
        if batch is self.open:
            self.close()
        if self.is_idempotent and batch.sequence is None:
            if self.producer is NO_PRODUCER:
                self.producer = current()
            batch.producer, batch.sequence = self.producer, self.next_sequence
            self.next_sequence = (self.next_sequence + batch.count) & MAX_SEQUENCE
        batch.attempts += 1
        self.flying.append(batch)
        self.stall(now)

    def stall(self, now: float) -> None:
        if self.stalled_since is None:
            self.stalled_since = now

    def extend(self, seconds: float) -> None:
        """Do not count this time."""
        if self.stalled_since is not None:
            self.stalled_since += seconds

    def written(self, batch: Batch, now: float) -> None:
        self.flying.remove(batch)
        self.stalled_since = now if self.flying else None
        self.is_recognised = True
        self.last_error = 0

    def put_back(self, batch: Batch, *others: Batch) -> None:
        """Queue a batch that was in flight again, or what replaces it."""
        self.flying = [each for each in self.flying if each.number != batch.number]
        for each in (batch, *others):
            insort(self.queue, each, key=lambda queued: queued.number)

    def give_up(self, batch: Batch, now: float) -> None:
        """Forget a batch in flight that the leader refused: if it had a sequence number, it leaves a gap."""
        self.flying.remove(batch)
        self.stalled_since = now if self.flying else None
        self.has_gap = self.has_gap or batch.sequence is not None

    def give_up_all(self) -> list[Batch]:
        """Forget all batches; none is in flight."""
        batches, self.stalled_since = list(self.queue), None
        self.queue.clear()
        self.close()
        self.has_gap = self.has_gap or any(batch.sequence is not None for batch in batches)
        return batches

    def is_first(self, batch: Batch) -> bool:
        """Whether all batches before this one are written or given up."""
        return all(batch.number <= each.number for each in (*self.flying, *self.queue))
