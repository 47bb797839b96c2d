"""HTTP listeners: uvicorn with httptools in the loop of the process, over an application of starlette.

There are two applications: metrics and health, without TLS, for the operator's network; and the routes of the parts
(REST, schema registry), which callers use.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from ..settings import Address
from .http_limits import LimitedHttp
from .metrics import CONTENT_TYPE, Metrics

BACKLOG: Final = 256
KEEP_ALIVE_S: Final = 75
OBSERVERS: Final = 64  # connections to the listener of metrics


class CannotListen(Exception):
    """The address of a listener cannot be used. The message is one sentence."""


def observation_app(metrics: Metrics, not_ready: Callable[[], str | None]) -> Starlette:
    async def exposition(request: Request) -> Response:
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        reason = not_ready()
        return PlainTextResponse("ok\n") if reason is None else PlainTextResponse(f"{reason}\n", status_code=503)

    return Starlette(
        routes=[Route("/metrics", exposition), Route("/livez", live), Route("/readyz", ready)],
    )


def parts_app(routes: Sequence[BaseRoute], middleware: Sequence[Middleware] = ()) -> Starlette:
    return Starlette(routes=list(routes), middleware=list(middleware))


def bind(address: Address) -> socket.socket:
    """A listening socket; port 0 takes any free port."""
    try:
        family, kind, number, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CannotListen(f"{address} is no address of this machine: {error.strerror}") from None
    listening = socket.socket(family, kind, number)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(where)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotListen(f"{address} cannot be listened on: {error.strerror}") from None
    listening.setblocking(False)
    return listening


class HttpServer(uvicorn.Server):
    """A server on a bound socket. Signals are the process's business, not uvicorn's."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        max_connections: int = OBSERVERS,
        grace_s: float = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            loop="none",
            http=LimitedHttp,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=max_connections,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(grace_s)),
        )
        if tls is not None:
            config.ssl_context_factory = lambda _config, _default: tls
        super().__init__(config)
        self.listening = listening

    @property
    def address(self) -> Address:
        host, port = self.listening.getsockname()[:2]
        return Address(host, port)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_until_stopped(self) -> None:
        await self.serve(sockets=[self.listening])

    def stop(self) -> None:
        self.should_exit = True
