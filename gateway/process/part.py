"""What the process serves: parts, each with routes of HTTP, services of gRPC, or both.

A part is made before the listeners open, started once, and stopped once. The process knows nothing else of it.
"""

from collections.abc import Sequence
from typing import Protocol

import grpc.aio
from starlette.routing import BaseRoute


class Part(Protocol):
    name: str

    async def start(self) -> None:
        """Begin background work. It must not wait for the cluster: the process is ready without it."""

    def routes(self) -> Sequence[BaseRoute]:
        """Routes of the HTTP listener."""

    def add_to(self, server: grpc.aio.Server) -> Sequence[str]:
        """Add services to the gRPC server, and return their full names."""

    def not_ready(self) -> str | None:
        """Why this part cannot serve at present, in one sentence; None if it can."""

    def drain(self) -> None:
        """End long calls at their next record, because the process stops. It must not wait."""

    async def stop(self) -> None:
        """Release everything; all calls have ended."""
