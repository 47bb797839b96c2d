"""A controller of Apache Kafka and two of ours are one quorum, whoever of them leads, with a broker of ours before it.

What one writes the others read: they vote for each other, follow each other, and no topic is lost when the leader
stops or is killed. A leader that stops names its successors, those with the smallest number first if all know the same,
so that the Kafka, number 1, has its turn. Where the controllers' listeners are secured, each logs in to the others, or
presents its certificate.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jars
import pytest
from java import java
from oracle import _free_ports, die_with_parent
from support.certificates import authority, signed
from support.serving import Client

from trioka.protocol.errors import InvalidUpdateVersion
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.sasl.jaas import PLAIN_MODULE
from trioka.protocol.schema import Request

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
KAFKA, OURS, BROKER = 1, (2, 3), 4
PATIENCE_S = 120.0
LOOK_S = 0.3
ROUNDS = 8
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TRIOKA = (sys.executable, "-m", "trioka")


SECURITY = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")  # of the controllers' listeners
NODE, PASSWORD = "node", "node-s3cret"


def secured(protocol: str, folder: Path) -> dict[str, object]:
    """All nodes prove who they are at the controllers' listeners, as super users; clients of the broker need not."""
    if protocol == "PLAINTEXT":
        return {}
    found: dict[str, object] = {"authorizer.class.name": AUTHORIZER}
    if protocol == "SASL_PLAINTEXT":
        jaas = f'{PLAIN_MODULE} required username="{NODE}" password="{PASSWORD}" user_{NODE}="{PASSWORD}";'
        return found | {
            "super.users": f"User:{NODE};User:ANONYMOUS",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": jaas,
        }
    trusted = authority()
    trust_store = folder / "trusted.pem"
    trust_store.write_text(trusted.chain_pem)
    return found | {
        "super.users": f"User:CN={NODE};User:ANONYMOUS",
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust_store,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": signed(trusted, f"CN={NODE}").write(folder / "node.pem"),
    }


class MixedQuorum:
    def __init__(self, folder: Path, protocol: str = "PLAINTEXT") -> None:
        security = secured(protocol, folder)
        self._folder = folder
        self._ports = dict(zip((KAFKA, *OURS, BROKER), _free_ports(4), strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        voters = ",".join(f"{node}@127.0.0.1:{self._ports[node]}" for node in (KAFKA, *OURS))
        for node, port in self._ports.items():
            is_broker = node == BROKER
            listener = "PLAINTEXT" if is_broker else "CONTROLLER"
            settings = {
                "process.roles": "broker" if is_broker else "controller",
                "node.id": node,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": f"CONTROLLER:{protocol},PLAINTEXT:PLAINTEXT",
                "listeners": f"{listener}://127.0.0.1:{port}",
                "controller.quorum.voters": voters,
                "log.dirs": folder / str(node),
                **security,
            }
            self._properties(node).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            self.trioka("storage", "format", "-t", CLUSTER_ID, "-c", str(self._properties(node)))

    def _properties(self, node: int) -> Path:
        return self._folder / f"{node}.properties"

    def log(self, node: int) -> str:
        return (self._folder / f"{node}.log").read_text(errors="replace")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports[BROKER]}"

    def start(self, *nodes: int) -> None:
        for node in nodes:
            command: list[Any] = [*TRIOKA, "serve", self._properties(node)]
            if node == KAFKA:
                command = [java(), "-Xmx256m", "-cp", jars.class_path(), "kafka.Kafka", self._properties(node)]
            with (self._folder / f"{node}.log").open("ab") as log:
                self._processes[node] = subprocess.Popen(
                    command, stdout=log, stderr=log, cwd=self._folder, preexec_fn=die_with_parent()
                )

    def end(self, node: int, *, by_force: bool) -> None:
        process = self._processes.pop(node)
        if by_force:
            process.kill()
        else:
            process.terminate()
        process.wait(PATIENCE_S)

    def end_all(self) -> None:
        for node in list(self._processes):
            self.end(node, by_force=True)

    def trioka(self, *arguments: str) -> str:
        done = subprocess.run([*TRIOKA, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return done.stdout if done.returncode == 0 else ""

    def state(self) -> list[dict[str, Any]]:
        result = self.trioka("cluster", "quorum", "-o", "json", "-b", self.bootstrap)
        return json.loads(result) if result else []

    def leader(self) -> int | None:
        return next((row["node"] for row in self.state() if row["role"] == "leader"), None)

    def has_caught_up(self) -> bool:
        """All four have fetched what there is."""
        state = self.state()
        return len(state) == len(self._ports) and all(row["lag"] == 0 for row in state)

    def ask(self, request: Request, version: int) -> Any:
        with closing(Client("127.0.0.1", self._ports[BROKER])) as client:
            return client.ask(request, version)

    def directories(self) -> dict[int, bytes]:
        """Of the voters, as the leader knows them."""
        requested = DescribeQuorumRequest.Topic.Partition(partition_index=0)
        topic = DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=[requested])
        response = self.ask(DescribeQuorumRequest(topics=[topic]), 2)
        return {
            voter.replica_id: voter.replica_directory_id for voter in response.topics[0].partitions[0].current_voters
        }

    def let_lead(self, is_wanted: Callable[[int], bool]) -> int:
        """Leaders are stopped and started again, until one of these leads."""
        for _ in range(ROUNDS):
            self.until(self.leader, "somebody leads")
            self.until(self.has_caught_up, "all follow")
            leader = self.leader()
            assert leader is not None
            if is_wanted(leader):
                return leader
            self.end(leader, by_force=leader == KAFKA)
            self.until(lambda gone=leader: self.leader() not in (None, gone), "another leads")  # type: ignore[misc]
            self.start(leader)
        raise AssertionError("those who were wanted have never led")

    def create(self, topic: str) -> None:
        self.trioka("topics", "create", topic, "-b", self.bootstrap)
        self.until(lambda: topic in self.topics(), f"{topic} is there")

    def topics(self) -> set[str]:
        return set(self.trioka("topics", "list", "-o", "name", "-b", self.bootstrap).split())

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                text = "\n".join(f"== {node}\n{self.log(node)[-2000:]}" for node in self._ports)
                raise AssertionError(f"it never came true that {what}; {self.state()}\n{text}")
            time.sleep(LOOK_S)


@pytest.fixture
def quorum(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MixedQuorum]:
    mixed = MixedQuorum(tmp_path, getattr(request, "param", "PLAINTEXT"))
    try:
        yield mixed
    finally:
        mixed.end_all()


@pytest.mark.parametrize("quorum", SECURITY, indirect=True)
def test_kafkas_controllers_and_ours_lead_and_follow_each_other(quorum: MixedQuorum) -> None:
    quorum.start(KAFKA, *OURS, BROKER)
    quorum.until(quorum.leader, "somebody leads")
    led: set[str] = set()
    made: set[str] = set()
    for number in range(ROUNDS):
        quorum.until(quorum.has_caught_up, "all follow")
        leader = quorum.leader()
        assert leader is not None
        led.add("kafka" if leader == KAFKA else "ours")
        quorum.create(f"t{number}")
        made.add(f"t{number}")
        if led == {"kafka", "ours"}:
            break
        quorum.end(leader, by_force=leader == KAFKA)
        quorum.until(lambda gone=leader: quorum.leader() not in (None, gone), "another leads")  # type: ignore[misc]
        assert made <= quorum.topics()
        quorum.start(leader)
    assert led == {"kafka", "ours"}
    assert made <= quorum.topics()


@pytest.mark.parametrize("raised_by", ["ours", pytest.param("kafka", marks=pytest.mark.nightly)])
def test_a_quorum_of_both_is_raised_whoever_leads(quorum: MixedQuorum, raised_by: str) -> None:
    """From voters of the configuration to voters of the log: each tells the leader about itself, of either kind."""
    quorum.start(KAFKA, *OURS, BROKER)
    quorum.let_lead(lambda node: (node == KAFKA) is (raised_by == "kafka"))
    quorum.create("before")
    assert set(quorum.directories().values()) == {NULL_UUID}
    update = UpdateFeaturesRequest.FeatureUpdate(feature="kraft.version", max_version_level=1, upgrade_type=1)
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=False)
    quorum.until(lambda: quorum.ask(request, 1).error_code == 0, "all voters have introduced themselves")
    quorum.until(lambda: NULL_UUID not in quorum.directories().values(), "the log names the voters")
    assert sorted(quorum.directories()) == [KAFKA, *OURS]
    update = UpdateFeaturesRequest.FeatureUpdate(feature="kraft.version", max_version_level=0, upgrade_type=2)
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=False)
    assert quorum.ask(request, 1).error_code == InvalidUpdateVersion.code
    quorum.let_lead(lambda node: (node == KAFKA) is not (raised_by == "kafka"))
    quorum.create("after")
    assert {"before", "after"} <= quorum.topics()
    assert sorted(quorum.directories()) == [KAFKA, *OURS]
