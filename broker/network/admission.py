"""Admission of connections: listeners check here before they accept, and connections above a limit are closed later.

`ConnectionQuotas` decides; this module keeps the listeners that wait and the sockets that are closed later. Both wait
in the purgatory (cluster/purgatory.py).
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from trioka.cluster.purgatory import DelayedOperation

from ..config.network_keys import QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS
from .connection_quotas import ConnectionLimits, ConnectionQuotas

if TYPE_CHECKING:
    from ..broker import Broker

MAX_HELD: Final = 1000  # sockets that are closed later; more are closed at once


class _DelayedCall(DelayedOperation):
    """Calls a function when its time is over."""

    __slots__ = ("_do",)

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__()
        self._do = do

    def try_complete(self, key: Hashable) -> bool:
        return False

    def expire(self) -> None:
        self._do()


class Admission:
    def __init__(self, broker: "Broker") -> None:
        config = broker.config
        self._broker = broker
        self._held: dict[int, Callable[[], None]] = {}  # close functions of sockets that are closed later
        self._last_held = 0
        self._resumes: set[str] = set()  # listeners that resume at a known time
        self.quotas = ConnectionQuotas(config[QUOTA_WINDOW_NUM], config[QUOTA_WINDOW_SIZE_SECONDS] * 1000)
        broker.network.may_accept, broker.network.holds, broker.network.after = self.may_accept, self.holds, self.after

    def limits(self, listener: str) -> ConnectionLimits:
        node = self._broker.node
        is_protected = listener in node.controller_names or (
            listener == node.inter_broker and len(self._broker.addresses) > 1
        )
        return ConnectionLimits.of(self._broker.config, listener, is_protected)

    def may_accept(self, listener: str) -> bool:
        """Whether the listener may accept. If not, it waits until `SocketServer.resume_listeners`."""
        pause_ms = self.quotas.pause_ms(listener, self._now_ms())
        if pause_ms:
            if listener not in self._resumes:
                self._resumes.add(listener)
                self.after(pause_ms / 1000, lambda: self._resume(listener))
            return False
        return self.quotas.has_place(listener, self.limits(listener))

    def holds(self, close: Callable[[], None], host: str, listener: str) -> bool:
        """Whether the connection exceeds a limit and must not be served; it is then closed later."""
        delay_ms = self.quotas.note_arrival(listener, host, self.limits(listener), self._now_ms())
        if not delay_ms:
            return False
        if len(self._held) >= MAX_HELD:
            close()
            return True
        self._last_held = number = self._last_held + 1
        self._held[number] = close
        self.after(delay_ms / 1000, lambda: self._close(number))
        return True

    def admit(self, host: str, listener: str) -> bool:
        limits = self.limits(listener)
        if not self.quotas.acquire(listener, host, limits):
            return False
        if self.quotas.is_overfull(limits):
            node = self._broker.node
            self._broker.network.close_longest_idle({node.inter_broker, *node.controller_names})
        return True

    def release(self, host: str, listener: str) -> None:
        self.quotas.release(listener, host)
        self._broker.network.resume_listeners()

    def _resume(self, listener: str) -> None:
        self._resumes.discard(listener)
        self._broker.network.resume_listeners()

    def _close(self, number: int) -> None:
        if (close := self._held.pop(number, None)) is not None:
            close()

    def close(self) -> None:
        """Closes the held sockets when the broker stops."""
        for number in list(self._held):
            self._close(number)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Calls the function after this time."""
        self._broker.park(_DelayedCall(do), (), self._broker.clock.now() + seconds)

    def _now_ms(self) -> int:
        return int(self._broker.clock.now() * 1000)
