"""A replica moves from one log directory to another: Apache Kafka and trioka, each with two, asked the same; and
Kafka's own tools, which move a replica of trioka's.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from judged import SETTINGS
from oracle import ApacheKafka, run_tool
from side_by_side import PATIENCE_S, POLL_S, Side, SideBySide
from support.serving import LISTENER, broker_in_thread

from trioka.protocol.batch import build
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

BROKER, SET, DELETE = 4, 0, 1
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BATCHES = 6
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


class Copy(NamedTuple):
    path: str
    is_future: bool
    size: int
    lag: int


@pytest.fixture(scope="module")
def sides(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    folder = tmp_path_factory.mktemp("two-disks")
    common = {key.replace("_", "."): value for key, value in SETTINGS.items()}
    with (
        ApacheKafka({**common, "log.dirs": f"{folder}/kafka-1,{folder}/kafka-2"}) as kafka,
        broker_in_thread(f"{folder}/trioka-1,{folder}/trioka-2", None, **SETTINGS) as broker,
    ):
        sides = SideBySide(
            Side("Apache Kafka", kafka.port, kafka.cluster_id),
            Side("trioka", broker.addresses[LISTENER][1], broker.cluster_id),
        )
        try:
            yield sides
        finally:
            sides.kafka.client.close()
            sides.trioka.client.close()


def copies(side: Side, topic: str) -> list[Copy]:
    """Where its partition is, and where it goes; what stays before what comes."""
    requested = DescribeLogDirsRequest(topics=[DescribeLogDirsRequest.Topic(topic=topic, partitions=[0])])
    found = [
        Copy(result.log_dir, partition.is_future_key, partition.partition_size, partition.offset_lag)
        for result in side.ask(requested, 4).results
        for each in result.topics
        for partition in each.partitions
    ]
    return sorted(found, key=lambda copy: copy.is_future)


def home(side: Side, topic: str) -> str:
    return copies(side, topic)[0].path


def other(path: str) -> str:
    return path[:-1] + ("2" if path.endswith("1") else "1")


def moving(*wanted: tuple[str, list[tuple[str, list[int]]]]) -> AlterReplicaLogDirsRequest:
    place = AlterReplicaLogDirsRequest.Dir
    return AlterReplicaLogDirsRequest(
        dirs=[
            place(path=path, topics=[place.Topic(name=name, partitions=indexes) for name, indexes in topics])
            for path, topics in wanted
        ]
    )


def away(topic: str, *indexes: int) -> Callable[[Side], AlterReplicaLogDirsRequest]:
    return lambda side: moving((other(home(side, topic)), [(topic, list(indexes))]))


def fill(side: Side, topic: str) -> None:
    for number in range(BATCHES):
        batch = build([Record(0, 1_700_000_000_000 + number, b"%d" % number, b"x" * 500_000)])
        data = ProduceRequest.Topic.Partition(index=0, records=bytes(batch))
        requested = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[data])]
        )
        assert side.ask(requested, 9).responses[0].partition_responses[0].error_code == 0


def contents(side: Side, topic: str) -> bytes:
    """All bytes of the partition, as they are sent."""
    found = b""
    for offset in range(BATCHES):
        partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        requested = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic=topic, partitions=[partition])]
        )
        (response,) = side.ask(requested, 11).responses[0].partitions
        assert response.error_code == 0
        found += bytes(response.records)
    return found


def limit(side: Side, rate: int | None) -> None:
    resource = IncrementalAlterConfigsRequest.Resource
    change = resource.Config(
        name=RATE,
        config_operation=DELETE if rate is None else SET,
        value=None if rate is None else str(rate),
    )
    requested = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=BROKER, resource_name="", configs=[change])], validate_only=False
    )
    assert side.ask(requested, 1).responses[0].error_code == 0


def wait_until_at(side: Side, topic: str, path: str) -> None:
    """Returns when its partition is there, and nowhere else, by what is told and by what is on the disk."""
    deadline = time.monotonic() + PATIENCE_S
    while [copy.path for copy in copies(side, topic)] != [path] or f"{topic}-0" in entries(other(path), topic):
        assert time.monotonic() < deadline, f"{side.name}: {copies(side, topic)}"
        time.sleep(POLL_S)


def entries(path: str, topic: str) -> list[str]:
    names = sorted(each.name for each in Path(path).iterdir() if each.name.startswith(f"{topic}-"))
    return [re.sub(r"\.[0-9a-f]{32}-", ".<unique>-", name) for name in names]


def test_a_move_is_begun_described_repeated_and_called_off(sides: SideBySide) -> None:
    sides.create_topic("slow")
    both = (sides.kafka, sides.trioka)
    for side in both:
        fill(side, "slow")
        limit(side, 1)
    time.sleep(0.5)  # Apache Kafka answers before its broker has heard of the limit
    homes = {side: home(side, "slow") for side in both}
    for version in (1, 2, 2):
        sides.same(away("slow", 0, 7), version, order={"results.partitions": "partition_index"})
    for side in both:
        now, then = copies(side, "slow")
        assert (now.path, now.is_future, now.lag) == (homes[side], False, 0)
        assert (then.path, then.is_future) == (other(homes[side]), True)
        assert 0 < then.lag <= BATCHES
        assert entries(then.path, "slow") == ["slow-0.<unique>-future"]
    assert copies(sides.kafka, "slow")[0].size == copies(sides.trioka, "slow")[0].size
    sides.same(lambda side: moving((homes[side], [("slow", [0])])), 2)
    for side in both:
        wait_until_at(side, "slow", homes[side])
        limit(side, None)


def test_a_replica_moves_with_all_that_it_holds(sides: SideBySide) -> None:
    sides.create_topic("orders")
    before = {}
    for side in (sides.kafka, sides.trioka):
        fill(side, "orders")
        before[side] = (home(side, "orders"), contents(side, "orders"))
    sides.same(away("orders", 0), 2)
    for side, (path, held) in before.items():
        wait_until_at(side, "orders", other(path))
        assert entries(path, "orders") == ["orders-0.<unique>-delete"]
        assert entries(other(path), "orders") == ["orders-0"]
        assert contents(side, "orders") == held
    assert [copy[1:] for copy in copies(sides.kafka, "orders")] == [copy[1:] for copy in copies(sides.trioka, "orders")]


def test_what_cannot_move_is_refused_beside_what_can(sides: SideBySide) -> None:
    sides.create_topic("some", 1)

    def several(side: Side) -> AlterReplicaLogDirsRequest:
        there = other(home(side, "some"))
        return moving((there, [("some", [0, 1, -1]), ("nobody", [0])]), ("/nowhere", [("some", [2])]))

    for version in (1, 2):
        there = {side: other(home(side, "some")) for side in (sides.kafka, sides.trioka)}
        sides.same(several, version, order={"results": "topic_name", "results.partitions": "partition_index"})
        for side, path in there.items():
            wait_until_at(side, "some", path)


def test_kafka_s_tools_move_a_replica(sides: SideBySide, tmp_path: Path) -> None:
    side = sides.trioka
    side.create_topic("tooled")
    fill(side, "tooled")
    there, held = other(home(side, "tooled")), contents(side, "tooled")
    row = {"topic": "tooled", "partition": 0, "replicas": [1], "log_dirs": [there]}
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"version": 1, "partitions": [row]}))
    server = ("--bootstrap-server", f"127.0.0.1:{side.port}")
    text = run_tool(REASSIGN, *server, "--execute", "--reassignment-json-file", script)
    assert f"Successfully started moving log directory to {there} for replica tooled-0 with broker 1" in text
    wait_until_at(side, "tooled", there)
    text = run_tool(REASSIGN, *server, "--verify", "--reassignment-json-file", script)
    assert "Reassignment of replica tooled-0-1 completed successfully.\n" in text
    described = json.loads(run_tool(LOG_DIRS, *server, "--describe", "--topic-list", "tooled").splitlines()[-1])
    found = {each["logDir"]: each["partitions"] for each in described["brokers"][0]["logDirs"]}
    assert [each["partition"] for each in found[there]] == ["tooled-0"] and found[other(there)] == []
    assert contents(side, "tooled") == held
