"""Finds the fast path for a request that the general path has served."""

from typing import TYPE_CHECKING

from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.schema import Request

from ..config.trioka_keys import FAST_PATH_ENABLE
from .fetch import fast_path_for
from .produce import ProduceFastPaths

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.dispatch import Route
    from .fast_path import FastPath


class FastPathRegistry:
    __slots__ = ("_broker", "_is_enabled", "_produce")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._is_enabled: bool = broker.config[FAST_PATH_ENABLE]
        self._produce = ProduceFastPaths(broker)

    def find(self, frame: memoryview, body: int, request: Request, route: "Route") -> "FastPath | None":
        """For more requests like this one, whose body begins there; None if they are not eligible."""
        if not self._is_enabled:
            return None
        if isinstance(request, ProduceRequest):
            return self._produce.fast_path_for(frame, body, request, route)
        assert isinstance(request, FetchRequest)
        return fast_path_for(self._broker, frame, body, request, route.version)

    def release(self) -> None:
        """Drops references to replicas."""
        self._produce.release()
