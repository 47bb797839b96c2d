"""The HTTP door: `/metrics`, `/livez`, `/readyz`, `/startupz`, for those who look after brokers.

It is open before the logs are loaded, so that `/startupz` can say what takes so long. What it takes to speak HTTP
(h11), and to write metrics (prometheus_client), is loaded when the first one knocks, in a worker thread: a broker that
nobody watches has a listening socket more than without a door, and a task that looks at the clock twice a second.
"""

import errno
import logging
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

import trio

from ..config.layers import Config
from ..config.trioka_keys import HTTP_LISTENERS, http_address
from ..metrics.loop_watch import LoopWatch
from ..network.listener import Listener, PortInUse, listen, serve_streams
from .connection_limits import HttpConnections

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.http")

SCRAPES_AT_ONCE: Final = 2


class Door:
    """Made by `open_door`. `passed_over` are the ports that somebody else has."""

    def __init__(self, listener: Listener, passed_over: list[int]) -> None:
        self._listener = listener
        self._loading = trio.Lock()
        self._talk: ModuleType | None = None
        self.passed_over = passed_over
        self.connections: HttpConnections[trio.CancelScope] = HttpConnections()

    @property
    def address(self) -> tuple[str, int]:
        """Where it really is: a port of 0 has become a number."""
        return self._listener.address

    async def serve(self, broker: "Broker") -> None:
        """Until cancelled."""
        watch, scrapes = LoopWatch(broker), trio.CapacityLimiter(SCRAPES_AT_ONCE)
        broker.dispatch.http_address = broker.controller_dispatch.http_address = self.address
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            await serve_streams(self._listener, partial(self._meet, (broker, watch, scrapes)))

    async def _meet(
        self, visit: "tuple[Broker, LoopWatch, trio.CapacityLimiter]", stream: trio.abc.Stream, address: str
    ) -> None:
        """One who has connected. Whatever happens here must not end the broker."""
        life = trio.CancelScope()
        closed = self.connections.enter(life, address)
        if closed is not None:
            closed.cancel()
        try:
            with life:
                async with self._loading:
                    if self._talk is None:
                        self._talk = await trio.to_thread.run_sync(import_module, ".protocol", __package__)
                is_asked = partial(self.connections.is_asked, life)
                is_answered = partial(self.connections.is_answered, life)
                await self._talk.converse(stream, self._talk.Visit(*visit, is_asked, is_answered))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # they have gone
        except Exception as mistake:
            log.error("a mistake of ours: HTTP", exc_info=mistake)
        finally:
            self.connections.leave(life)
            await trio.aclose_forcefully(stream)


def open_door(config: Config) -> Door | None:
    """The first of `trioka.http.listeners` that is free; None if there are none. PortInUse if all are taken."""
    passed_over: list[int] = []
    taken: PortInUse | None = None
    for text in config[HTTP_LISTENERS]:
        address = http_address(text)
        try:
            return Door(listen("HTTP", address.host, address.port), passed_over)
        except PortInUse as error:
            passed_over.append(address.port)
            taken = error
        except OSError as error:
            raise OSError(error.errno or errno.EIO, f"HTTP cannot be served at {address}: {error.strerror}") from None
    if taken is not None:
        raise taken
    return None
