"""Which brokers are alive, as the active controller knows from their heartbeats.

A broker without a heartbeat for `broker.session.timeout.ms` is fenced. A fenced one has no session: its id is free for
its next registration (I14). Heartbeats also report the replayed metadata offset of each broker; a broker that shuts
down stops when all others have replayed the election of its successors.

All this is soft state. A new active controller begins with a fresh session for every broker, since it has seen no
earlier heartbeats. A controller that was paused, or whose machine was too busy, extends all sessions by that
time, or it would fence a whole cluster when it wakes up.
"""

from collections.abc import Iterable
from typing import Final

from .brokers import Broker, Brokers

NOTHING_SEEN: Final = -1
CHECKS_PER_SESSION: Final = 8  # checks per session timeout; a late check shows that this node was paused


class BrokerSessions:
    def __init__(self, brokers: Iterable[Broker], timeout_s: float, now: float) -> None:
        self.timeout_s = timeout_s
        self._checked = now
        self._last_heartbeat = {broker.broker_id: now for broker in brokers}
        self._offsets: dict[int, int] = {}  # metadata offset that each broker has reached
        self._leaving: dict[int, int] = {}  # brokers in controlled shutdown, with the offset of the record

    @property
    def check_interval_s(self) -> float:
        return self.timeout_s / CHECKS_PER_SESSION

    def begin(self, broker_id: int, now: float) -> None:
        """A broker has registered: the state of its previous registration is dropped."""
        self._last_heartbeat[broker_id] = now
        self._offsets.pop(broker_id, None)
        self._leaving.pop(broker_id, None)

    def on_heartbeat(self, broker_id: int, offset: int, now: float) -> None:
        """A heartbeat with the broker's current epoch."""
        self._last_heartbeat[broker_id] = now
        self._offsets[broker_id] = offset

    def look(self, now: float) -> None:
        """Called every `check_interval_s`. If the call is late, heartbeats were late as well."""
        late = now - self._checked - self.check_interval_s
        if late > self.check_interval_s:
            for broker_id in self._last_heartbeat:
                self._last_heartbeat[broker_id] = min(now, self._last_heartbeat[broker_id] + late)
        self._checked = now

    def is_alive(self, brokers: Brokers, broker_id: int, now: float) -> bool:
        """Whether the id is in use, so that another process with this id must wait."""
        broker = brokers.get(broker_id)
        return broker is not None and not broker.fenced and not self._is_over(broker_id, now)

    def expired(self, brokers: Iterable[Broker], now: float) -> int | None:
        """The broker with the longest silence, if its session has expired. One at a time: the caller fences it before
        the next call."""
        self.look(now)  # the last check may be long ago: decisions of the controller wait for a quorum
        without_heartbeat = [
            broker.broker_id for broker in brokers if not broker.fenced and self._is_over(broker.broker_id, now)
        ]
        return min(
            without_heartbeat, key=lambda broker_id: (self._last_heartbeat.get(broker_id, now), broker_id), default=None
        )

    def _is_over(self, broker_id: int, now: float) -> bool:
        return now - self._last_heartbeat.setdefault(broker_id, now) > self.timeout_s

    def leaves(self, broker_id: int, offset: int) -> None:
        """A broker is in controlled shutdown, and its records end with this offset. The first call counts: later
        records do not belong to the shutdown."""
        self._leaving.setdefault(broker_id, offset)

    def others_caught_up(self, brokers: Iterable[Broker], broker_id: int) -> bool:
        """Whether all serving brokers have replayed the controlled shutdown of this broker. True if it has none."""
        until = self._leaving.get(broker_id)
        return until is None or all(
            self._offsets.get(other.broker_id, NOTHING_SEEN) >= until
            for other in brokers
            if other.is_active and other.broker_id != broker_id
        )
