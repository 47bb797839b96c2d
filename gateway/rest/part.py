"""REST as a part of the gateway's process."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import grpc.aio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..clients import Clients
from ..cluster_access import ClusterAccess
from ..process.metrics import Metrics
from ..registry.access import RegistryAccess
from ..registry.service import RegistryService
from ..settings import REST_CONSUMER_IDLE_MS, REST_MAX_CONSUMERS, Settings
from .consumers import Instances
from .http import ROOTS, RestApp
from .openapi import document

EXPIRY_S: Final = 1.0  # interval between looks at idle instances


class RestPart:
    name = "rest"

    def __init__(
        self,
        settings: Settings,
        access: ClusterAccess,
        metrics: Metrics,
        registry: RegistryService | None,
        registry_access: RegistryAccess | None,
    ) -> None:
        self._clients = Clients(access, settings, metrics)
        self._instances = Instances(
            access, most=settings.number(REST_MAX_CONSUMERS), idle_s=settings.seconds(REST_CONSUMER_IDLE_MS)
        )
        self._app = RestApp(access, self._clients, self._instances, metrics, registry, registry_access)
        self._expiry: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._expiry = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_S)
            self._instances.expire()

    def routes(self) -> Sequence[BaseRoute]:
        paths = [path for root in ROOTS for path in (f"/{root}", f"/{root}/{{rest:path}}")]
        return [*(Route(path, self._app) for path in paths), Route("/openapi.json", _openapi)]

    def add_to(self, server: grpc.aio.Server) -> Sequence[str]:
        return []

    def not_ready(self) -> str | None:
        return None  # the part of gRPC watches the cluster

    def drain(self) -> None:
        for tail in self._app.tails:
            tail.drain()

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            with suppress(asyncio.CancelledError):
                await self._expiry
        await self._instances.close()
        await self._clients.close()


async def _openapi(request: Request) -> Response:
    return JSONResponse(document())
