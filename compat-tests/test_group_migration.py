"""Groups of Java consumers are rolled from the classic protocol to the new one and back while they read; all is read.

The consumers are replaced one by one, without waiting for anything but that each has something to read.
"""

import json

import pytest
from broker_under_test import Node
from oracle import run_program, run_tool

pytest_plugins = ["broker_under_test"]
pytestmark = pytest.mark.usefixtures("apache_kafka")

EAGER = "org.apache.kafka.clients.consumer.RangeAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
ROUNDS = ("classic", "consumer", "classic")


def test_a_rollout_there_and_back_loses_nothing(node: Node, topic: str) -> None:
    tool = "org.apache.kafka.tools.TopicCommand"
    run_tool(tool, "--bootstrap-server", node.bootstrap, "--create", "--topic", topic, "--partitions", "6")
    text = [json.loads(line) for line in _rolled(node, topic)]
    for assignor in (EAGER, COOPERATIVE):
        *reached, end = [line for line in text if line["assignor"] == assignor]
        assert [(line["protocol"], line["type"].lower(), line["members"]) for line in reached] == [
            (protocol, protocol, 2) for protocol in ROUNDS
        ]
        assert end["written"] == end["seen"] > 0


def _rolled(node: Node, topic: str) -> list[str]:
    return run_program("Rollout", node.bootstrap, topic, f"{EAGER},{COOPERATIVE}", *ROUNDS).splitlines()
