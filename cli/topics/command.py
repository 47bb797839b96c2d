"""`trioka topics`: list, describe, create, alter; delete and trim are in `topics/deletion.py`."""

import time
from typing import Any, Final

import click

from trioka.protocol.errors import NONE, TopicAlreadyExists
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.metadata import MetadataResponse
from trioka.protocol.primitives import NULL_UUID, uuid_text

from .. import problems
from ..client.cluster_client import NO_NODE, Kafka, TopicPartition
from ..client.offsets import EARLIEST, LATEST, list_offsets
from ..command_group import group
from ..configs import DYNAMIC_TOPIC, TOPIC, Change, alter_configs, described, unknown_keys
from ..options import exit_code_of, pairs, with_kafka, with_name_arguments, with_output
from ..terminal.failure import Failure
from ..terminal.output import Column, Row, show, write_stderr, write_stdout
from .deletion import delete, trim

BROKER_DEFAULT: Final = -1
APPLY_TIMEOUT_S: Final = 5.0  # a created topic reaches the metadata of every broker almost at once
LOOK_AGAIN_S: Final = 0.02

LIST_COLUMNS: Final = (
    Column("NAME", "name"),
    Column("PARTITIONS", "partitions"),
    Column("REPLICAS", "replicas"),
    Column("UNDER-REPLICATED", "under_replicated", wide=True),
    Column("INTERNAL", "internal", wide=True),
    Column("ID", "id", wide=True),
)
PARTITION_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("LEADER", "leader"),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("OFFLINE", "offline", wide=True),
    Column("EPOCH", "leader_epoch", wide=True),
    Column("START", "start", wide=True),
    Column("END", "end", wide=True),
)
SUMMARY_COLUMNS: Final = (
    Column("NAME", "name"),
    Column("PARTITIONS", "partition_count"),
    Column("REPLICAS", "replicas"),
    Column("ID", "id", wide=True),
    Column("CONFIG", "configs"),
)

topics = group("topics", "Topics of any Kafka.", ls="list", desc="describe", rm="delete")
topics.add_command(delete)
topics.add_command(trim)


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="without Kafka's own topics")
@click.option("--under-replicated-partitions", is_flag=True, help="only topics that have such partitions")
@with_output
@with_kafka
def list_topics(kafka: Kafka, output: str, exclude_internal: bool, under_replicated_partitions: bool) -> None:
    """The topics, by name."""
    rows = []
    for topic in kafka.topics(()):
        behind = sum(_is_under_replicated(partition) for partition in topic.partitions)
        if (exclude_internal and topic.is_internal) or (under_replicated_partitions and not behind):
            continue
        rows.append({**_summary(topic), "partitions": len(topic.partitions), "under_replicated": behind})
    show(rows, LIST_COLUMNS, output)


@topics.command("describe")
@with_name_arguments("topic", required=False)
@click.option("--under-replicated-partitions", is_flag=True, help="only partitions with replicas that are not in sync")
@click.option("--unavailable-partitions", is_flag=True, help="only partitions without a leader")
@with_output
@with_kafka
def describe(
    kafka: Kafka, output: str, names: tuple[str, ...], under_replicated_partitions: bool, unavailable_partitions: bool
) -> None:
    """Partitions, replicas and what is configured. All topics, if none is named."""
    found = kafka.topics(names)
    is_filtered = under_replicated_partitions or unavailable_partitions
    rows: dict[str, list[dict[str, Any]]] = {}
    for topic in found:
        rows[topic.name or ""] = [
            _partition_row(topic.name or "", partition)
            for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
            if (not under_replicated_partitions or _is_under_replicated(partition))
            and (not unavailable_partitions or partition.leader_id == NO_NODE)
        ]
    partitions = [row for each in rows.values() for row in each]
    if output == "wide" or output in ("json", "yaml"):
        _add_offsets(kafka, partitions)
    if output in ("csv", "name") or is_filtered:
        show(partitions, PARTITION_COLUMNS, output, name="topic")
        return
    configured = _configs(kafka, list(rows))
    summaries: list[Row] = [
        {**_summary(topic), "partition_count": len(topic.partitions), "configs": configured[topic.name or ""]}
        for topic in found
    ]
    if output in ("json", "yaml"):
        show([{**summary, "partitions": rows[summary["name"]]} for summary in summaries], (), output)
        return
    show(summaries, SUMMARY_COLUMNS, output)
    if partitions:
        write_stdout("")
        show(partitions, PARTITION_COLUMNS, output)


@topics.command("create")
@with_name_arguments("topic")
@click.option("--partitions", type=int, default=BROKER_DEFAULT, metavar="N", help="default: the broker's setting")
@click.option(
    "--replication-factor", type=int, default=BROKER_DEFAULT, metavar="N", help="default: the broker's setting"
)
@click.option("--config", "-c", "config", multiple=True, metavar="KEY=VALUE")
@click.option("--if-not-exists", is_flag=True, help="a topic that exists already is no error")
@click.option("--dry-run", is_flag=True, help="only check whether it could be created")
@with_kafka
def create(
    kafka: Kafka,
    names: tuple[str, ...],
    partitions: int,
    replication_factor: int,
    config: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Creates topics."""
    Topic = CreateTopicsRequest.Topic
    configs = [Topic.Config(name=key, value=value) for key, value in pairs(config, "-c").items()]
    wanted = [
        Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=configs,
        )
        for name in names
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=kafka.timeout_ms, validate_only=dry_run)
    answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.topics])
    failures = []
    for result in answer.topics:
        if result.error_code == TopicAlreadyExists.code and if_not_exists:
            write_stderr(f"topic '{result.name}' exists already")
        elif result.error_code != NONE:
            what = f"topic '{result.name}' was not created"
            hints = unknown_keys(TOPIC, [each.name for each in configs])
            failures.append(problems.from_error_code(result.error_code, what, result.error_message, hints))
        elif not dry_run:
            _wait_until_applied(kafka, result.name)
            write_stderr(f"created topic '{result.name}' with {result.num_partitions} partitions")
        else:
            write_stderr(f"topic '{result.name}' could be created")
    return exit_code_of(failures, len(names))


@topics.command("alter")
@with_name_arguments("topic")
@click.option("--partitions", type=int, metavar="N", help="the new number; it can only grow")
@click.option("--config", "-c", "config", multiple=True, metavar="KEY=VALUE")
@click.option("--delete-config", multiple=True, metavar="KEY", help="reset to the broker's default")
@with_kafka
def alter(
    kafka: Kafka,
    names: tuple[str, ...],
    partitions: int | None,
    config: tuple[str, ...],
    delete_config: tuple[str, ...],
) -> int:
    """Adds partitions, sets or deletes configuration."""
    changes = [Change(key, value) for key, value in pairs(config, "-c").items()]
    changes += [Change(key, None) for key in delete_config]
    if partitions is None and not changes:
        raise click.UsageError("give a change: --partitions, -c KEY=VALUE or --delete-config KEY.")
    kafka.topics(names)
    failures: list[Failure] = []
    if partitions is not None:
        wanted = [CreatePartitionsRequest.Topic(name=name, count=partitions, assignments=None) for name in names]
        request = CreatePartitionsRequest(topics=wanted, timeout_ms=kafka.timeout_ms, validate_only=False)
        for result in kafka.ask_controller(
            request, lambda result: [each.error_code for each in result.results]
        ).results:
            if result.error_code != NONE:
                what = f"topic '{result.name}' keeps its partitions"
                failures.append(problems.from_error_code(result.error_code, what, result.error_message))
            else:
                _wait_until_applied(kafka, result.name, partitions)
                write_stderr(f"topic '{result.name}' has {partitions} partitions")
    if changes:
        failures += [failure for name in names if (failure := alter_configs(kafka, TOPIC, name, changes)) is not None]
    return exit_code_of(failures, len(names) * ((partitions is not None) + bool(changes)))


def create_topic(kafka: Kafka, name: str, partitions: int) -> None:
    """Create one topic, for a command that needs its own."""
    wanted = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=BROKER_DEFAULT, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=kafka.timeout_ms)
    answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.topics])
    for result in answer.topics:
        if result.error_code != NONE:
            raise problems.from_error_code(result.error_code, f"topic '{name}' was not created", result.error_message)
    _wait_until_applied(kafka, name, partitions)


def _wait_until_applied(kafka: Kafka, name: str, partitions: int = 1) -> None:
    """Wait until all brokers apply a change: Kafka confirms it earlier, and the next request should see it."""
    deadline = time.monotonic() + APPLY_TIMEOUT_S
    while time.monotonic() < deadline:
        (topic,) = kafka.metadata([name]).topics
        if topic.error_code == NONE and len(topic.partitions) >= partitions:
            return
        time.sleep(LOOK_AGAIN_S)


def _summary(topic: MetadataResponse.Topic) -> dict[str, Any]:
    factors = {len(partition.replica_nodes) for partition in topic.partitions}
    return {
        "name": topic.name,
        "id": uuid_text(topic.topic_id) if topic.topic_id != NULL_UUID else None,
        "internal": topic.is_internal,
        "replicas": max(factors, default=0),
    }


def _partition_row(name: str, partition: MetadataResponse.Topic.Partition) -> dict[str, Any]:
    return {
        "topic": name,
        "partition": partition.partition_index,
        "leader": None if partition.leader_id == NO_NODE else partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replica_nodes,
        "isr": partition.isr_nodes,
        "offline": partition.offline_replicas,
    }


def _add_offsets(kafka: Kafka, rows: list[dict[str, Any]]) -> None:
    places = [TopicPartition(row["topic"], row["partition"]) for row in rows]
    for key, moment in (("start", EARLIEST), ("end", LATEST)):
        found = list_offsets(kafka, dict.fromkeys(places, moment))
        for row, place in zip(rows, places, strict=True):
            row[key] = found[place].offset if found[place].error == NONE else None


def _configs(kafka: Kafka, names: list[str]) -> dict[str, dict[str, str | None]]:
    return {
        name: {entry.name: entry.value for entry in entries if entry.config_source == DYNAMIC_TOPIC}
        for name, entries in described(kafka, TOPIC, names).items()
    }


def _is_under_replicated(partition: MetadataResponse.Topic.Partition) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)
