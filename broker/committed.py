"""Waiting until what was appended is committed: all replicas that must have it, have it."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from trioka.cluster.delayed import Waiter
from trioka.protocol.errors import KafkaError, RequestTimedOut
from trioka.storage.log import Log

from .partitions import Replica

if TYPE_CHECKING:
    from .broker import Broker

Then = Callable[[KafkaError | None], None]


def when_committed(broker: "Broker", replica: Replica, until: int, timeout_s: float, then: Then) -> None:
    """Everything before `until`: at once, nearly always, if nobody but this broker has to have it. If it takes too long
    nobody knows whether it ever will be: RequestTimedOut."""
    if replica.wants_flush:
        broker.nursery.start_soon(_flush, broker, replica.log, then)
    elif replica.log.high_watermark >= until:
        then(None)
    else:
        broker.park(_Commit(replica.log, until, then), (replica,), broker.clock.now() + timeout_s)


async def _flush(broker: "Broker", log: Log, then: Then) -> None:
    try:
        await broker.commit.flush(log)
    except KafkaError as error:
        then(error)
    else:
        then(None)


class _Commit(Waiter):
    """Waits until the high watermark has passed what was written."""

    __slots__ = ("_log", "_then", "_until")

    def __init__(self, written: Log, until: int, then: Then) -> None:
        super().__init__()
        self._log = written
        self._until = until
        self._then = then

    def look(self, key: Hashable) -> bool:
        if self._log.high_watermark < self._until:
            return False
        self._then(None)
        return True

    def expire(self) -> None:
        self._then(RequestTimedOut())
