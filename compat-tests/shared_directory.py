"""One data directory, in which Apache Kafka and trioka live by turns, each started with the same server.properties.

    home = SharedDirectory(tmp_path, voters=VOTERS_IN_THE_LOG)
    with home.kafka() as kafka: ...                # Apache Kafka, while the block lasts
    seen = home.trioka(lambda client: portrait(client))

The voters of the metadata quorum stand in one of two places: in the log, where `format --standalone` puts them
(kraft.version 1), or in the configuration (kraft.version 0). The second kind of directory is formatted for a release
of years ago, so that it also says whether records are written in the versions that its cluster works with.
"""

import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import trio
from oracle import SETTINGS, ApacheKafka, _free_ports, run_tool
from support.serving import HOST, LISTENER, TIMEOUT_S, Client

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.properties import parse_properties
from trioka.broker.config.server import load
from trioka.storage.files.disk import OsDisk

T = TypeVar("T")

VOTERS_IN_THE_LOG: Final = "voters in the log"
VOTERS_IN_THE_CONFIGURATION: Final = "voters in the configuration"
CLUSTER_ID: Final = "Kg1fYpNkQ1eYv2pH8xJrDw"
OLDER_RELEASE: Final = "3.5"

# Nothing happens by itself: no segment is too old, no cleaner comes.
QUIET: Final = {
    "log.retention.ms": -1,
    "log.roll.ms": 1 << 40,
    "log.index.interval.bytes": 128,
    "log.segment.delete.delay.ms": 0,
    "log.cleaner.backoff.ms": 100,
    "log.index.size.max.bytes": 4096,
}


class SharedDirectory:
    """Ports are chosen once: both programs listen where the other one did."""

    def __init__(self, parent: Path, voters: str, settings: Mapping[str, object] | None = None) -> None:
        self.path = parent / "data"
        self.voters = voters
        self._parent = parent
        self.port, self._controller_port = _free_ports(2)
        controller = f"{HOST}:{self._controller_port}"
        where = {
            VOTERS_IN_THE_LOG: {"controller.quorum.bootstrap.servers": controller},
            VOTERS_IN_THE_CONFIGURATION: {
                "controller.quorum.voters": f"1@{controller}",
                "controller.quorum.bootstrap.servers": "",
            },
        }
        self._settings = {
            **SETTINGS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            **QUIET,
            "listeners": f"{LISTENER}://{HOST}:{self.port},CONTROLLER://{controller}",
            "log.dirs": self.path,
            **where[voters],
            **(settings or {}),
        }
        self.properties = parent / "server.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))

    def format(self) -> None:
        """As a person would, with Kafka's tool."""
        how = {VOTERS_IN_THE_LOG: ["--standalone"], VOTERS_IN_THE_CONFIGURATION: ["--release-version", OLDER_RELEASE]}
        run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self.properties, *how[self.voters])

    @contextmanager
    def kafka(self) -> Iterator[ApacheKafka]:
        kafka = ApacheKafka(self._settings, data_dir=self.path, parent=self._parent)
        kafka.port, kafka._controller_port = self.port, self._controller_port
        with kafka:
            yield kafka

    @contextmanager
    def client(self) -> Iterator[Client]:
        with closing(Client(HOST, self.port)) as client:
            yield client

    def trioka(
        self,
        visit: Callable[[Client], T],
        *,
        then: Callable[[Broker], Awaitable[object]] | None = None,
        overrides: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> T:
        """Starts trioka on the directory, runs a client function against it, and stops it cleanly; before that, a
        command outside of the protocol may run. `overrides` are settings that replace those of the file."""
        loaded = load(parse_properties(self.properties.read_bytes()), overrides=overrides or {})
        broker = Broker(loaded.config, loaded.node, disk=OsDisk(), clock=SystemClock(), random=Random())

        def visited() -> T:
            with self.client() as client:
                return visit(client)

        async def live() -> T:
            with trio.fail_after(timeout_s):
                async with trio.open_nursery() as nursery:
                    await nursery.start(broker.run)
                    result = await trio.to_thread.run_sync(visited)
                    if then is not None:
                        await then(broker)
                    nursery.cancel_scope.cancel()
                return result

        return trio.run(live)

    def copied(self, name: str) -> Path:
        """The directory as it is now, beside itself."""
        return Path(shutil.copytree(self.path, self._parent / name))


async def take_snapshot(broker: Broker) -> None:
    assert await broker.quorum.take_snapshot() is not None
