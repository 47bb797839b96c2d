"""`trioka cluster under-replicated`: replicas of any Kafka cluster that are not in sync: lag, start and reason.

TOPIC   PART  LEADER  REPLICAS  ISR  MISSING  BEHIND         SINCE  WHY
orders  3     1       1,2,3     1,2  3        1.2 GB, 4m10s  6m     broker 3 is up, and catches up at 80.0 MB/s …

BEHIND is the lag of a replica: missing bytes, and the age of its first missing record; in a pipe, bytes and
milliseconds. Kafka does not record when a replica left the ISR. For a broker that is down, SINCE is its last fetch from
the metadata quorum; for a broker that is up, the age of the first missing record. If that is unknown too, SINCE is
empty. The catch-up rate needs a second sample (`--sample`), which is taken if a replica may catch up.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from trioka.protocol.errors import NONE
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest

from ..client.cluster_client import NO_NODE, Kafka, TopicPartition
from ..client.connection import ConnectionClosed
from ..client.offsets import LATEST, by_topic, written_at
from ..client.settings import Settings
from ..options import Duration, with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, is_terminal, show
from ..terminal.time_parsing import show_bytes, show_duration
from .health import brokers_of, missing_of, quorum_of, with_named_cluster

SAMPLE_MS: Final = 1000
DEBUGGING: Final = -2  # replica id of a ListOffsets request that any replica answers, not only the leader

COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("LEADER", "leader"),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("MISSING", "missing"),
    Column("BEHIND", "behind", "bytes"),
    Column("SINCE", "since_ms", "ms"),
    Column("WHY", "why"),
)

Sizes = Mapping[int, Mapping[TopicPartition, int]]  # replica sizes in bytes, by broker that answered


class Shortfall(NamedTuple):
    """The lag of one replica: bytes, the age of its first missing record, and the growth of both logs in bytes per
    second. None: unknown.
    """

    bytes: int | None = None
    age_ms: int | None = None
    gain: float | None = None


@click.command("under-replicated")
@click.option(
    "--sample",
    type=Duration(),
    default=SAMPLE_MS,
    metavar="TIME",
    help="take two samples with this interval if a replica may catch up; 0s: one sample; default 1s",
)
@with_output
@with_named_cluster
def under_replicated(settings: Settings, sample: int, output: str) -> int:
    """Partitions with replicas that are not in sync, and why. Exit code 10 if there are any."""
    with settings.kafka() as kafka:
        rows = _rows(kafka, sample)
    shown = [{**row, "behind": _behind(row)} for row in rows] if output in ("table", "wide") else rows
    show(shown, COLUMNS, output, name="topic")
    return Exit.UNHEALTHY if rows else Exit.OK


def _behind(row: Mapping[str, Any]) -> str | None:
    parts = [(row["behind"], show_bytes), (row["behind_ms"], show_duration)]
    known = [shown(value) if is_terminal() else str(value) for value, shown in parts if value is not None]
    return (", " if is_terminal() else ",").join(known) or None


def _rows(kafka: Kafka, sample_ms: int) -> list[dict[str, Any]]:
    alive = {each.id for each in brokers_of(kafka) if not each.is_fenced}
    found = [
        (TopicPartition(topic.name or "", each.partition_index), each)
        for topic in sorted(kafka.cluster().topics, key=lambda topic: topic.name or "")
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        if missing_of(each)
    ]
    catching_up = {node: [place for place, each in found if node in missing_of(each)] for node in sorted(alive)}
    requested = sorted(
        {each.leader_id for _, each in found} & alive | {node for node, places in catching_up.items() if places}
    )
    before, looked = _sizes(kafka, requested), time.monotonic()
    ends = {node: ends_of(kafka, node, places) for node, places in catching_up.items() if places}
    ages = _ages(kafka, ends)
    now, seconds = before, 0.0
    if sample_ms and ends:
        time.sleep(sample_ms / 1000)
        now, seconds = _sizes(kafka, requested), time.monotonic() - looked
    last_heard = _last_heard(kafka) if found else {}
    rows = []
    for place, each in found:
        missing = missing_of(each)
        lacks = {
            node: shortfall_of(before, now, seconds, each.leader_id, node, place, ages.get((node, place)))
            for node in missing
            if node in alive
        }
        left = [one.bytes for one in lacks.values() if one.bytes is not None]
        age = [one.age_ms for one in lacks.values() if one.age_ms is not None]
        since = [*age, *(last_heard[node] for node in missing if node not in alive and node in last_heard)]
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "leader": None if each.leader_id == NO_NODE else each.leader_id,
                "replicas": each.replica_nodes,
                "isr": each.isr_nodes,
                "missing": missing,
                "behind": max(left, default=None),
                "behind_ms": max(age, default=None),
                "since_ms": max(since, default=None),
                "why": "; ".join(explain_shortfall(node, lacks.get(node)) for node in missing),
            }
        )
    return rows


def shortfall_of(
    before: Sizes, now: Sizes, seconds: float, leader: int, node: int, place: TopicPartition, age_ms: int | None
) -> Shortfall:
    """The shortfall of one replica, from one sample or two."""

    def left(sizes: Sizes) -> int | None:
        whole = sizes.get(leader, {}).get(place)
        return None if whole is None or node not in sizes else max(0, whole - sizes[node].get(place, 0))

    then, last = left(before), left(now)
    gain = None if seconds <= 0 or then is None or last is None else (then - last) / seconds
    return Shortfall(last, 0 if age_ms is None and last == 0 else age_ms, gain)


def explain_shortfall(node: int, found: Shortfall | None) -> str:
    """The reason for an operator why a broker has under-replicated partitions."""
    if found is None:
        return f"broker {node} is down"
    if found.bytes == 0:
        return f"broker {node} is up, and has all: it joins in a moment"
    if found.gain is None:
        return f"broker {node} is up, and catches up"
    if found.gain <= 0:
        return f"broker {node} is up, and does not catch up: more comes than it copies"
    assert found.bytes is not None
    left = show_duration(max(1000, round(1000 * found.bytes / found.gain)))
    return f"broker {node} is up, and catches up at {show_bytes(round(found.gain))}/s → in sync in ~{left}"


def _sizes(kafka: Kafka, nodes: Iterable[int]) -> Sizes:
    found = {}
    requested = list(nodes)
    for number, node in enumerate(requested):
        try:
            with kafka.budget.share(len(requested) - number + 1):
                response = kafka.ask_node(node, DescribeLogDirsRequest(topics=None))
        except (Failure, ConnectionClosed):
            continue
        found[node] = {
            TopicPartition(topic.name, each.partition_index): int(each.partition_size)
            for result in response.results
            for topic in result.topics
            for each in topic.partitions
            if not each.is_future_key
        }
    return found


def ends_of(kafka: Kafka, node: int, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The log end offsets of a follower, as it reports them itself."""
    Topic = ListOffsetsRequest.Topic
    topics = [
        Topic(name=name, partitions=[Topic.Partition(partition_index=index, timestamp=LATEST) for index in indexes])
        for name, indexes in by_topic(places)
    ]
    request = ListOffsetsRequest(replica_id=DEBUGGING, topics=topics, timeout_ms=kafka.timeout_ms)
    try:
        with kafka.budget.share(2):  # leave time for the other nodes
            answer = kafka.ask_node(node, request)
    except (Failure, ConnectionClosed):
        return {}
    return {
        TopicPartition(topic.name, response.partition_index): response.offset
        for topic in answer.topics
        for response in topic.partitions
        if response.error_code == NONE
    }


def _ages(kafka: Kafka, ends: Mapping[int, Mapping[TopicPartition, int]]) -> dict[tuple[int, TopicPartition], int]:
    """By broker and partition: the age of the first record that the broker lacks."""
    now_ms = int(time.time() * 1000)
    found = {}
    for node, places in ends.items():
        for place, written in written_at(kafka, places).items():
            found[node, place] = max(0, now_ms - written)
    return found


def _last_heard(kafka: Kafka) -> dict[int, int]:
    """The time since each node's last fetch from the quorum's leader, in milliseconds."""
    try:
        quorum = quorum_of(kafka)
    except Failure:
        return {}
    rows = [] if quorum is None else quorum.rows
    return {row["node"]: row["last_fetch_ms"] for row in rows if row["last_fetch_ms"] is not None}
