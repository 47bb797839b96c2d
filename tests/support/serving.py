"""A whole broker inside a test, and a client that sends one request at a time, in real frames over a real socket.

    @on_trio
    async def test_a_topic_that_was_created_is_there(tmp_path: Path) -> None:
        async with running_broker(tmp_path, num_partitions=3) as broker:
            response = await ask(broker, CreateTopicsRequest(topics=[...]), 7)

`num_partitions=3` is `num.partitions=3` of server.properties. The directory may be one that a broker has left: the next
broker finds the files of the last one. `ClientConnection` is a connection for several requests; `ask` opens one for one
request. For tests without trio there is `broker_in_thread`, and `Client`, which blocks.
"""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, ParamSpec

import trio

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.server import load
from trioka.cli.client import connection
from trioka.protocol.schema import Request
from trioka.storage.files.disk import Disk, OsDisk
from trioka.testing.nodes.loop import Loop

P = ParamSpec("P")

TIMEOUT_S = 60.0
CORRELATION_ID = 7
HOST = "127.0.0.1"
LISTENER = "PLAINTEXT"

# A port of 0 is any free port; the controller's listener receives no requests.
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"{LISTENER}://{HOST}:0,CONTROLLER://{HOST}:0",
    "controller.quorum.voters": f"1@{HOST}:9093",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def on_trio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Turns an async test into a function for pytest. It never hangs: it fails after TIMEOUT_S."""
    return _within(TIMEOUT_S, test)


def on_trio_patiently(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """The same for several brokers, which may have to wait for each other's time-outs on a machine that is busy."""
    return _within(4 * TIMEOUT_S, test)


def _within(timeout_s: float, test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        async def within_limits() -> None:
            with trio.fail_after(timeout_s):
                await test(*arguments, **keywords)

        trio.run(within_limits)

    return run


def new_broker(directory: Path | str, disk: Disk | None = None, **settings: object) -> Broker:
    static = {**SETTINGS, "log.dirs": str(directory)}
    static |= {key.replace("_", "."): str(value) for key, value in settings.items()}
    loaded = load(static)
    return Broker(loaded.config, loaded.node, disk=disk or OsDisk(), clock=SystemClock(), random=Random())


@asynccontextmanager
async def running_broker(directory: Path | str, disk: Disk | None = None, **settings: object) -> AsyncIterator[Broker]:
    """A running broker; at the end of the block it is stopped cleanly. An exception in the block is raised as it is,
    and not in a group."""
    broker = new_broker(directory, disk, **settings)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        try:
            yield broker
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


class ClientConnection:
    """One connection. Use it in an `async with`."""

    def __init__(self, broker: Broker, listener: str = LISTENER) -> None:
        self._address = {**broker.addresses, **broker.controller_addresses}[listener]
        self._stream: trio.SocketStream

    async def __aenter__(self) -> "ClientConnection":
        self._stream = await trio.open_tcp_stream(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def ask(self, request: Request, version: int) -> Any:
        await self.say(request, version)
        return await self.hear(request, version)

    async def say(self, request: Request, version: int) -> None:
        await self._stream.send_all(request_frame(request, version))

    async def hear(self, request: Request, version: int) -> Any:
        """The answer to a request that was sent; None if the broker closes the connection instead."""
        try:
            size = await self._receive(4)
            return read_answer(request, version, await self._receive(int.from_bytes(size)))
        except EOFError:
            return None

    async def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            more = await self._stream.receive_some(size - len(received))
            if not more:
                raise EOFError
            received += more
        return received


async def ask(broker: Broker, request: Request, version: int, listener: str = LISTENER) -> Any:
    """The answer; None if the broker hangs up."""
    async with ClientConnection(broker, listener) as connection:
        return await connection.ask(request, version)


def request_frame(request: Request, version: int) -> bytes:
    return connection.request_frame(request, version, CORRELATION_ID, "test")


def read_answer(request: Request, version: int, frame: bytes) -> Any:
    return connection.read_answer(request, version, frame, CORRELATION_ID)


class Client:
    """A connection that blocks: the command line's own."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = connection.Connection(host, port, timeout_s=TIMEOUT_S)
        self._connection.open()

    def ask(self, request: Request, version: int) -> Any:
        """The answer; None if the broker closes the connection. The next request then uses a new connection."""
        try:
            return self._connection.ask(request, version)
        except connection.ConnectionClosed:
            return None

    def close(self) -> None:
        self._connection.close()


@contextmanager
def broker_in_thread(directory: Path | str, disk: Disk | None = None, **settings: object) -> Iterator[Broker]:
    """A broker that serves in a thread of its own, for tests and clients that do not wait."""
    broker = new_broker(directory, disk, **settings)
    loop = Loop(broker.run, name="broker")
    loop.start()
    try:
        yield broker
    finally:
        loop.stop()
