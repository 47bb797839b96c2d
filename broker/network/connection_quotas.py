"""Who may connect: how many at once, how many from one address, how many in a second. Pure; time is told.

The limits are Kafka's keys, unlimited by default, and may change at any time: they hold for who comes next.
"""

from dataclasses import field
from typing import Final

from trioka.cluster.host_address import java_text
from trioka.protocol.lazy_dataclass import frozen

from ..config.layers import Config
from ..config.network_keys import (
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
)

MAX_BURST_S: Final = 1.0  # so much of a second's connections may come at once


@frozen
class ConnectionLimits:
    total: int
    per_address: int
    overrides: dict[str, int] = field(default_factory=dict)  # of single addresses
    per_second: int

    @classmethod
    def of(cls, config: Config) -> "ConnectionLimits":
        return cls(
            total=config[MAX_CONNECTIONS],
            per_address=config[MAX_CONNECTIONS_PER_IP],
            overrides=cls.parse_overrides(config[MAX_CONNECTIONS_PER_IP_OVERRIDES]),
            per_second=config[MAX_CONNECTION_CREATION_RATE],
        )

    @staticmethod
    def parse_overrides(text: str) -> dict[str, int]:
        """`host:count` between commas; what cannot be understood was refused before, and is passed over here."""
        found = {}
        for pair in filter(None, (part.strip() for part in text.split(","))):
            host, _, count = pair.rpartition(":")
            if count.isdigit():
                found[java_text(host.strip("[]"))] = int(count)
        return found


class Admittance:
    def __init__(self) -> None:
        self._by_address: dict[str, int] = {}
        self._total = 0
        self._credit = 0.0  # connections that may come now
        self._credited_at: float | None = None

    def __len__(self) -> int:
        return self._total

    def enter(self, address: str, limits: ConnectionLimits, now: float) -> bool:
        """Whether a new connection may stay. If so it counts, until it leaves. Its address is in the spelling of
        cluster/host_address.py."""
        limit = limits.overrides.get(address, limits.per_address)
        if self._total >= limits.total or self._by_address.get(address, 0) >= limit or not self._pay(limits, now):
            return False
        self._total += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return True

    def leave(self, address: str) -> None:
        self._total -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]

    def _pay(self, limits: ConnectionLimits, now: float) -> bool:
        most = limits.per_second * MAX_BURST_S
        earned = most if self._credited_at is None else (now - self._credited_at) * limits.per_second
        self._credit = min(most, self._credit + earned)
        self._credited_at = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True
