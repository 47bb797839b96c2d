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


class ClientGone(Exception):
    """A response could not be sent: the call was cancelled, or its connection has ended."""


class MethodMetrics:
    """The metrics of one method, looked up once."""

    def __init__(self, metrics: Metrics, method: str) -> None:
        self.name = method
        self._counter = metrics.calls
        self._open = metrics.open_calls.labels(method)
        self._seconds = metrics.call_seconds.labels(method)
        self._succeeded = metrics.calls.labels(method, grpc.StatusCode.OK.name)

    def begin(self) -> float:
        self._open.inc()
        return time.perf_counter()

    def end(self, code: grpc.StatusCode, began: float | None = None) -> None:
        self._open.dec()
        counter = self._succeeded if code is grpc.StatusCode.OK else self._counter.labels(self.name, code.name)
        counter.inc()
        if began is not None:
            self._seconds.observe(time.perf_counter() - began)


class Calls:
    """Runs the calls of a service."""

    def __init__(self, access: ClusterAccess, clients: Clients, metrics: Metrics) -> None:
        self._access = access
        self._clients = clients
        self._metrics = metrics
        self._by_method: dict[str, MethodMetrics] = {}

    def _of(self, method: str) -> MethodMetrics:
        found = self._by_method.get(method)
        if found is None:
            found = self._by_method[method] = MethodMetrics(self._metrics, method)
        return found

    def _acquire(self, context: Any) -> CallerClients:
        if not self._access.is_authenticated:
            return self._clients.acquire(None)
        headers = context.invocation_metadata() or ()
        authorization = next((value for key, value in headers if key == AUTHORIZATION), None)
        return self._clients.acquire(login_of(authorization, self._access))

    def _release(self, clients: CallerClients | None, code: grpc.StatusCode) -> None:
        if clients is None:
            return
        if code is grpc.StatusCode.UNAUTHENTICATED:
            self._clients.forget(clients)
        self._clients.release(clients)

    async def unary(self, method: str, context: Any, work: Callable[[CallerClients], Awaitable[T]]) -> T:
        metrics = self._of(method)
        began, clients, code = metrics.begin(), None, grpc.StatusCode.OK
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
            self._release(clients, code)
            metrics.end(code, began)
        raise AssertionError("abort raises")

    async def stream(
        self, method: str, context: Any, work: Callable[[CallerClients], AsyncGenerator[Any, None]]
    ) -> None:
        """Send what `work` yields. A write waits while HTTP/2 lets nothing more through."""
        metrics = self._of(method)
        metrics.begin()
        clients, code = None, grpc.StatusCode.OK
        try:
            clients = self._acquire(context)
            async with aclosing(work(clients)) as responses:
                async for response in responses:
                    await _send(context, response)
        except (asyncio.CancelledError, ClientGone) as gone:
            code = grpc.StatusCode.CANCELLED
            if isinstance(gone, asyncio.CancelledError):
                raise
        except Exception as error:
            code = code_of(error)
            await self._abort(method, context, error)
        finally:
            self._release(clients, code)
            metrics.end(code)

    async def _abort(self, method: str, context: Any, error: Exception) -> None:
        code, failure = code_of(error), failure_of(error)
        if code is grpc.StatusCode.INTERNAL:
            LOG.error("internal error in a call of %s", method, exc_info=error)
        await context.abort(code, failure.message, ((DETAILS, status_details(code, failure)),))


async def _send(context: Any, response: Any) -> None:
    try:
        await context.write(response)
    except Exception as error:  # grpc's own class for it is private
        raise ClientGone from error
