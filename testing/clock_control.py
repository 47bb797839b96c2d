"""Controls the broker's clock from a test. The nodes of a cluster share one clock."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from .faults import Length, seconds_of

if TYPE_CHECKING:
    from .broker import Broker
    from .cluster import Cluster

ADVANCE_S: Final = 120.0


class Clock:
    def __init__(self, broker: "Broker | Cluster") -> None:
        self._broker = broker

    def advance(self, by: Length) -> None:
        """Add a length of time ("8d", "90s", a timedelta) to the broker's clock, and return when every event that was
        due has happened: retention, sessions of group members, transactions, committed offsets.

        Clients stay in the machine's time. They miss their heartbeats, and timestamps from their own clocks are old
        when they arrive."""
        self._broker.call("advance", timeout_s=ADVANCE_S, seconds=seconds_of(by))

    def now_ms(self) -> int:
        """The broker's time, in milliseconds since 1970."""
        return int(self._broker.call("now_ms"))

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)
