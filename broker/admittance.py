"""Who may connect: how many at once, how many from one address, how many in a second. Pure; time is told.

The limits are Kafka's keys, unlimited by default, and may change at any time: they hold for who comes next.
"""

from dataclasses import field
from ipaddress import ip_address
from typing import Final

from trioka.protocol.data_class import frozen

MAX_BURST_S: Final = 1.0  # so much of a second's connections may come at once


@frozen
class ConnectionLimits:
    total: int
    per_address: int
    overrides: dict[str, int] = field(default_factory=dict)  # of single addresses
    per_second: int

    @staticmethod
    def parse_overrides(text: str) -> dict[str, int]:
        """`host:count` between commas; what cannot be understood was refused before, and is passed over here."""
        found = {}
        for pair in filter(None, (part.strip() for part in text.split(","))):
            host, _, count = pair.rpartition(":")
            if count.isdigit():
                found[normal_address(host.strip("[]"))] = int(count)
        return found


def normal_address(address: str) -> str:
    """One name for each address: an IPv4 address that comes by IPv6 is itself."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped if mapped is not None else found)


class Admittance:
    def __init__(self) -> None:
        self._by_address: dict[str, int] = {}
        self._total = 0
        self._credit = 0.0  # connections that may come now
        self._credited_at: float | None = None

    def __len__(self) -> int:
        return self._total

    def enter(self, address: str, limits: ConnectionLimits, now: float) -> bool:
        """Whether a new connection may stay. If so it counts, until it leaves."""
        address = normal_address(address)
        limit = limits.overrides.get(address, limits.per_address)
        if self._total >= limits.total or self._by_address.get(address, 0) >= limit or not self._pay(limits, now):
            return False
        self._total += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return True

    def leave(self, address: str) -> None:
        address = normal_address(address)
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
