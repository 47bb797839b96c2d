"""Which HTTP connections stay when there are too many. Pure.

A probe must get through whatever others do, or whoever looks after this process kills it for nothing. So nobody who
comes is sent away: at a limit an older connection is closed instead. It is one of the newcomer's address, if that has
as many as one may have; else one of the address that has the most. Of that address it is the connection that has been
without a request for the longest time; only if all of them are being answered, the oldest.
"""

from typing import Final, Generic, TypeVar

MAX_CONNECTIONS: Final = 64  # a scraper has one, a prober one for each question
MAX_PER_ADDRESS: Final = 32

C = TypeVar("C")


class HttpConnections(Generic[C]):
    def __init__(self, most: int = MAX_CONNECTIONS, per_address: int = MAX_PER_ADDRESS) -> None:
        self._most = most
        self._per_address = per_address
        self._waiting: dict[C, str] = {}  # for a request, the longest first; and their addresses
        self._answered: dict[C, str] = {}  # those whose request is being answered, the oldest first

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    def enter(self, connection: C, address: str) -> C | None:
        """One has come. Another that is to be closed for it, which has left by this."""
        crowded = self._crowded(address)
        closed = None if crowded is None else self._oldest(crowded)
        if closed is not None:
            self.leave(closed)
        self._waiting[connection] = address
        return closed

    def leave(self, connection: C) -> None:
        self._waiting.pop(connection, None)
        self._answered.pop(connection, None)

    def is_asked(self, connection: C) -> None:
        """It has a request, which is whole, and is being answered from now on."""
        address = self._waiting.pop(connection, None)
        if address is not None:
            self._answered[connection] = address

    def is_answered(self, connection: C) -> None:
        address = self._answered.pop(connection, None)
        if address is not None:
            self._waiting[connection] = address

    def _crowded(self, coming: str) -> str | None:
        """The address that has to give one up, if one has to."""
        addresses = [*self._waiting.values(), *self._answered.values()]
        if addresses.count(coming) >= self._per_address:
            return coming
        return max(addresses, key=addresses.count) if len(addresses) >= self._most else None

    def _oldest(self, address: str) -> C:
        return next(each for group in (self._waiting, self._answered) for each, its in group.items() if its == address)
