"""Kafka's own tools with --command-config, over SASL_SSL, against three nodes of trioka with secured listeners only:
nodes log in to each other by SCRAM and to controllers by PLAIN, and an authorizer is on.

An administrator is a super user there. A client with few rights is refused what it may not do, by every node.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chaos.nodes import NUMBERS, Nodes
from chaos.security import ADMIN, LOAD, SASL_SSL
from clients.kafka_tools import KafkaTools
from oracle import run_tool
from toolchains import unavailable

from trioka.cli.client.connection import ReservedPort
from trioka.cli.client.login import Login
from trioka.cli.terminal.failure import Failure
from trioka.pipeline.installation.cache import Unavailable
from trioka.protocol.errors import TopicAuthorizationFailed
from trioka.protocol.messages.metadata import MetadataRequest

HOST = "127.0.0.1"
PATIENCE_S = 120.0
LOOK_S = 0.2
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
HMAC = re.compile(r"^(\S{22})\s+(\S{86}==)\s", re.MULTILINE)


class Loopback:
    """The network of nodes that are not cut off."""

    name = "loopback"
    cuts_clients = False
    hosts: Sequence[str] = (HOST,)

    def __init__(self) -> None:
        self._reserved: dict[tuple[int, str], ReservedPort] = {}

    def bound(self, node: int, listener: str) -> str:
        place = node, listener
        if place not in self._reserved:
            self._reserved[place] = ReservedPort(HOST)
        return f"{HOST}:{self._reserved[place].port}"

    advertised = bound

    def enter(self, node: int) -> list[str]:
        return []

    def cut(self, cuts: object) -> None:
        raise NotImplementedError("this network has no cuts")

    def heal(self) -> None: ...

    def close(self) -> None:
        for each in self._reserved.values():
            each.close()


def until(condition: Callable[[], object], what: str, nodes: Nodes) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        nodes.check()
        assert time.monotonic() < deadline, f"it never came true that {what}: {[nodes.log_tail(n) for n in NUMBERS]}"
        time.sleep(LOOK_S)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, apache_kafka: None) -> Iterator[Nodes]:
    network = Loopback()
    with Nodes(tmp_path_factory.mktemp("nodes"), network, has_mounts=False, security=SASL_SSL) as running:
        running.start()
        until(lambda: not running.trouble(), "the cluster is whole", running)
        yield running
    network.close()


@pytest.fixture(scope="module")
def tools(nodes: Nodes) -> Iterator[KafkaTools]:
    try:
        tools = KafkaTools(nodes.servers)
    except Unavailable as missing:
        unavailable(missing)
    yield tools
    tools.close()


def config(nodes: Nodes, user: str) -> tuple[str, str]:
    path = nodes.folder / f"{user}.properties"
    lines = [f"{key}={value}" for key, value in nodes.security.java(user).items()]
    path.write_text("\n".join(lines) + "\n")
    return "--command-config", str(path)


def test_topics_and_configurations_are_administered(tools: KafkaTools, nodes: Nodes) -> None:
    admin = config(nodes, ADMIN)
    made = tools("topics", *admin, "--create", "--topic", "t", "--partitions", "3", "--replication-factor", "3")
    assert made == "Created topic t.\n"
    assert "t" in tools("topics", *admin, "--list").splitlines()
    tools("configs", *admin, "--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "flush.ms=7")
    result = tools("configs", *admin, "--describe", "--entity-type", "topics", "--entity-name", "t")
    assert "flush.ms=7" in result
    tools(
        "configs",
        *admin,
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-name",
        "2",
        "--add-config",
        "background.threads=11",
    )
    result = tools("configs", *admin, "--describe", "--entity-type", "brokers", "--entity-name", "2")
    assert "background.threads=11" in result and "s3cret" not in result


def test_partitions_move_and_leaders_are_elected(tools: KafkaTools, nodes: Nodes, tmp_path: Path) -> None:
    admin = config(nodes, ADMIN)
    tools("topics", *admin, "--create", "--topic", "moved-by-tool", "--replica-assignment", "1:2")
    plan = tmp_path / "plan.json"
    rows = [{"topic": "moved-by-tool", "partition": 0, "replicas": [3, 1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    file = ("--reassignment-json-file", str(plan))
    tools("reassign-partitions", *admin, "--execute", *file)
    done = "Reassignment of partition moved-by-tool-0 is completed.\n"
    until(lambda: done in tools("reassign-partitions", *admin, "--verify", *file), "it has moved", nodes)
    elect = ("--election-type", "preferred", "--topic", "moved-by-tool", "--partition", "0")
    tools("leader-election", *admin, *elect)
    assert "Leader: 3" in tools("topics", *admin, "--describe", "--topic", "moved-by-tool")


def test_the_quorum_is_described_by_brokers_and_by_controllers(tools: KafkaTools, nodes: Nodes) -> None:
    result = tools("metadata-quorum", *config(nodes, ADMIN), "describe", "--status")
    assert all(f'"id": {node},' in result for node in NUMBERS)
    controllers = ",".join(nodes.network.advertised(node, "CONTROLLER") for node in NUMBERS)
    at = ("--bootstrap-controller", controllers)
    result = tools("metadata-quorum", *at, *config(nodes, "node"), "describe", "--replication")
    assert len(result.splitlines()) == 1 + len(NUMBERS)


def test_rules_are_seen_by_every_node(tools: KafkaTools, nodes: Nodes) -> None:
    admin, load = config(nodes, ADMIN), config(nodes, LOAD)
    tools("topics", *admin, "--create", "--topic", "ruled", "--partitions", "1", "--replication-factor", "3")
    ended = tools.end_of("topics", *load, "--create", "--topic", "not-allowed")
    assert ended.status == 1 and "TopicAuthorizationException" in ended.err
    assert {code(nodes, node) for node in NUMBERS} == {TopicAuthorizationFailed.code}
    rule = ("--allow-principal", f"User:{LOAD}", "--operation", "Describe", "--topic", "ruled")
    assert "ALLOW" in tools("acls", *admin, "--add", *rule)
    until(lambda: {code(nodes, node) for node in NUMBERS} == {0}, "all let it", nodes)
    tools("acls", *admin, "--remove", "--force", *rule)
    until(lambda: {code(nodes, node) for node in NUMBERS} == {TopicAuthorizationFailed.code}, "none lets it", nodes)


def code(nodes: Nodes, node: int) -> int:
    """What a node tells a client of the topic."""
    connection = nodes.access(LOAD).connection(nodes.network.advertised(node, "CLIENT"), timeout_s=PATIENCE_S)
    try:
        topics = [MetadataRequest.Topic(name="ruled")]
        (result,) = connection.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False)).topics
        return int(result.error_code)
    finally:
        connection.close()


def test_a_token_that_any_node_makes_logs_in_at_all(tools: KafkaTools, nodes: Nodes) -> None:
    for node in NUMBERS:
        address = nodes.network.advertised(node, "CLIENT")
        options = ("--bootstrap-server", address, *config(nodes, ADMIN))
        result = run_tool(TOKENS, *options, "--create", "--max-life-time-period", "-1", merged=True)
        (token,) = HMAC.findall(result)
        for other in NUMBERS:
            until(lambda at=other, known=token: is_let_in(nodes, at, *known), f"{other} knows it", nodes)  # type: ignore[misc]
        assert not is_let_in(nodes, node, token[0], token[1][::-1])


def is_let_in(nodes: Nodes, node: int, token_id: str, hmac: str) -> Any:
    login = Login(mechanism="SCRAM-SHA-512", username=token_id, password=hmac, is_token=True)
    access = nodes.access(ADMIN)._replace(login=login)
    connection = access.connection(nodes.network.advertised(node, "CLIENT"), timeout_s=PATIENCE_S)
    try:
        connection.open()
        return True
    except Failure:
        return False
    finally:
        connection.close()
