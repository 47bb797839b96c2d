"""Tracks which partitions of a follower's fetch session have changed, so that a leader need not check all of them.

A follower fetches again with every record, and a session may have thousands of partitions, few of which get records.
Checking a partition costs 5 µs, for each fetch and again for its response: at 1,000 partitions thirty times the rest of
the work. So the session watches its replicas (cluster/purgatory.py), whether a fetch is parked or not, and a fetch only
checks the partitions that

    are in the request      the fetch offset has moved, or the partition is new
    were notified           records were appended, or the high watermark or the leader has changed
    are unfinished          the response had no room, there was an error, or the follower is not in the ISR yet

All partitions are checked from time to time. A leader records when each follower last fetched, and must not consider
one lagging only because there are no writes; and some changes happen without a notification.
"""

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Final, Protocol

from trioka.cluster.purgatory import Purgatory

from .fetch_session_cache import CachedPartition, FetchSession, Key
from .partitions import Replica

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FULL_SCAN_S: Final = 1.0
SCANS_PER_LAG: Final = 4  # minimum number of full checks in replica.lag.time.max.ms


class ParkedFetch(Protocol):
    """A parked fetch; it unregisters when it is answered."""

    def try_complete_for(self, replicas: "Sequence[Hashable]") -> bool:
        """Called when these replicas have changed. Returns whether the fetch was answered."""

    def fail(self, mistake: Exception) -> None:
        """Called with an exception of `try_complete_for`, which is an internal error."""


class ChangedPartitions:
    """The changed partitions of one session."""

    __slots__ = ("_checked", "_keys", "_notified", "_purgatory", "_replicas", "_session", "dirty", "parked")

    def __init__(self, delayed: Purgatory, session: FetchSession) -> None:
        self._purgatory = delayed
        self._session = session
        self._replicas: dict[Key, Replica] = {}
        self._keys: dict[Hashable, Key] = {}
        self._checked = float("-inf")
        self._notified: list[Hashable] = []  # replicas that changed since the parked fetch last checked
        self.dirty: dict[Key, CachedPartition] = {}
        self.parked: ParkedFetch | None = None  # the waiting fetch

    def selected(self, now: float, max_lag_s: float) -> Collection[CachedPartition]:
        """The partitions that a fetch checks now."""
        if now - self._checked >= min(FULL_SCAN_S, max_lag_s / SCANS_PER_LAG):
            self._checked = now
            self.dirty = dict(self._session.partitions)
        return self.dirty.values()

    def see(self, requested: CachedPartition, replica: Replica) -> None:
        """Watch the replica of a requested partition. A topic that was deleted and created again has new replicas."""
        if self._replicas.get(requested.key) is not replica:
            self.forget(requested.key)
            self._replicas[requested.key] = replica
            self._keys[replica] = requested.key
            self._purgatory.watch(replica, self)

    def named(self, requested: CachedPartition) -> None:
        """The follower's request has this partition."""
        self.dirty[requested.key] = requested

    def forget(self, key: Key) -> None:
        self.dirty.pop(key, None)
        replica = self._replicas.pop(key, None)
        if replica is not None:
            del self._keys[replica]
            self._purgatory.unwatch(replica, self)

    def close(self) -> None:
        """Stop watching: the session has ended, or the follower has disconnected. Its next fetch checks all
        partitions."""
        self._checked = float("-inf")
        for key in list(self._replicas):
            self.forget(key)

    def on_notify(self, key: Hashable) -> None:
        """Called when something has changed; `key` is a replica."""
        place = self._keys.get(key)
        requested = None if place is None else self._session.partitions.get(place)
        if requested is not None:
            self.dirty[requested.key] = requested
            if self.parked is not None:
                self._notified.append(key)

    def on_notified(self) -> None:
        """Lets the parked fetch check all changed replicas at once."""
        notified, self._notified = self._notified, []
        parked = self.parked
        changed = [replica for replica in notified if self._keys.get(replica) in self.dirty]
        if parked is not None and changed:
            try:
                parked.try_complete_for(changed)
            except Exception as mistake:  # must not reach other watchers
                parked.fail(mistake)

    def keep(self, left: "Iterable[CachedPartition]") -> None:
        """Clear the changed partitions, except these."""
        self.dirty = {requested.key: requested for requested in left}

    def seen(self) -> "Iterator[tuple[CachedPartition, Replica]]":
        """The changed partitions with their replicas."""
        return ((requested, self._replicas[key]) for key, requested in self.dirty.items() if key in self._replicas)

    def of(self, replica: Hashable) -> CachedPartition:
        """The requested partition of a replica that has changed."""
        return self.dirty[self._keys[replica]]
