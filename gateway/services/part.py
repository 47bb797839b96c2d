"""The gRPC services as a part of the process."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import grpc.aio
from starlette.routing import BaseRoute

from trioka.protocol.errors import KafkaError

from ..clients import Clients
from ..cluster_access import ClusterAccess
from ..kafka.cluster import Cluster
from ..process.metrics import Metrics
from ..settings import REQUEST_TIMEOUT_MS, Settings
from ..v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from .admin_service import AdminService
from .call import Calls
from .log_service import LogService

LOOK_S: Final = 5.0  # interval between requests that show whether the cluster answers
SOON_S: Final = 0.2  # the same while it does not
STALE_S: Final = 30.0


class GrpcServices:
    name = "grpc"

    def __init__(self, settings: Settings, access: ClusterAccess, metrics: Metrics) -> None:
        self._clients = Clients(access, settings, metrics)
        calls = Calls(access, self._clients, metrics)
        self._log = LogService(calls, settings, metrics)
        self._admin = AdminService(calls)
        self._cluster = Cluster(access, timeout_s=min(LOOK_S, settings.seconds(REQUEST_TIMEOUT_MS)))
        self._last_answer: float | None = None
        self._reason = "The cluster has not answered yet."
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._watch = asyncio.create_task(self._look())

    def routes(self) -> Sequence[BaseRoute]:
        return []

    def add_to(self, server: grpc.aio.Server) -> Sequence[str]:
        log_pb2_grpc.add_LogServiceServicer_to_server(self._log, server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self._admin, server)
        files = (log_pb2.DESCRIPTOR, admin_pb2.DESCRIPTOR)
        return [service.full_name for file in files for service in file.services_by_name.values()]

    def not_ready(self) -> str | None:
        if self._last_answer is not None and time.monotonic() - self._last_answer < STALE_S:
            return None
        return self._reason

    def drain(self) -> None:
        self._log.drain()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        self._cluster.close()
        await self._log.stop()
        await self._clients.close()

    async def _look(self) -> None:
        """Whether the cluster answers the gateway's own user."""
        while True:
            try:
                await self._cluster.refresh([])
                self._last_answer = time.monotonic()
            except (KafkaError, ValueError) as error:
                self._reason = f"The cluster does not answer: {error}"
            await asyncio.sleep(LOOK_S if self.not_ready() is None else SOON_S)
