"""`consume -g`: members share partitions, commit what they print, and go on after a change of the group."""

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import pytest
from kafka import KafkaConsumer
from mutants.plant import assert_noticed
from support.command_line import command

from trioka.cli.client import classic_protocol, group_member
from trioka.cli.client.cluster_client import TopicPartition
from trioka.cli.client.settings import Settings, parse_servers
from trioka.cli.terminal.failure import Exit
from trioka.cli.topics.group_reader import GroupReader
from trioka.testing import Broker, Cluster

TOPIC: Final = "orders"
MAX_ROUNDS: Final = 500
WAIT_S: Final = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC, 4)
        yield broker


def fill(broker: Broker, count: int, first: int = 0) -> None:
    for partition in range(4):
        broker.produce(TOPIC, *[b"%d" % number for number in range(first, first + count)], partition=partition)


def member_of(broker: Broker, group: str = "g", **more: Any) -> GroupReader:
    settings = Settings(parse_servers(broker.bootstrap_servers), {}, 30.0)
    return GroupReader(settings, group, [TOPIC], **{"from_end": False, "is_committed": False, **more})


def read(reader: GroupReader, count: int) -> list[tuple[int, int]]:
    """So many records, each batch of them committed."""
    found: list[tuple[int, int]] = []
    for _ in range(MAX_ROUNDS):
        records = reader.poll(min(50, count - len(found)))
        found += [(each.partition, each.offset) for each in records]
        reader.commit()
        if len(found) >= count:
            return found
    raise AssertionError(f"only {len(found)} records of {count}")


def test_each_record_is_printed_once_though_the_command_is_run_again(broker: Broker) -> None:
    fill(broker, 10)
    first = command("consume", TOPIC, "-g", "g", "-n", "13", "-f", "%p %o\\n", at=broker.bootstrap_servers)
    second = command("consume", TOPIC, "-g", "g", "-e", "-f", "%p %o\\n", at=broker.bootstrap_servers)
    assert first.code == second.code == Exit.OK
    lines = first.out.splitlines() + second.out.splitlines()
    assert sorted(lines) == sorted(f"{partition} {offset}" for partition in range(4) for offset in range(10))
    assert command("consume", TOPIC, "-g", "g", "-e", at=broker.bootstrap_servers).out == ""


def test_a_group_that_begins_at_the_end_reads_what_comes_after_its_first_read(broker: Broker) -> None:
    fill(broker, 10)
    assert command("consume", TOPIC, "-g", "g", "-e", "-o", "end", at=broker.bootstrap_servers).out == ""


def test_a_member_that_leaves_hands_its_partitions_over(broker: Broker) -> None:
    fill(broker, 20)
    first, second = member_of(broker), member_of(broker)
    assert len(read(first, 30)) == 30
    first.close()
    rest = read(second, 50)
    second.close()
    assert {partition for partition, _ in rest} >= {2, 3}
    assert sum(broker.committed("g").values()) == 80


def test_a_restart_of_the_coordinator_ends_no_member(broker: Broker) -> None:
    fill(broker, 20)
    reader = member_of(broker)
    found = read(reader, 33)
    broker.restart()
    fill(broker, 5, first=20)
    found += read(reader, 67)
    reader.close()
    assert sorted(set(found)) == [(partition, offset) for partition in range(4) for offset in range(25)]
    assert len(found) == 100


@pytest.mark.nightly
def test_a_coordinator_that_is_killed_costs_no_record_and_repeats_none() -> None:
    with Cluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, 4)
        for partition in range(4):
            cluster.produce(TOPIC, *[b"%d" % number for number in range(50)], partition=partition)
        settings = Settings(parse_servers(cluster.address(1)), {}, 60.0)
        with settings.kafka() as kafka:
            coordinator = kafka.coordinator("g")
        # The only bootstrap server is the one that dies.
        only = settings._replace(bootstrap=parse_servers(cluster.address(coordinator)))
        reader = GroupReader(only, "g", [TOPIC], from_end=False, is_committed=False)
        found = read(reader, 60)
        cluster.kill(coordinator)
        found += read(reader, 140)
        reader.close()
        assert sorted(found) == [(partition, offset) for partition in range(4) for offset in range(50)]


def test_another_client_takes_part_in_the_same_group(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of kafka-python joins, so that partitions move."""
    monkeypatch.setattr(group_member, "HEARTBEAT_S", 0.05)  # it notices the other member sooner
    fill(broker, 20)
    ours = member_of(broker)
    found = read(ours, 10)
    theirs: list[tuple[int, int]] = []
    is_over = threading.Event()

    def take_part() -> None:
        other = KafkaConsumer(
            TOPIC, bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        )
        while not is_over.is_set():
            for records in other.poll(50).values():
                theirs.extend((each.partition, each.offset) for each in records)
        other.close()

    thread = threading.Thread(target=take_part)
    thread.start()
    try:
        count = 20
        for _ in range(MAX_ROUNDS):
            if not theirs:  # more comes until the other member has read something
                fill(broker, 1)
                count += 1
            found += [(each.partition, each.offset) for each in ours.poll(50)]
            ours.commit()
            if theirs and len({*found, *theirs}) == 4 * count:
                break
    finally:
        is_over.set()
        ours.close()
        thread.join(WAIT_S)
    assert {*found, *theirs} == {(partition, offset) for partition in range(4) for offset in range(count)}
    assert len(found) == len(set(found))


def test_ctrl_c_leaves_the_group_and_commits(broker: Broker) -> None:
    fill(broker, 10)
    flags = ["-m", "trioka", "consume", TOPIC, "-g", "g", "-b", broker.bootstrap_servers]
    with subprocess.Popen([sys.executable, *flags], stdout=subprocess.PIPE) as process:
        broker.wait_group("g", lag=0, topic=TOPIC)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == Exit.INTERRUPTED
        assert process.stdout is not None and len(process.stdout.read().split()) == 40
    described = command("groups", "describe", "g", "-o", "json", at=broker.bootstrap_servers)
    assert described.code == Exit.OK
    assert all(row.get("member") in (None, "", "-") for row in described.rows)


# -- the range assignor ------------------------------------------------------------------------------------------------


@pytest.fixture
def module() -> ModuleType:
    return classic_protocol


def test_ranges_are_those_of_kafka(module: ModuleType) -> None:
    assert module.assign_ranges({"b": ["t"], "a": ["t"], "c": ["u"]}, {"t": 5, "u": 1}) == {
        "a": [TopicPartition("t", index) for index in (0, 1, 2)],
        "b": [TopicPartition("t", index) for index in (3, 4)],
        "c": [TopicPartition("u", 0)],
    }
    chance = random.Random(3)
    for _ in range(50):
        counts = {name: chance.randrange(0, 9) for name in "tuv"}
        members = {f"m{index}": chance.sample("tuv", chance.randrange(1, 4)) for index in range(chance.randrange(1, 6))}
        found = module.assign_ranges(members, counts)
        read_topics = {topic for topics in members.values() for topic in topics}
        places = [place for part in found.values() for place in part]
        assert sorted(places) == [(topic, index) for topic in sorted(read_topics) for index in range(counts[topic])]
        assert all(place.topic in members[member] for member, part in found.items() for place in part)


def test_messages_of_members_are_read_back(module: ModuleType) -> None:
    places = [TopicPartition("t", 3), TopicPartition("t", 1), TopicPartition("u", 0)]
    assert module.read_assignment(module.write_assignment(places)) == places
    assert module.read_assignment(b"") == []
    assert module.read_subscription(module.write_subscription(["t", "u"])) == ["t", "u"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("number < count % len(readers)", "False"),
        ("begin = end", "pass"),
        ("topic in topics", "True"),
        ("sorted((member for member, topics in members.items() if topic in topics))",
         "[member for member, topics in members.items() if topic in topics]"),
    ],
)  # fmt: skip
def test_a_planted_mistake_is_noticed(right: str, wrong: str) -> None:
    assert_noticed(classic_protocol, right, wrong, test_ranges_are_those_of_kafka)
