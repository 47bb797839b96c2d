"""Three nodes of trioka, each a process, broker and controller; their voters are in the metadata log (kraft.version 1).

    with ThreeNodes.running(folder) as nodes:
        ...                      # any client, at nodes.bootstrap
        nodes.stop([3])          # cleanly
        nodes.start(3)           # the same data, the same addresses

It is what `trioka cluster up` starts, with other settings: patient ones, since the machine may have other things to do,
and such that a snapshot of the metadata is soon there, and a throttled copy gets stuck after its first fetch.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import SystemRandom
from typing import ClassVar

from support.command_line import command

from trioka.cli.client.connection import ReservedPort
from trioka.cli.cluster.local_cluster import HOST, LocalCluster, LocalNode
from trioka.cli.terminal.failure import Exit
from trioka.cluster.image.partition import random_uuid
from trioka.protocol.primitives import uuid_text

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
IDS = (1, 2, 3)
METADATA = "__cluster_metadata-0"
PATIENCE_S = 90.0
LOOK_S = 0.2
SNAPSHOT_BYTES = 4000
SETTINGS: dict[str, object] = {
    "broker.session.timeout.ms": 20_000,
    "controller.quorum.fetch.timeout.ms": 5000,
    "controller.quorum.request.timeout.ms": 5000,
    "metadata.log.max.record.bytes.between.snapshots": SNAPSHOT_BYTES,
    "replica.fetch.max.bytes": 4096,
    "auto.leader.rebalance.enable": "false",
}


class ThreeNodes(LocalCluster):
    settings: ClassVar[Mapping[str, object]] = SETTINGS

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Iterator["ThreeNodes"]:
        with ExitStack() as held:
            ports = [held.enter_context(closing(ReservedPort(HOST))).port for _ in range(2 * len(IDS))]
            made = cls(folder, [LocalNode(node, ports[node - 1], ports[len(IDS) + node - 1]) for node in IDS])
            made.format()
            try:
                made.start(*IDS)
                yield made
            finally:
                made.stop(IDS)

    def format(self) -> None:
        random = SystemRandom()
        voters = [
            f"{node.id}@{HOST}:{node.controller_port}:{uuid_text(random_uuid(random))}" for node in self.nodes.values()
        ]
        for node in self.nodes.values():
            properties = {
                **self._properties(node),
                **self.settings,
                "controller.quorum.bootstrap.servers": self.controllers,
            }
            del properties["controller.quorum.voters"]
            file = self.properties_of(node.id)
            file.parent.mkdir()
            file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            ended = command("storage", "format", "-t", CLUSTER_ID, "-c", str(file), "-I", ",".join(voters))
            assert ended.code == Exit.OK, ended

    def start(self, *nodes: int) -> None:
        """Returns when each knows all of them."""
        for node in nodes:
            self.spawn(node, dies_with_this=True)
        self.wait_ready(nodes)

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                text = "\n".join(self.log_tail(node) for node in IDS)
                raise AssertionError(f"it never came true that {what}\n{text}")
            time.sleep(LOOK_S)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{node.port}" for node in self.nodes.values())

    @property
    def controllers(self) -> str:
        return ",".join(f"{HOST}:{node.controller_port}" for node in self.nodes.values())

    def data_of(self, node: int) -> Path:
        return self.folder_of(node) / "data"

    def directory_id(self, node: int) -> str:
        lines = (self.data_of(node) / "meta.properties").read_text().splitlines()
        (found,) = [line.removeprefix("directory.id=") for line in lines if line.startswith("directory.id=")]
        return found
