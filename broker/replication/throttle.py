"""Throttles replication (KIP-73), so that a reassignment does not crowd out clients.

Two topic keys select the throttled replicas: `partition:broker` for each, or * for all. Two broker keys set the rates
in bytes per second: one for leaders that send, one for followers that fetch. A replica in the ISR is never throttled,
because clients wait for the response.

The rate is an average over the last few seconds (replication.quota.window.*), so a burst is allowed and delays later
traffic.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.configs import topic_resource

from ..config.key import Key
from ..config.network_keys import REPLICATION_QUOTA_WINDOW_NUM, REPLICATION_QUOTA_WINDOW_SIZE_SECONDS
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

ALL_THROTTLED: Final = "*"


class Rate:
    """Bytes per second over a number of windows, including the current one."""

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
    """A replication throttle: one for leaders that send, one for followers that fetch."""

    def __init__(self, broker: "Broker", rate_key: Key[int | None], replicas_key: Key[tuple[str, ...]]) -> None:
        self._broker = broker
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self._rate = Rate()
        self.bytes = 0  # replicated so far, throttled or not

    def is_throttling(self, replica: Replica) -> bool:
        """Whether this replica must wait. Replicas in the ISR never do."""
        limit = self._broker.config[self._rate_key]
        if limit is None or not self._is_throttled(replica):
            return False
        config = self._broker.config
        window_s, count = config[REPLICATION_QUOTA_WINDOW_SIZE_SECONDS], config[REPLICATION_QUOTA_WINDOW_NUM]
        return self._rate.per_second(self._broker.clock.now(), window_s, count) > limit

    def note(self, replica: Replica, size: int) -> None:
        """Records replicated bytes of the replica."""
        self.bytes += size
        config = self._broker.config
        if config[self._rate_key] is not None and self._is_throttled(replica):
            self._rate.add(size, self._broker.clock.now(), config[REPLICATION_QUOTA_WINDOW_SIZE_SECONDS])

    def _is_throttled(self, replica: Replica) -> bool:
        own = self._broker.metadata.configs.get(topic_resource(replica.topic))
        named = self._broker.config.topic(own)[self._replicas_key]
        return ALL_THROTTLED in named or f"{replica.index}:{self._broker.node_id}" in named
