"""Mutes the connections of throttled clients: nothing is read from them for a while.

Kafka answers a throttled request at once, with the time to wait in `throttle_time_ms`, and mutes the channel for that
time, because a client may ignore the number. Responses are still sent on a muted connection. Received bytes stay in its
receive buffer or in the kernel and are served afterwards. Meanwhile it counts neither as idle nor as stalled.

A mute waits in the purgatory (cluster/replication/purgatory.py), under no key. A connection has at most one mute; a
longer one replaces a shorter one.
"""

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

from trioka.cluster.replication.purgatory import DelayedOperation

if TYPE_CHECKING:
    from ...broker import Broker
    from ..connection import Connection

log = logging.getLogger("trioka.network")


class ChannelMute(DelayedOperation):
    __slots__ = ("_broker", "_connection", "until")

    def __init__(self, broker: "Broker", connection: "Connection", until: float) -> None:
        super().__init__()
        self._broker = broker
        self._connection = connection
        self.until = until

    def try_complete(self, key: Hashable) -> bool:
        return False

    def expire(self) -> None:
        self._connection.unmute(self._broker.clock.now())

    def fail(self, mistake: Exception) -> None:
        log.error("internal error: connection of %s", self._connection.peer, exc_info=mistake)
        self._connection.abort()

    def cancel(self) -> None:
        self._broker.purgatory.cancel(self)


def mute(broker: "Broker", connection: "Connection", throttle_ms: int) -> None:
    """Stops reading from the connection and serving it for this time."""
    until = broker.clock.now() + throttle_ms / 1000
    before = connection.muted
    if connection.is_closed or (before is not None and before.until >= until):
        return
    if before is not None:
        before.cancel()
    connection.muted = ChannelMute(broker, connection, until)
    broker.park(connection.muted, (), until)
