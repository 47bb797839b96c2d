"""Which partitions of a follower's fetch session have something to say, so that a leader need not look at all of them.

A follower fetches again with every record, and a session may have thousands of partitions, of which few are written to.
To look at each of them costs 5 µs, with each fetch and again when it is answered: at 1,000 partitions that was thirty
times the rest. So the session watches its replicas (cluster/purgatory.py), whether a fetch of it waits or not, and a
fetch looks at those only that

    the follower has named       it has moved on, or is new
    were touched                 somebody has written, or the high watermark moved, or the leader
    are not done                 there was no room, or an error; or the follower is not in sync, and waits to be

Everything is looked at once in a while all the same. A leader notes when it has last heard of each follower, which it
must not take for lost because nobody writes; and what may have been missed, or happens without a touch, comes then.
"""

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Final, Protocol

from trioka.cluster.purgatory import Delayed

from .fetch_session_cache import Asked, FetchSession, Key
from .partitions import Replica

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOOK_AT_ALL_S: Final = 1.0
LOOKS_PER_LAG: Final = 4  # and no more seldom than so often while replica.lag.time.max.ms lasts


class Parked(Protocol):
    """A fetch that waits; when it is answered, it leaves."""

    def look(self, key: Hashable) -> bool:
        """Something changed. True if it has now been answered."""

    def fail(self, mistake: Exception) -> None:
        """`look` has raised this, which it must not."""


class FollowerWatch:
    """Of one session."""

    __slots__ = ("_delayed", "_keys", "_looked", "_replicas", "_session", "news", "parked")

    def __init__(self, delayed: Delayed, session: FetchSession) -> None:
        self._delayed = delayed
        self._session = session
        self._replicas: dict[Key, Replica] = {}
        self._keys: dict[Hashable, Key] = {}
        self._looked = float("-inf")
        self.news: dict[Key, Asked] = {}
        self.parked: Parked | None = None  # the fetch that waits

    def asked(self, now: float, max_lag_s: float) -> Collection[Asked]:
        """What a fetch looks at that comes now."""
        if now - self._looked >= min(LOOK_AT_ALL_S, max_lag_s / LOOKS_PER_LAG):
            self._looked = now
            self.news = dict(self._session.partitions)
        return self.news.values()

    def see(self, asked: Asked, replica: Replica) -> None:
        """This is the replica that is asked for. A topic that was deleted and made again has others."""
        if self._replicas.get(asked.key) is not replica:
            self.forget(asked.key)
            self._replicas[asked.key] = replica
            self._keys[replica] = asked.key
            self._delayed.watch(replica, self)

    def named(self, asked: Asked) -> None:
        """By the follower, in its request."""
        self.news[asked.key] = asked

    def forget(self, key: Key) -> None:
        self.news.pop(key, None)
        replica = self._replicas.pop(key, None)
        if replica is not None:
            del self._keys[replica]
            self._delayed.unwatch(replica, self)

    def close(self) -> None:
        """The session is over; or its follower is gone, and if it comes back, it is looked at all again."""
        self._looked = float("-inf")
        for key in list(self._replicas):
            self.forget(key)

    def touched(self, key: Hashable) -> None:
        """Something changed; `key` is a replica."""
        place = self._keys.get(key)
        asked = None if place is None else self._session.partitions.get(place)
        if asked is not None:
            self.news[asked.key] = asked
            parked = self.parked
            if parked is not None:
                try:
                    parked.look(key)
                except Exception as mistake:  # others watch, and wait, too
                    parked.fail(mistake)

    def keep(self, left: "Iterable[Asked]") -> None:
        """What was looked at is told, or has nothing to say; but for these."""
        self.news = {asked.key: asked for asked in left}

    def seen(self) -> "Iterator[tuple[Asked, Replica]]":
        """The news, with the replicas that they are of."""
        return ((asked, self._replicas[key]) for key, asked in self.news.items() if key in self._replicas)

    def of(self, replica: Hashable) -> Asked:
        """What is asked of a replica that was touched."""
        return self.news[self._keys[replica]]
