"""Waits until appended records are committed: all in-sync replicas have them.

With flush.messages a replica only counts what is on its disk: a leader syncs its appends, and the log that it starts
with, and its high watermark does not pass the last sync.
"""

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from trioka.cluster.purgatory import DelayedOperation
from trioka.protocol.errors import KafkaError, RequestTimedOut, UnknownServerError

from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.partitions")

OnDone = Callable[[KafkaError | None], None]


def on_committed(broker: "Broker", replica: Replica, until: int, timeout_s: float, then: OnDone) -> None:
    """Wait until the records before `until` are committed. Without other replicas they nearly always are. Raises
    RequestTimedOut if it takes too long (the outcome is then unknown), NotLeaderOrFollower if the replica loses
    leadership before, NotEnoughReplicasAfterAppend if too few replicas remain in sync."""
    if replica.wants_flush:
        commit = _Commit(replica, until, then)
        broker.nursery.start_soon(_flush, broker, commit, broker.clock.now() + timeout_s)
        return
    outcome = replica.commit_status(until, replica.term)
    if outcome is False:
        broker.park(_Commit(replica, until, then), (replica,), broker.clock.now() + timeout_s)
    else:
        then(None if outcome is True else outcome)


async def make_durable(broker: "Broker", replica: Replica) -> None:
    """Flush the log up to its present end. Callers that wait for the same log share the fsync."""
    await broker.commit.flush(replica.log)
    if replica.advance():
        broker.purgatory.notify(replica)


async def _flush(broker: "Broker", commit: "_Commit", deadline: float) -> None:
    error: KafkaError | None = None
    try:
        await make_durable(broker, commit.replica)
    except KafkaError as failure:
        error = failure
    try:
        if error is not None:
            commit.deliver(error)
        elif not commit.try_complete(commit.replica):
            broker.park(commit, (commit.replica,), deadline)
    except Exception as mistake:  # the task must not end the broker
        commit.fail(mistake)


class _Commit(DelayedOperation):
    """Waits until the high watermark has passed the appended records."""

    __slots__ = ("_term", "_then", "_until", "replica")

    def __init__(self, replica: Replica, until: int, then: OnDone) -> None:
        super().__init__()
        self.replica = replica
        self._then: OnDone | None = then
        self._until = until
        self._term = replica.term

    def try_complete(self, key: Hashable) -> bool:
        outcome = self.replica.commit_status(self._until, self._term)
        if outcome is False:
            return False
        self.deliver(None if outcome is True else outcome)
        return True

    def expire(self) -> None:
        self.deliver(RequestTimedOut())

    def deliver(self, error: KafkaError | None) -> None:
        """Calls the callback, at most once."""
        then, self._then = self._then, None
        if then is not None:
            then(error)

    def fail(self, mistake: Exception) -> None:
        log.error("internal error: %s-%d", self.replica.topic, self.replica.index, exc_info=mistake)
        self.deliver(UnknownServerError())
