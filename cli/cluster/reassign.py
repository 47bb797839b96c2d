"""`trioka cluster drain`, `reassign`, `elect-leaders`: move replicas and leadership, on any Kafka.

A command shows a plan first, and executes it after confirmation. Kafka copies in the background; the command waits for
the end unless an option says otherwise. The file format of a plan is that of `kafka-reassign-partitions.sh`.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from trioka.protocol.errors import NONE, ElectionNotNeeded
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

from .. import problems
from ..client.cluster_client import Kafka, TopicPartition
from ..client.settings import Settings
from ..options import Duration, confirmed, exit_code_of, with_execute_option, with_name_arguments, with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr, write_stdout
from ..terminal.progress import Progress
from .health import with_cluster
from .reassignment_plan import Placement, balanced, drained
from .throttling import OFF, ByteRate, clear_throttle, set_throttle, throttle_of

LOOK_S: Final = 0.2
WAIT_MS: Final = 10 * 60 * 1000
MAX_PLAN_BYTES: Final = 64 << 20
PREFERRED, UNCLEAN = 0, 1

R = TypeVar("R")

PLAN_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("FROM", "before"),
    Column("TO", "after"),
)
ELECTED_COLUMNS: Final = (Column("TOPIC", "topic"), Column("PART", "partition"), Column("LEADER", "leader"))


class ReassignOptions(NamedTuple):
    """How a plan is executed: whether at all, how long to wait for its end, and its throttle in bytes per second."""

    execute: bool
    wait: int
    throttle: int | None


def with_reassignment_options(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the options that `ReassignOptions` is made of."""
    wait = click.option(
        "--wait",
        type=Duration(),
        default=WAIT_MS,
        metavar="TIME",
        help="how long to wait until it has ended; 0s: do not wait",
    )
    throttle = click.option(
        "--throttle", type=ByteRate(), metavar="RATE", help="limit in bytes per second, such as 50MB"
    )
    return with_execute_option(wait(throttle(function)))


@click.command("drain")
@click.argument("broker", type=int, metavar="BROKER")
@with_reassignment_options
@with_output
@with_cluster
def drain(settings: Settings, broker: int, output: str, **how: Any) -> int:
    """Moves everything that a broker has to the others. What no other can take stays, and is led by another."""
    with settings.kafka() as kafka:
        racks = _racks(kafka)
        placement = _placement(kafka)
        if broker not in racks and not any(broker in replicas for replicas in placement.values()):
            raise Failure(f"there is no broker {broker}", exit_code=Exit.NOT_FOUND)
        plan = drained(placement, racks, broker)
        code = _apply(kafka, placement, plan, ReassignOptions(**how), output, f"Drain broker {broker}?")
        staying = [place for place, replicas in {**placement, **plan}.items() if broker in replicas]
        if staying and code == Exit.OK:
            write_stderr(
                f"{len(staying)} partitions keep a replica on broker {broker}: no other broker is left to take it"
            )
        return code


@click.command("reassign")
@click.option("--auto", is_flag=True, help="spread replicas and leaders evenly over the brokers")
@click.option("--plan", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@with_reassignment_options
@with_output
@with_cluster
def reassign(settings: Settings, auto: bool, file: Path | None, output: str, **how: Any) -> int:
    """Moves replicas: by a plan of Kafka's own form, or so that all brokers carry the same. Without either, `--throttle
    off` takes away what is left of an earlier throttle."""
    moving = ReassignOptions(**how)
    is_only_unthrottled = not auto and file is None and moving.throttle == OFF
    if auto == (file is not None) and not is_only_unthrottled:
        raise click.UsageError("give --auto or --plan FILE.")
    with settings.kafka() as kafka:
        placement = _placement(kafka)
        if is_only_unthrottled:
            return _unthrottle(kafka)
        plan = balanced(placement, _racks(kafka)) if file is None else _read_plan(file, placement)
        return _apply(kafka, placement, plan, moving, output, "Move them?")


@click.command("elect-leaders")
@with_name_arguments("topic", required=False)
@click.option(
    "--unclean",
    is_flag=True,
    help="elect any live replica, even if records are lost; only for partitions without a leader",
)
@with_output
@with_cluster
def elect_leaders(settings: Settings, names: tuple[str, ...], unclean: bool, output: str) -> int:
    """The first replicas lead again, as they do after some minutes by themselves."""
    with settings.kafka() as kafka:
        found = kafka.topics(names)
        requested = [
            ElectLeadersRequest.TopicPartition(
                topic=topic.name or "", partitions=[each.partition_index for each in topic.partitions]
            )
            for topic in found
        ]
        failures, elected = _elect(kafka, requested, UNCLEAN if unclean else PREFERRED)
        kafka.forget()
        leaders = {
            TopicPartition(topic.name or "", each.partition_index): each.leader_id
            for topic in kafka.cluster().topics
            for each in topic.partitions
        }
    rows = [{"topic": p.topic, "partition": p.partition, "leader": leaders.get(p)} for p in elected]
    show(rows, ELECTED_COLUMNS, output, name="topic")
    return exit_code_of(failures, len(failures) + len(elected))


def _elect(
    kafka: Kafka, requested: list[ElectLeadersRequest.TopicPartition], kind: int
) -> tuple[list[Failure], list[TopicPartition]]:
    request = ElectLeadersRequest(election_type=kind, topic_partitions=requested, timeout_ms=kafka.timeout_ms)
    result = kafka.ask_controller(request, lambda result: [result.error_code])
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, "no leader was elected")
    failures, elected = [], []
    for topic in result.replica_election_results:
        for each in topic.partition_result:
            place = TopicPartition(topic.topic, each.partition_id)
            if each.error_code == NONE:
                elected.append(place)
            elif each.error_code != ElectionNotNeeded.code:
                failures.append(
                    problems.from_error_code(
                        each.error_code,
                        f"partition {place.partition} of '{place.topic}' has no new leader",
                        each.error_message,
                    )
                )
    return failures, elected


# -- plans -------------------------------------------------------------------------------------------------------------


def _placement(kafka: Kafka) -> Placement:
    return {
        TopicPartition(topic.name or "", each.partition_index): tuple(each.replica_nodes)
        for topic in kafka.cluster().topics
        for each in topic.partitions
    }


def _racks(kafka: Kafka) -> dict[int, str | None]:
    return {broker.node_id: broker.rack for broker in kafka.cluster().brokers}


def _read_plan(file: Path, placement: Mapping[TopicPartition, Any]) -> Placement:
    """{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}"""
    try:
        with file.open("rb") as opened:
            result = json.loads(opened.read(MAX_PLAN_BYTES))
        plan = {
            TopicPartition(str(each["topic"]), int(each["partition"])): tuple(map(int, each["replicas"]))
            for each in result["partitions"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{file} is no plan: {error}"
        hints = ['one looks so: {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}']
        raise Failure(what, exit_code=Exit.USAGE, hints=hints) from None
    for place in plan:
        if place not in placement:
            raise Failure(f"{file} names {place}, which does not exist", exit_code=Exit.NOT_FOUND)
    return {place: replicas for place, replicas in plan.items() if replicas != placement[place]}


def _apply(
    kafka: Kafka, placement: Placement, plan: Placement, moving: ReassignOptions, output: str, question: str
) -> int:
    rows = [
        {"topic": place.topic, "partition": place.partition, "before": placement[place], "after": replicas}
        for place, replicas in sorted(plan.items())
    ]
    show(rows, PLAN_COLUMNS, output, name="topic")
    if not plan:
        write_stderr("nothing has to move")
        return Exit.OK
    if not confirmed(moving.execute, question):
        return Exit.OK
    is_throttled = moving.throttle is not None and moving.throttle != OFF
    throttle = throttle_of(placement, plan)
    if is_throttled:
        set_throttle(kafka, throttle, moving.throttle or 0)
    failures = _begin(kafka, plan)
    begun = len(plan) - len(failures)
    if is_throttled and begun and not moving.wait:
        write_stderr("the throttle stays; when all have moved: trioka cluster reassign --throttle off")
    elif is_throttled and not begun:
        failures += clear_throttle(kafka, throttle.brokers, throttle.topics)
    if begun and moving.wait:
        _wait(kafka, plan, moving.wait, is_throttled)
        if moving.throttle is not None:
            failures += clear_throttle(kafka, throttle.brokers, throttle.topics)
        # Where only the order of replicas has changed, nothing was copied, and the leader has not changed.
        turned: dict[str, list[int]] = {}
        for place, replicas in plan.items():
            if replicas[0] != placement[place][0]:
                turned.setdefault(place.topic, []).append(place.partition)
        if turned:
            requested = [
                ElectLeadersRequest.TopicPartition(topic=name, partitions=found) for name, found in turned.items()
            ]
            failures += _elect(kafka, requested, PREFERRED)[0]
    return exit_code_of(failures, len(plan))


def _begin(kafka: Kafka, plan: Placement) -> list[Failure]:
    wanted = AlterPartitionReassignmentsRequest.Topic
    topics: dict[str, list[AlterPartitionReassignmentsRequest.Topic.Partition]] = {}
    for place, replicas in sorted(plan.items()):
        moved = wanted.Partition(partition_index=place.partition, replicas=list(replicas))
        topics.setdefault(place.topic, []).append(moved)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=kafka.timeout_ms,
        topics=[wanted(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    result = kafka.ask_controller(request, lambda result: [result.error_code])
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, "nothing was moved", result.error_message)
    return [
        problems.from_error_code(
            each.error_code, f"partition {each.partition_index} of '{topic.name}' stays", each.error_message
        )
        for topic in result.responses
        for each in topic.partitions
        if each.error_code != NONE
    ]


def _wait(kafka: Kafka, plan: Placement, wait_ms: int, is_throttled: bool) -> None:
    """Wait until no reassignment is under way."""
    until = time.monotonic() + wait_ms / 1000
    left = len(plan)
    with Progress("reassign", "partitions", len(plan)) as progress:
        while left:
            left = len(_under_way(kafka) & set(plan))
            progress.reach(len(plan) - left)
            if left and time.monotonic() > until:
                what = f"{left} of {len(plan)} partitions still move"
                hints = ["look again: trioka cluster under-replicated"]
                if is_throttled:
                    hints.append("the throttle stays; when all have moved: trioka cluster reassign --throttle off")
                raise Failure(what, exit_code=Exit.PARTLY, hints=hints)
            if left:
                time.sleep(LOOK_S)
    write_stdout(f"{len(plan)} partitions are where they shall be")


def _under_way(kafka: Kafka) -> set[TopicPartition]:
    request = ListPartitionReassignmentsRequest(timeout_ms=kafka.timeout_ms, topics=None)
    result = kafka.ask_controller(request, lambda result: [result.error_code])
    return {TopicPartition(topic.name, each.partition_index) for topic in result.topics for each in topic.partitions}


def _unthrottle(kafka: Kafka) -> int:
    """Remove the throttle of all brokers and topics, unless something still moves, which the throttle must keep
    limiting.
    """
    if left := _under_way(kafka):
        what = f"{len(left)} partitions still move, and the throttle is theirs"
        raise Failure(what, hints=["wait for them: trioka cluster under-replicated"])
    cluster = kafka.cluster()
    names = [topic.name or "" for topic in cluster.topics]
    failures = clear_throttle(kafka, [broker.node_id for broker in cluster.brokers], names)
    if not failures:
        write_stdout("nothing is throttled")
    return exit_code_of(failures, len(failures) + 1)
