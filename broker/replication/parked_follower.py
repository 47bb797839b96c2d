"""A follower's Fetch that waits for changed partitions of its session (replication/follower_session.py)."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from trioka.cluster.purgatory import DelayedOperation

from .fetch_results import Result
from .fetch_session_cache import CachedPartition
from .partitions import NO_EPOCH, Replica

if TYPE_CHECKING:
    from ..handlers.fetch import PartitionReader
    from ..network.connection import Call


class ParkedFollower(DelayedOperation):
    """Waits for changed partitions of the session, under no key of its own. A new high watermark is sent with the next
    response; it completes the fetch only if consumers may read from followers."""

    __slots__ = ("_call", "_others", "_reading", "_watch")

    def __init__(self, reading: "PartitionReader", call: "Call", results: list[tuple[CachedPartition, Result]]) -> None:
        super().__init__()
        assert reading.watch is not None
        self._reading = reading
        self._call = call
        self._watch = reading.watch
        self._watch.parked = self
        self._others = reading.broker.replication.waiting.setdefault(reading.asker, set())
        self._others.add(self)
        self._set_aside(results)

    def try_complete_for(self, replicas: Sequence[Hashable]) -> bool:
        reading, of = self._reading, self._watch.of
        if not reading.broker.replication.is_rack_aware and all(is_caught_up(of(each), each) for each in replicas):
            return False
        results = reading.read_all()
        if not reading.has_enough():
            self._set_aside(results)
            return False
        reading.broker.purgatory.cancel(self)
        self._answer(results)
        return True

    def _set_aside(self, results: list[tuple[CachedPartition, Result]]) -> None:
        """Mark partitions that were read but not sent as changed."""
        self._watch.keep([*self._reading.unfinished, *(cached for cached, _ in results)])

    def expire(self) -> None:
        self._answer(self._reading.read_all() if self._reading.context.is_current else [])

    def fail(self, mistake: Exception) -> None:
        self.abandon()
        self._call.fail(mistake)

    def complete_now(self) -> None:
        self._reading.broker.purgatory.force_complete(self)

    def _answer(self, results: list[tuple[CachedPartition, Result]]) -> None:
        self._leave()
        self._call.reply(self._reading.answer(results))

    def abandon(self) -> None:
        """The follower has disconnected; its next connection has another session."""
        self._leave()
        self._watch.close()
        self._reading.broker.purgatory.cancel(self)

    def _leave(self) -> None:
        self._others.discard(self)
        if self._watch.parked is self:
            self._watch.parked = None


def is_caught_up(cached: CachedPartition, replica: Hashable) -> bool:
    """Whether the follower has all records and the current epoch, as it had when its fetch arrived."""
    assert isinstance(replica, Replica)
    is_led = replica.leads and cached.current_leader_epoch in (NO_EPOCH, replica.leader_epoch)
    return is_led and replica.log.log_end_offset <= cached.fetch_offset
