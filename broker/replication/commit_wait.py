"""Waiting until what was appended is committed: all replicas that must have it, have it.

Where flush.messages asks for it, to have it is to have it on the disk: a leader syncs what it appends, and what it
finds in its log when it begins to lead, and its high watermark does not pass what is not synced.
"""

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from trioka.cluster.purgatory import Waiter
from trioka.protocol.errors import KafkaError, RequestTimedOut, UnknownServerError

from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.partitions")

Then = Callable[[KafkaError | None], None]


def when_committed(broker: "Broker", replica: Replica, until: int, timeout_s: float, then: Then) -> None:
    """Everything before `until`, which this broker has appended: at once, nearly always, if nobody else has to have it.
    If it takes too long nobody knows whether it ever will be: RequestTimedOut. NotLeaderOrFollower if the replica
    ceases to lead before, NotEnoughReplicasAfterAppend if too few are left."""
    if replica.wants_flush:
        commit = _Commit(replica, until, then)
        broker.nursery.start_soon(_flush, broker, commit, broker.clock.now() + timeout_s)
        return
    outcome = replica.outcome(until, replica.reign)
    if outcome is False:
        broker.park(_Commit(replica, until, then), (replica,), broker.clock.now() + timeout_s)
    else:
        then(None if outcome is True else outcome)


async def make_durable(broker: "Broker", replica: Replica) -> None:
    """What it has appended so far. Others who wait for the same log share the fsync."""
    await broker.commit.flush(replica.log)
    if replica.advance():
        broker.delayed.touch(replica)


async def _flush(broker: "Broker", commit: "_Commit", deadline: float) -> None:
    error: KafkaError | None = None
    try:
        await make_durable(broker, commit.replica)
    except KafkaError as failure:
        error = failure
    try:
        if error is not None:
            commit.tell(error)
        elif not commit.look(commit.replica):
            broker.park(commit, (commit.replica,), deadline)
    except Exception as mistake:  # the task must not end the broker
        commit.fail(mistake)


class _Commit(Waiter):
    """Waits until the high watermark has passed what was written."""

    __slots__ = ("_reign", "_then", "_until", "replica")

    def __init__(self, replica: Replica, until: int, then: Then) -> None:
        super().__init__()
        self.replica = replica
        self._then: Then | None = then
        self._until = until
        self._reign = replica.reign

    def look(self, key: Hashable) -> bool:
        outcome = self.replica.outcome(self._until, self._reign)
        if outcome is False:
            return False
        self.tell(None if outcome is True else outcome)
        return True

    def expire(self) -> None:
        self.tell(RequestTimedOut())

    def tell(self, error: KafkaError | None) -> None:
        """Once."""
        then, self._then = self._then, None
        if then is not None:
            then(error)

    def fail(self, mistake: Exception) -> None:
        log.error("a mistake of ours: %s-%d", self.replica.topic, self.replica.index, exc_info=mistake)
        self.tell(UnknownServerError())
