"""Chooses the HTTP connection to close when there are too many. Pure.

A probe must always be served, because its supervisor would otherwise restart the process. So new connections are always
accepted: at a limit an older connection is closed instead. It has the same address if that has reached its own limit,
otherwise the address with the most connections. Among these, the connection that has waited longest for a request is
closed; if all have a request in progress, the oldest.
"""

from typing import Final, Generic, TypeVar

MAX_CONNECTIONS: Final = 64  # a scraper uses one, a prober one for each probe
MAX_PER_ADDRESS: Final = 32

C = TypeVar("C")


class HttpConnections(Generic[C]):
    def __init__(self, most: int = MAX_CONNECTIONS, per_address: int = MAX_PER_ADDRESS) -> None:
        self._most = most
        self._per_address = per_address
        self._waiting: dict[C, str] = {}  # address of each connection without a request, the longest wait first
        self._answered: dict[C, str] = {}  # the same with a request in progress, the oldest first

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    def enter(self, connection: C, address: str) -> C | None:
        """Adds a connection. Returns another one to close, if necessary, which is removed here."""
        crowded = self._address_over_limit(address)
        closed = None if crowded is None else self._oldest(crowded)
        if closed is not None:
            self.leave(closed)
        self._waiting[connection] = address
        return closed

    def leave(self, connection: C) -> None:
        self._waiting.pop(connection, None)
        self._answered.pop(connection, None)

    def on_request(self, connection: C) -> None:
        """The connection's request is complete and is being answered."""
        address = self._waiting.pop(connection, None)
        if address is not None:
            self._answered[connection] = address

    def on_response(self, connection: C) -> None:
        address = self._answered.pop(connection, None)
        if address is not None:
            self._waiting[connection] = address

    def _address_over_limit(self, coming: str) -> str | None:
        """The address with a connection to close, if one must be closed."""
        addresses = [*self._waiting.values(), *self._answered.values()]
        if addresses.count(coming) >= self._per_address:
            return coming
        return max(addresses, key=addresses.count) if len(addresses) >= self._most else None

    def _oldest(self, address: str) -> C:
        return next(each for group in (self._waiting, self._answered) for each, its in group.items() if its == address)
