"""The HTTP server: `/metrics`, `/livez`, `/readyz`, `/startupz`, for monitoring and probes.

It opens before the logs are loaded, so that `/startupz` can report progress. The modules for HTTP (h11) and metrics
(prometheus_client) are loaded at the first connection, in a worker thread: without clients, the server costs only a
listening socket and a task that runs twice a second.
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

MAX_SCRAPES: Final = 2


class HttpServer:
    """Made by `open_http_server`. `ports_in_use` are the ports of other processes."""

    def __init__(self, listener: Listener, ports_in_use: list[int]) -> None:
        self._listener = listener
        self._loading = trio.Lock()
        self._protocol: ModuleType | None = None
        self.ports_in_use = ports_in_use
        self.connections: HttpConnections[trio.CancelScope] = HttpConnections()

    @property
    def address(self) -> tuple[str, int]:
        """The bound address, with a real port where 0 was configured."""
        return self._listener.address

    async def serve(self, broker: "Broker") -> None:
        """Serves until cancelled."""
        watch, scrapes = LoopWatch(broker), trio.CapacityLimiter(MAX_SCRAPES)
        broker.dispatch.http_address = broker.controller_dispatch.http_address = self.address
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            await serve_streams(self._listener, partial(self._handle_connection, (broker, watch, scrapes)))

    async def _handle_connection(
        self, session: "tuple[Broker, LoopWatch, trio.CapacityLimiter]", stream: trio.abc.Stream, address: str
    ) -> None:
        """Serve one connection. No exception here may end the broker."""
        life = trio.CancelScope()
        closed = self.connections.enter(life, address)
        if closed is not None:
            closed.cancel()
        try:
            with life:
                async with self._loading:
                    if self._protocol is None:
                        self._protocol = await trio.to_thread.run_sync(import_module, ".protocol", __package__)
                on_request = partial(self.connections.on_request, life)
                on_response = partial(self.connections.on_response, life)
                await self._protocol.serve_connection(
                    stream, self._protocol.HttpSession(*session, on_request, on_response)
                )
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has disconnected
        except Exception as mistake:
            log.error("internal error: HTTP", exc_info=mistake)
        finally:
            self.connections.leave(life)
            await trio.aclose_forcefully(stream)


def open_http_server(config: Config) -> HttpServer | None:
    """Binds the first free address of `trioka.http.listeners`; None if none is configured. PortInUse if all are
    taken."""
    ports_in_use: list[int] = []
    taken: PortInUse | None = None
    for text in config[HTTP_LISTENERS]:
        address = http_address(text)
        try:
            return HttpServer(listen("HTTP", address.host, address.port), ports_in_use)
        except PortInUse as error:
            ports_in_use.append(address.port)
            taken = error
        except OSError as error:
            raise OSError(error.errno or errno.EIO, f"HTTP cannot be served at {address}: {error.strerror}") from None
    if taken is not None:
        raise taken
    return None
