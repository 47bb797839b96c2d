"""Kafka's ConsumerGroupCommand (kafka-consumer-groups.sh) says of our groups what it says of Apache Kafka's.

The same steps are gone with both brokers, on the same topics, offsets and members; then the two transcripts are
compared, step by step. What differs from run to run is blotted out: the ids that members are given, and the broker's
address and number.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from clients.client import Record
from clients.confluent import Confluent
from clients.kafka_tools import Ended, KafkaTools
from confluent_kafka import Consumer, TopicPartition
from oracle import ApacheKafka
from trioka_process import TriokaProcess

pytestmark = pytest.mark.usefixtures("apache_kafka")

HOUR_MS = 3_600_000
FIRST_MS = int(time.time()) * 1000 - 10 * HOUR_MS  # an hour lies between a record and the next
RECORDS = {("fruit", 0): 10, ("fruit", 1): 6, ("veg", 0): 3}
COMMITTED = {("fruit", 0): 3, ("fruit", 1): 2, ("veg", 0): 1}
PATIENCE_SECONDS = 60
GENERATED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[\w+/-]{22}(?=\s)")
ADDRESS = re.compile(r"(localhost|127\.0\.0\.1):\d+\s+\(\d+\)")

FIFTH = datetime.fromtimestamp((FIRST_MS + 5 * HOUR_MS) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000+00:00")
PLANS = {
    "to the earliest": ("--to-earliest",),
    "to the latest": ("--to-latest",),
    "to an offset": ("--to-offset", "4"),
    "to an offset that is behind an end": ("--to-offset", "8"),
    "forward": ("--shift-by", "2"),
    "back": ("--shift-by", "-2"),
    "further than the end": ("--shift-by", "100"),
    "to the current": ("--to-current",),
    "by a long duration": ("--by-duration", "P1D"),
    "by a duration": ("--by-duration", "PT4H30M"),
    "by a short duration": ("--by-duration", "PT1S"),
    "to a time": ("--to-datetime", FIFTH),
}
DESCRIBED: dict[str, tuple[str, ...]] = {
    "offsets": (),
    "offsets in full": ("--offsets", "--verbose"),
    "members": ("--members",),
    "members in full": ("--members", "--verbose"),
    "state": ("--state",),
    "state in full": ("--state", "--verbose"),
}
LISTED: dict[str, tuple[str, ...]] = {
    "groups": (),
    "states": ("--state",),
    "types": ("--type",),
    "both": ("--state", "--type"),
    "of a state": ("--state", "Empty"),
    "of two states": ("--state", "stable,empty"),
    "of a type": ("--type", "consumer"),
    "of the other type": ("--type", "classic"),
}


class Transcript:
    """What the tool said at each step."""

    def __init__(self, bootstrap: str, folder: Path, *, is_late: bool) -> None:
        self.steps: dict[str, Ended] = {}
        self._bootstrap = bootstrap
        self._folder = folder
        self._tools = KafkaTools(bootstrap, is_late=is_late)

    def write(self) -> "Transcript":
        try:
            furnish(self._bootstrap)
            with member(self._bootstrap, "busy", "classic"), member(self._bootstrap, "modern", "consumer"):
                self._while_there_are_members()
            self._reset()
            self._reset_by_file()
            self._remove()
        finally:
            self._tools.close()
        return self

    def _say(self, step: str, *arguments: str) -> str:
        ended = self._tools.end_of("consumer-groups", *arguments)
        self.steps[step] = Ended(ended.status, blotted(ended.out), blotted(ended.err))
        return ended.out

    def _while_there_are_members(self) -> None:
        for group in ("busy", "modern", "idle", "nobody"):
            for what, options in DESCRIBED.items():
                self._say(f"describe {group}: {what}", "--describe", "--group", group, *options)
        self._say("describe all", "--describe", "--all-groups")
        for what, options in LISTED.items():
            self._say(f"list {what}", "--list", *options)
        for group in ("busy", "modern"):
            reset = ("--reset-offsets", "--group", group, "--topic", "fruit", "--to-earliest", "--execute")
            self._say(f"reset {group}, which has members", *reset)
            self._say(f"delete {group}, which has members", "--delete", "--group", group)
            self._say(f"delete {group}'s offsets", "--delete-offsets", "--group", group, "--topic", "fruit")

    def _reset(self) -> None:
        everything = ("--reset-offsets", "--group", "idle", "--all-topics")
        for what, plan in PLANS.items():
            self._say(f"plan {what}", *everything, *plan, "--dry-run")
        self._say("plan by default", *everything, "--to-latest")
        self._say("export", *everything, "--shift-by", "1", "--export")
        self._say("describe idle after plans", "--describe", "--group", "idle")
        for what, plan in PLANS.items():
            self._say(f"reset {what}", *everything, *plan, "--execute")
            self._say(f"describe after reset {what}", "--describe", "--group", "idle")
        for what, topics in {
            "a partition": ("--topic", "fruit:1"),
            "a topic": ("--topic", "veg"),
            "two of them": ("--topic", "fruit:0,1", "--topic", "veg"),
            "no such topic": ("--topic", "nothing"),
            "no such partition": ("--topic", "fruit:7"),
        }.items():
            self._say(f"reset {what}", "--reset-offsets", "--group", "idle", *topics, "--to-offset", "2", "--execute")
        fresh = ("--reset-offsets", "--group", "fresh", "--topic", "fruit", "--to-latest")
        self._say("reset a group that is not there", *fresh, "--execute")
        self._say("describe the group that was not there", "--describe", "--group", "fresh")

    def _reset_by_file(self) -> None:
        plan = self._folder / "plan.csv"
        exported = self._say(
            "export to a file", "--reset-offsets", "--group", "idle", "--all-topics", "--to-earliest", "--export"
        )
        plan.write_text(exported)
        for what, options in {"plan": ("--dry-run",), "reset": ("--execute",)}.items():
            for groups in (("--group", "idle"), ("--all-groups",)):
                named = f"{what} by file, {groups[0]}"
                self._say(named, "--reset-offsets", *groups, "--from-file", str(plan), *options)
        self._say("describe after reset by file", "--describe", "--group", "idle")

    def _remove(self) -> None:
        for what, arguments in {
            "a partition": ("--group", "idle", "--topic", "fruit:1"),
            "a topic": ("--group", "idle", "--topic", "veg"),
            "no such topic": ("--group", "idle", "--topic", "nothing"),
            "no such partition": ("--group", "idle", "--topic", "fruit:7"),
            "no such group": ("--group", "nobody", "--topic", "fruit"),
        }.items():
            self._say(f"delete the offsets of {what}", "--delete-offsets", *arguments)
            self._say(f"describe without the offsets of {what}", "--describe", "--group", "idle")
        self._say("delete a group", "--delete", "--group", "idle")
        self._say("delete two, one of which is not there", "--delete", "--group", "fresh", "--group", "nobody")
        self._say("delete all", "--delete", "--all-groups")
        self._say("list what is left", "--list")


def blotted(said: str) -> str:
    """Without what differs from run to run; a column is as wide as its longest word."""
    said = re.sub(r"pid=\d+|rdkafka-\S+(?= )", "…", GENERATED.sub("…", ADDRESS.sub("BROKER", said)))
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in said.splitlines())


def furnish(bootstrap: str) -> None:
    """Topics, records, and a group that has committed and has no members."""
    client = Confluent(bootstrap)
    for topic in ("fruit", "veg"):
        client.create_topic(topic, partitions=sum(name == topic for name, _ in RECORDS))
    until(lambda: {"fruit", "veg"} <= client.topics())
    for (topic, partition), count in RECORDS.items():
        records = [Record(value=b"v", timestamp=FIRST_MS + n * HOUR_MS, partition=partition) for n in range(count)]
        client.produce(topic, records)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "idle", "enable.auto.commit": False})
    commit(consumer, COMMITTED)
    consumer.close()
    client.close()


@contextmanager
def member(bootstrap: str, group: str, protocol: str) -> Iterator[None]:
    """One that has all of a topic, and has committed some of it."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "worker",
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["fruit"])
        until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2)
        commit(consumer, {("fruit", 0): 7})
        yield
    finally:
        consumer.close()


def commit(consumer: Consumer, offsets: dict[tuple[str, int], int]) -> None:
    places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Ended], dict[str, Ended]]:
    """Ours and Kafka's."""
    folder = tmp_path_factory.mktemp("transcripts")
    with TriokaProcess(folder) as broker:
        ours = Transcript(broker.bootstrap, folder, is_late=False).write()
    with ApacheKafka(parent=folder) as kafka:
        theirs = Transcript(kafka.bootstrap, folder, is_late=True).write()
    return ours.steps, theirs.steps


def test_the_tool_says_the_same_of_both_brokers(transcripts: tuple[dict[str, Ended], dict[str, Ended]]) -> None:
    ours, theirs = transcripts
    assert ours.keys() == theirs.keys()
    differing = [step for step in ours if ours[step] != theirs[step]]
    assert not differing, "\n\n".join(f"{step}\nours: {ours[step]}\nKafka's: {theirs[step]}" for step in differing)


def test_the_tool_understands_what_it_is_told(transcripts: tuple[dict[str, Ended], dict[str, Ended]]) -> None:
    """Two brokers of which it says the same nonsense would be equal, too."""
    ours, _ = transcripts
    assert re.search(r"^busy +fruit +0 +7 +10 +3 ", ours["describe busy: offsets"].out, re.MULTILINE)
    assert re.search(r"^modern .*Stable", ours["describe modern: state"].out, re.MULTILINE)
    assert re.search(r"^idle +fruit +0 +5$", ours["reset to a time"].out, re.MULTILINE)
    assert ours["list what is left"].out == ""
