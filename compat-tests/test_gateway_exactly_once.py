"""Exactly once through two gateways that are killed, judged by Kafka's own consumer with read_committed.

Both write every sequence of one producer name, so that the name moves between them all the time, in front of trioka and
of Apache Kafka.
"""

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
import toolchains
from broker_under_test import Node, start_kafka, start_trioka

from trioka.gateway.v1 import admin_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.pipeline.installation.cache import Unavailable

sys.path.insert(0, "tests")
from support.gateway import GatewayUnderTest
from support.named_client import NamedClient

TIMEOUT_S = 120


def seen_by_java(node: Node, topic: str) -> list[int]:
    try:
        program = toolchains.java_client("Consume")
    except Unavailable as missing:
        toolchains.unavailable(missing)
    words = [*program, node.bootstrap, "read_committed", topic]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return [int(bytes.fromhex(json.loads(line)["value"])) for line in done.stdout.splitlines()]


def write(node: Node, topic: str, *, count: int, kills: int, seed: int) -> None:
    """Each client kills the other's gateway behind answers that the seed chooses, with a request on its way there."""
    failures: list[BaseException] = []
    words = ("--override", "cluster.request.timeout.ms=10000")
    with GatewayUnderTest(node.bootstrap, *words) as one, GatewayUnderTest(node.bootstrap, *words) as other:
        with grpc.insecure_channel(one.grpc) as channel:
            request = admin_pb2.CreateTopicRequest(topic=topic, partitions=1)
            AdminServiceStub(channel).CreateTopic(request, timeout=TIMEOUT_S)

        def run(own: GatewayUnderTest, victim: GatewayUnderTest, chance: random.Random) -> None:
            chosen = set(chance.sample(range(1, count - 1), kills // 2))

            def answered(sequence: int) -> None:
                if sequence in chosen:
                    victim.kill()
                    victim.start()

            try:
                NamedClient(topic, f"{topic}-name", count, answered).one_by_one(own.grpc, threading.Event())
            except BaseException as error:
                failures.append(error)

        both = ((one, other, random.Random(seed)), (other, one, random.Random(seed + 1)))
        threads = [threading.Thread(target=run, args=each) for each in both]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not failures


@pytest.mark.parametrize(
    ("broker", "count", "kills"),
    [
        pytest.param("trioka", 30, 2),
        pytest.param("trioka", 1000, 30, marks=pytest.mark.nightly),
        pytest.param("kafka", 1000, 30, marks=pytest.mark.nightly),
    ],
)
def test_each_sequence_is_seen_once_by_a_java_consumer_of_committed_records(
    request: pytest.FixtureRequest, tmp_path: Path, broker: str, count: int, kills: int
) -> None:
    if broker == "kafka":
        request.getfixturevalue("apache_kafka")
    with {"trioka": start_trioka, "kafka": start_kafka}[broker](tmp_path) as node:
        write(node, "once", count=count, kills=kills, seed=11)
        assert seen_by_java(node, "once") == list(range(count))
