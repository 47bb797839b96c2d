"""What every call does around its work: who calls, metrics, and errors with codes and details."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar

import grpc

from ..clients import CallerClients, Clients
from ..cluster_access import ClusterAccess
from ..credentials import login_of
from ..failures import DETAILS, code_of, failure_of, status_details
from ..process.metrics import Metrics

LOG: Final = logging.getLogger("trioka.gateway")
AUTHORIZATION: Final = "authorization"

T = TypeVar("T")


class Calls:
    """Runs the calls of a service."""

    def __init__(self, access: ClusterAccess, clients: Clients, metrics: Metrics) -> None:
        self._access = access
        self._clients = clients
        self._metrics = metrics

    def _acquire(self, context: Any) -> CallerClients:
        authorization = next(
            (value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION), None
        )
        return self._clients.acquire(login_of(authorization, self._access))

    async def unary(self, method: str, context: Any, work: Callable[[CallerClients], Awaitable[T]]) -> T:
        started, metrics = time.perf_counter(), self._metrics
        metrics.open_calls.labels(method).inc()
        clients = None
        code = grpc.StatusCode.OK
        try:
            clients = self._acquire(context)
            return await work(clients)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            code = code_of(error)
            await self._abort(method, context, error)
        finally:
            if clients is not None:
                self._clients.release(clients)
            metrics.open_calls.labels(method).dec()
            metrics.calls.labels(method, code.name).inc()
            metrics.call_seconds.labels(method).observe(time.perf_counter() - started)
        raise AssertionError("abort raises")

    async def stream(
        self, method: str, context: Any, work: Callable[[CallerClients], AsyncGenerator[Any, None]]
    ) -> None:
        """Send what `work` yields. A write waits while HTTP/2 lets nothing more through."""
        metrics = self._metrics
        metrics.open_calls.labels(method).inc()
        clients = None
        code = grpc.StatusCode.OK
        try:
            clients = self._acquire(context)
            async with aclosing(work(clients)) as responses:
                async for response in responses:
                    await context.write(response)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            code = code_of(error)
            await self._abort(method, context, error)
        finally:
            if clients is not None:
                self._clients.release(clients)
            metrics.open_calls.labels(method).dec()
            metrics.calls.labels(method, code.name).inc()

    async def _abort(self, method: str, context: Any, error: Exception) -> None:
        code, failure = code_of(error), failure_of(error)
        if code is grpc.StatusCode.INTERNAL:
            LOG.error("internal error in a call of %s", method, exc_info=error)
        await context.abort(code, failure.message, ((DETAILS, status_details(code, failure)),))
