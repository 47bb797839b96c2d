"""Connection limits: count and creation rate, for the broker, each listener and each client address. Pure; the time is
an argument.

The limits are Kafka's keys and the quota connection_creation_rate. They are unlimited by default and may change at any
time; a change applies to new connections. A connection above a limit is treated as in Kafka:

    max.connections, of the broker or a listener     it waits in the listener's backlog until another one is closed
    max.connection.creation.rate, of either          the listener accepts the next one later, by one window at most
    max.connections.per.ip                           it is closed
    connection_creation_rate of its address          it is closed after the time by which it came too early

The inter-broker listener (if it is not the only one) and controller listeners are protected: max.connections of the
broker does not delay them. If one of their connections exceeds it, the client idle for longest is disconnected.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from trioka.cluster.image.quotas import IP, Quotas
from trioka.cluster.quota_rates import Rate
from trioka.cluster.security.host_address import java_text, to_bytes
from trioka.protocol.lazy_dataclass import frozen

from ...config.layers import Config
from ...config.network_keys import (
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
)

CREATION_RATE: Final = "connection_creation_rate"
UNLIMITED: Final = (1 << 31) - 1
MAX_ADDRESSES: Final = 10_000  # client addresses whose rates are kept


@frozen
class ConnectionLimits:
    """The limits for connections of one listener."""

    total: int
    per_second: int
    of_listener: int
    listener_per_second: int
    per_address: int
    overrides: dict[str, int] = field(default_factory=dict)  # per_address of single addresses
    is_protected: bool = False  # the broker-wide limits do not apply

    @classmethod
    def of(cls, config: Config, listener: str, is_protected: bool = False) -> "ConnectionLimits":
        return cls(
            total=config[MAX_CONNECTIONS],
            per_second=config[MAX_CONNECTION_CREATION_RATE],
            of_listener=config.of_listener(listener, MAX_CONNECTIONS),
            listener_per_second=config.of_listener(listener, MAX_CONNECTION_CREATION_RATE),
            per_address=config[MAX_CONNECTIONS_PER_IP],
            overrides=cls.parse_overrides(config[MAX_CONNECTIONS_PER_IP_OVERRIDES]),
            is_protected=is_protected,
        )

    @staticmethod
    def parse_overrides(text: str) -> dict[str, int]:
        """`host:count`, separated by commas. Validation has refused malformed pairs before; here they are skipped."""
        found = {}
        for pair in filter(None, (part.strip() for part in text.split(","))):
            host, _, count = pair.rpartition(":")
            if count.isdigit():
                found[java_text(host.strip("[]"))] = int(count)
        return found


class ConnectionQuotas:
    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._total = 0
        self._rate = self._new_rate()
        self._listener_rates: dict[str, Rate] = {}
        self._address_rates: dict[str, Rate] = {}
        self._address_quotas: Mapping[str | None, float] = {}
        self._paused_until_ms: dict[str, int] = {}  # by listener

    def __len__(self) -> int:
        return self._total

    def _new_rate(self) -> Rate:
        return Rate(self._windows, self._window_ms)

    def load(self, quotas: Quotas) -> list[str]:
        """Takes the connection_creation_rate quotas from the metadata. Returns the entities that are names of hosts:
        their quotas have no effect until `resolved` is called."""
        found: dict[str | None, float] = {}
        names = []
        for entity, values in quotas:
            if entity[0][0] == IP and CREATION_RATE in values:
                name = entity[0][1]
                found[None if name is None else java_text(name)] = values[CREATION_RATE]
                if name is not None and not to_bytes(name):
                    names.append(name)
        self._address_quotas = found
        return names

    def resolved(self, name: str, addresses: Iterable[str]) -> None:
        """These are the addresses of a host whose name has a quota. A quota of an address itself counts more."""
        quota = self._address_quotas.get(java_text(name))
        if quota is not None:
            self._address_quotas = {**dict.fromkeys(addresses, quota), **self._address_quotas}

    def has_place(self, listener: str, limits: ConnectionLimits) -> bool:
        """Whether one more connection may be accepted now. If not, it waits until `release`."""
        if self._by_listener.get(listener, 0) >= limits.of_listener:
            return False
        return limits.is_protected or self._total < limits.total

    def pause_ms(self, listener: str, now_ms: int) -> int:
        """How long the listener must not accept connections, because of its creation rate."""
        return max(0, self._paused_until_ms.get(listener, 0) - now_ms)

    def note_arrival(self, listener: str, address: str, limits: ConnectionLimits, now_ms: int) -> int:
        """Records an accepted connection. 0 if it may stay; otherwise it must be closed after so many milliseconds, and
        does not count. The address is spelled as in cluster/security/host_address.py."""
        rates: list[tuple[Rate, float]] = []
        if limits.listener_per_second < UNLIMITED:
            rate = self._listener_rates.setdefault(listener, self._new_rate())
            rates.append((rate, limits.listener_per_second))
        if limits.per_second < UNLIMITED and not limits.is_protected:
            rates.append((self._rate, limits.per_second))
        delay_ms = self._address_delay_ms(address, now_ms)
        if delay_ms:
            return delay_ms
        pause_ms = 0
        for rate, limit in rates:
            rate.record(1, now_ms)
            pause_ms = max(pause_ms, self._bounded(rate, limit, now_ms))
        if pause_ms:
            self._paused_until_ms[listener] = now_ms + pause_ms
        return 0

    def _address_delay_ms(self, address: str, now_ms: int) -> int:
        quota = self._address_quotas.get(address, self._address_quotas.get(None))
        if quota is None:
            return 0
        rate = self._address_rates.pop(address, None)
        if rate is None:
            if len(self._address_rates) >= MAX_ADDRESSES:
                del self._address_rates[next(iter(self._address_rates))]
            rate = self._new_rate()
        self._address_rates[address] = rate  # now the newest; the oldest is dropped first
        rate.record(1, now_ms)
        delay_ms = self._bounded(rate, quota, now_ms)
        if delay_ms:
            rate.record(-1, now_ms)
        return delay_ms

    def _bounded(self, rate: Rate, limit: float, now_ms: int) -> int:
        """The throttle time, one window at most. Rate cannot compute it for a limit of 0: that gets one window."""
        return min(rate.throttle_ms(limit, now_ms), self._window_ms) if limit > 0 else self._window_ms

    def acquire(self, listener: str, address: str, limits: ConnectionLimits) -> bool:
        """Whether a new connection may stay. If so it counts until `release`."""
        if self._by_address.get(address, 0) >= limits.overrides.get(address, limits.per_address):
            return False
        self._total += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        return True

    def is_overfull(self, limits: ConnectionLimits) -> bool:
        """Whether a connection of a protected listener has exceeded the broker's limit."""
        return limits.is_protected and self._total > limits.total

    def release(self, listener: str, address: str) -> None:
        self._total -= 1
        self._by_listener[listener] -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]
