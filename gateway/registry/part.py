"""The schema registry as a part of the gateway's process."""

import asyncio
from collections.abc import Sequence

import grpc.aio
from starlette.routing import BaseRoute, Route

from ..clients import Clients
from ..cluster_access import ClusterAccess
from ..process.metrics import Metrics
from ..settings import REGISTRY_REPLICAS, REGISTRY_TOPIC, REQUEST_TIMEOUT_MS, Settings
from .access import RegistryAccess
from .http import ROOTS, RegistryApp
from .service import RegistryService
from .store import SchemaStore


class RegistryPart:
    name = "registry"

    def __init__(self, settings: Settings, access: ClusterAccess, metrics: Metrics) -> None:
        topic = settings.text(REGISTRY_TOPIC)
        assert topic is not None
        self._store = SchemaStore(
            access.librdkafka(),
            topic,
            replicas=settings.number(REGISTRY_REPLICAS),
            timeout_s=settings.seconds(REQUEST_TIMEOUT_MS),
        )
        self._clients = Clients(access, settings, metrics)
        self.service = RegistryService(self._store)
        self.access = RegistryAccess(access, self._clients, topic)
        self._app = RegistryApp(self.service, self.access)

    async def start(self) -> None:
        self._store.start()

    def routes(self) -> Sequence[BaseRoute]:
        paths = [path for root in ROOTS for path in (f"/{root}", f"/{root}/{{rest:path}}")]
        return [Route(path, self._app) for path in paths]

    def add_to(self, server: grpc.aio.Server) -> Sequence[str]:
        return []

    def not_ready(self) -> str | None:
        return self._store.not_ready()

    def drain(self) -> None:
        """Calls of the registry are short."""

    async def stop(self) -> None:
        await asyncio.to_thread(self._store.stop)
        await asyncio.to_thread(self._app.close)
        await self._clients.close()
