"""How fast replicas that are throttled may be copied (KIP-73): a reassignment shall not crowd out the clients.

Which they are, two keys of a topic say: `partition:broker` for each, or * for all; how many bytes a second, two keys of
the broker: one for what leaders send, one for what followers fetch. Whoever is in sync is never held up, since others
wait for it.

The rate is an average over the last few seconds (replication.quota.window.*), so that a burst is let through, and paid
for afterwards.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from trioka.cluster.configs import topic_resource

from ..config.key import Key
from ..config.network_keys import REPLICATION_QUOTA_WINDOW_NUM, REPLICATION_QUOTA_WINDOW_SIZE_SECONDS
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

EVERYBODY: Final = "*"


class Rate:
    """Bytes in a second, over so many windows of so many seconds. The one that is going on counts as well."""

    __slots__ = ("_total", "_windows")

    def __init__(self) -> None:
        self._windows: deque[tuple[int, int]] = deque()  # number, bytes
        self._total = 0

    def add(self, size: int, now: float, window_s: int) -> None:
        number = int(now // window_s)
        if self._windows and self._windows[-1][0] == number:
            size_before = self._windows.pop()[1]
            self._windows.append((number, size_before + size))
        else:
            self._windows.append((number, size))
        self._total += size

    def per_second(self, now: float, window_s: int, count: int) -> float:
        oldest = int(now // window_s) - count + 1
        while self._windows and self._windows[0][0] < oldest:
            self._total -= self._windows.popleft()[1]
        return self._total / (max(count - 1, 1) * window_s)


class ReplicationQuota:
    """One for what this broker sends as a leader, one for what it fetches as a follower."""

    def __init__(self, broker: "Broker", rate_key: Key[int | None], replicas_key: Key[tuple[str, ...]]) -> None:
        self._broker = broker
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self._rate = Rate()
        self.bytes = 0  # that have gone over so far, throttled or not

    def holds_up(self, replica: Replica) -> bool:
        """Whether more of this replica must wait. For who is in sync, do not ask."""
        limit = self._broker.config[self._rate_key]
        if limit is None or not self._is_throttled(replica):
            return False
        config = self._broker.config
        window_s, count = config[REPLICATION_QUOTA_WINDOW_SIZE_SECONDS], config[REPLICATION_QUOTA_WINDOW_NUM]
        return self._rate.per_second(self._broker.clock.now(), window_s, count) > limit

    def note(self, replica: Replica, size: int) -> None:
        """So many bytes of it have gone over."""
        self.bytes += size
        config = self._broker.config
        if config[self._rate_key] is not None and self._is_throttled(replica):
            self._rate.add(size, self._broker.clock.now(), config[REPLICATION_QUOTA_WINDOW_SIZE_SECONDS])

    def _is_throttled(self, replica: Replica) -> bool:
        own = self._broker.metadata.configs.get(topic_resource(replica.topic))
        named = self._broker.config.topic(own)[self._replicas_key]
        return EVERYBODY in named or f"{replica.index}:{self._broker.node_id}" in named
