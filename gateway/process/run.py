"""The gateway's main: open the listeners, serve, and stop without cutting off a call.

A stop (SIGTERM, SIGINT) goes in this order: /readyz and the health service say no, so that a load balancer turns away;
calls that would last are asked to end (`Part.drain`); no new call begins; those that run may end within
`shutdown.grace.ms`; then the parts release what they hold, and the listener of metrics closes last. A second signal
does not wait for calls.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from starlette.middleware import Middleware

from ..cluster_access import ClusterAccess
from ..parts import parts_of
from ..settings import (
    GRPC_LISTENER,
    HTTP_LISTENER,
    HTTP_MAX_BODIES_BYTES,
    HTTP_MAX_BODY_BYTES,
    HTTP_MAX_CONNECTIONS,
    MAX_CALLS,
    MAX_CONNECTIONS,
    MAX_MESSAGE_BYTES,
    MAX_STREAMS,
    METRICS_LISTENER,
    SHUTDOWN_GRACE_MS,
    Address,
    Settings,
    check_exposure,
)
from .http import CannotListen, HttpServer, bind, observation_app, parts_app
from .http_limits import BodyLimit
from .metrics import Metrics
from .part import Part
from .tls import listener_tls

LOG: Final = logging.getLogger("trioka.gateway")
THREADS_S: Final = 3.0  # how long the end waits for threads
HEALTH_S: Final = 0.5  # how late the health service may say what /readyz says
MAX_METADATA_BYTES: Final = 16 * 1024  # headers of a call; a bearer token is the largest


class Ready(NamedTuple):
    """The addresses of the open listeners; None for those that are off."""

    grpc: Address | None
    http: Address | None
    metrics: Address | None
    is_tls: bool


class Gateway:
    """One gateway, for `run`. Its parts get it to reach settings, cluster and metrics."""

    def __init__(self, settings: Settings, access: ClusterAccess) -> None:
        check_exposure(settings, is_cluster_authenticated=access.is_authenticated)
        self.settings = settings
        self.access = access
        self.metrics = Metrics()
        self.parts: Sequence[Part] = parts_of(settings, access, self.metrics)
        self.is_stopping = False
        self._health = health.aio.HealthServicer()
        self._tls = listener_tls(settings)
        self._grpc: grpc.aio.Server | None = None
        self._services: list[str] = []

    def not_ready(self) -> str | None:
        if self.is_stopping:
            return "The gateway stops."
        reasons = (part.not_ready() for part in self.parts)
        return next((reason for reason in reasons if reason is not None), None)

    async def serve(self, stop: asyncio.Event, hurry: asyncio.Event, ready: Callable[[Ready], None]) -> None:
        """Returns after `stop` is set and everything is closed; `hurry` ends the wait for calls."""
        observer, http = self._http_servers()
        servers = [each for each in (http, observer) if each is not None]
        try:
            address = self._open_grpc()
            await self._start_grpc()
        except BaseException:
            for each in servers:
                each.listening.close()
            raise
        tasks = [asyncio.create_task(each.run_until_stopped()) for each in servers]
        for part in self.parts:
            await part.start()
        ready(
            Ready(
                address,
                None if http is None else http.address,
                None if observer is None else observer.address,
                self._tls is not None,
            )
        )
        watches = [asyncio.create_task(self._mirror_health())]
        if self._tls is not None:
            watches.append(asyncio.create_task(self._tls.watch()))
        await stop.wait()
        for watch in watches:
            watch.cancel()
        await self._stop(hurry, http, tasks[:1] if http is not None else [])
        if observer is not None:
            observer.stop()
        await asyncio.gather(*tasks)

    async def _mirror_health(self) -> None:
        """The health service says of every service what /readyz says."""
        while True:
            ready = self.not_ready() is None
            status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
            for name in self._services:
                await self._health.set(name, status)
            await asyncio.sleep(HEALTH_S)

    async def _stop(
        self, hurry: asyncio.Event, http: HttpServer | None, serving: "Sequence[asyncio.Task[None]]"
    ) -> None:
        """`serving` ends when the last request of HTTP has."""
        self.is_stopping = True
        grace_s = self.settings.seconds(SHUTDOWN_GRACE_MS)
        LOG.info("the gateway stops; calls have %.1f s to end", grace_s)
        await self._health.enter_graceful_shutdown()
        for part in self.parts:
            part.drain()
        if http is not None:
            http.stop()
        hurried = asyncio.create_task(self._hurry(hurry, http))
        if self._grpc is not None:
            await self._grpc.stop(grace_s)
        await asyncio.gather(*serving)
        hurried.cancel()
        for part in self.parts:
            await part.stop()

    async def _hurry(self, hurry: asyncio.Event, http: HttpServer | None) -> None:
        """Cancel the calls that run, when a second signal comes."""
        await hurry.wait()
        if http is not None:
            http.force_exit = True
        if self._grpc is not None:
            await self._grpc.stop(None)

    def _http_servers(self) -> tuple[HttpServer | None, HttpServer | None]:
        """The server of metrics and health, and the server of the parts' routes."""
        settings = self.settings
        observer = http = None
        address = settings.listener(METRICS_LISTENER)
        if address is not None:
            observer = HttpServer(observation_app(self.metrics, self.not_ready), bind(address))
        address = settings.listener(HTTP_LISTENER)
        routes = [route for part in self.parts for route in part.routes()]
        if address is not None and routes:
            try:
                limit = Middleware(
                    BodyLimit,
                    max_bytes=settings.number(HTTP_MAX_BODY_BYTES),
                    max_bytes_of_all=settings.number(HTTP_MAX_BODIES_BYTES),
                )
                http = HttpServer(
                    parts_app(routes, [limit]),
                    bind(address),
                    max_connections=settings.number(HTTP_MAX_CONNECTIONS),
                    grace_s=settings.seconds(SHUTDOWN_GRACE_MS),
                    tls=None if self._tls is None else self._tls.http_context,
                )
            except CannotListen:
                if observer is not None:
                    observer.listening.close()
                raise
        return observer, http

    def _open_grpc(self) -> Address | None:
        address = self.settings.listener(GRPC_LISTENER)
        if address is None:
            return None
        settings = self.settings
        limit = settings.number(MAX_MESSAGE_BYTES)
        self._grpc = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.max_concurrent_streams", settings.number(MAX_STREAMS)),
                ("grpc.max_allowed_incoming_connections", settings.number(MAX_CONNECTIONS)),
                ("grpc.max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=settings.number(MAX_CALLS),
        )
        try:
            if self._tls is None:
                port = self._grpc.add_insecure_port(str(address))
            else:
                port = self._grpc.add_secure_port(str(address), self._tls.grpc_credentials())
        except RuntimeError:
            port = 0
        if port == 0:
            raise CannotListen(f"{address} cannot be listened on; another process may use it")
        return Address(address.host, port)

    async def _start_grpc(self) -> None:
        if self._grpc is None:
            return
        names = [name for part in self.parts for name in part.add_to(self._grpc)]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        self._services = ["", *names]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._grpc)
        await self._grpc.start()


async def _main(settings: Settings, access: ClusterAccess, ready: Callable[[Ready], None]) -> None:
    loop, stop, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    await Gateway(settings, access).serve(stop, hurry, ready)


def run(settings: Settings, access: ClusterAccess, ready: Callable[[Ready], None]) -> None:
    """Serve until a signal. Raises SettingsError or CannotListen if it cannot start."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(settings, access, ready))
    deadline = time.monotonic() + THREADS_S
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():  # in a call of librdkafka that does not return; Python would wait for it
                LOG.warning("the gateway ends while a call to the cluster does not return")
                logging.shutdown()
                os._exit(0)
