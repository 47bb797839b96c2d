"""The cluster's clients of each caller: connections, producers, named producers. The least recently used ones close.

A caller is a login, password included: another password is another caller, and has to prove itself to the cluster.
"""

import asyncio
from collections import OrderedDict
from typing import Final

import grpc

from .cluster_access import ClusterAccess, Login
from .failures import Refused
from .kafka.cluster import Cluster
from .process.metrics import Metrics
from .producing.named import NamedProducers
from .producing.writer import Writer
from .settings import COMMIT_INTERVAL_MS, MAX_PRINCIPALS, MAX_PRODUCER_NAMES, REQUEST_TIMEOUT_MS, Settings
from .v1 import log_pb2


class CallerClients:
    def __init__(self, access: ClusterAccess, settings: Settings, metrics: Metrics) -> None:
        timeout_s = settings.seconds(REQUEST_TIMEOUT_MS)
        self._access = access
        self._timeout_s = timeout_s
        self.cluster = Cluster(access, timeout_s=timeout_s)
        self.named = NamedProducers(
            self.cluster,
            metrics,
            max_names=settings.number(MAX_PRODUCER_NAMES),
            interval_s=settings.seconds(COMMIT_INTERVAL_MS),
        )
        self._writers: dict[int, Writer] = {}
        self.calls = 0  # that use these clients now

    def writer(self, acks: int) -> Writer:
        found = self._writers.get(acks)
        if found is None or found.is_broken:
            if found is not None:
                found.close()
            found = self._writers[acks] = Writer(self._access, acks or log_pb2.ACKS_ALL, self._timeout_s)
        return found

    async def close(self) -> None:
        await self.named.close()
        writers = list(self._writers.values())
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.join() for writer in writers))
        self.cluster.close()


class Clients:
    def __init__(self, access: ClusterAccess, settings: Settings, metrics: Metrics) -> None:
        self._access = access
        self._settings = settings
        self._metrics = metrics
        self._max = settings.number(MAX_PRINCIPALS)
        self._by_login: OrderedDict[Login | None, CallerClients] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def acquire(self, login: Login | None) -> CallerClients:
        """The clients of a caller, which do not close before `release`. Raises Refused if all places are in use."""
        found = self._by_login.get(login)
        if found is None:
            self._make_place()
            found = self._by_login[login] = CallerClients(self._access.as_caller(login), self._settings, self._metrics)
            self._metrics.cluster_clients.inc()
        self._by_login.move_to_end(login)
        found.calls += 1
        return found

    def release(self, clients: CallerClients) -> None:
        clients.calls -= 1

    def forget(self, clients: CallerClients) -> None:
        """The cluster does not know this login. It must not take the place of another one."""
        for login, found in self._by_login.items():
            if found is clients and login is not None and clients.calls <= 1:
                self._close(login)
                return

    def _close(self, login: Login | None) -> None:
        task = asyncio.create_task(self._by_login.pop(login).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._metrics.cluster_clients.dec()

    def _make_place(self) -> None:
        if len(self._by_login) < self._max:
            return
        idle = next((login for login, each in self._by_login.items() if not each.calls), NOT_FOUND)
        if isinstance(idle, _NotFound):
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._max} users have open calls (cluster.max.principals); try again later",
                retriable=True,
            )
        self._close(idle)

    async def close(self) -> None:
        closing = [asyncio.create_task(each.close()) for each in self._by_login.values()]
        self._metrics.cluster_clients.dec(len(self._by_login))
        self._by_login.clear()
        if closing or self._closing:
            await asyncio.wait([*closing, *self._closing])


class _NotFound:
    """No login; None is one."""


NOT_FOUND: Final = _NotFound()
