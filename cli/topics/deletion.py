"""Commands that remove records: `trioka topics delete` and `trioka topics trim`. Both show their plan, and have no
undo.
"""

import time
from collections.abc import Sequence
from typing import Final

import click

from trioka.protocol.errors import NONE, UnknownTopicOrPartition
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.metadata import MetadataResponse
from trioka.protocol.primitives import NULL_UUID

from .. import problems
from ..client.cluster_client import Kafka, TopicPartition
from ..client.offsets import EARLIEST, LATEST, by_topic, list_offsets, offsets_or_fail
from ..options import confirmed, exit_code_of, with_execute_option, with_kafka, with_name_arguments
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show
from ..terminal.time_parsing import parse_moment_ms

DELETE_TIMEOUT_S: Final = 5.0
LOOK_AGAIN_S: Final = 0.02


@click.command("delete")
@with_name_arguments("topic")
@click.option("--if-exists", is_flag=True, help="a topic that does not exist is no error")
@with_execute_option
@with_kafka
def delete(kafka: Kafka, names: tuple[str, ...], if_exists: bool, execute: bool) -> int:
    """Deletes topics and all their records. There is no undo."""
    known = {topic.name for topic in kafka.cluster().topics}
    there = (
        [name for name in names if name in known] if if_exists else [each.name or "" for each in kafka.topics(names)]
    )
    if not there:
        return Exit.OK
    places = {place: LATEST for topic in kafka.topics(there) for place in _places(topic)}
    first = list_offsets(kafka, dict.fromkeys(places, EARLIEST))
    rows = [
        {
            "topic": name,
            "partitions": len(indexes),
            "records": sum(
                max(0, found.offset - first[TopicPartition(name, index)].offset)
                for index in indexes
                if (found := ends[TopicPartition(name, index)]).error == NONE
            ),
        }
        for ends in [list_offsets(kafka, places)]
        for name, indexes in by_topic(places)
    ]
    show(rows, (Column("DELETE", "topic"), Column("PARTITIONS", "partitions"), Column("RECORDS", "records")), "table")
    if not confirmed(execute, "Delete them?"):
        return Exit.OK
    failures = delete_topics(kafka, there, if_exists=if_exists)
    if not failures:
        _wait_until_deleted(kafka, there)
    return exit_code_of(failures, len(there))


def _wait_until_deleted(kafka: Kafka, names: Sequence[str]) -> None:
    """Wait until all brokers dropped the topics: Kafka confirms a deletion earlier, and the next request should not see
    them.
    """
    deadline = time.monotonic() + DELETE_TIMEOUT_S
    while time.monotonic() < deadline:
        if all(topic.error_code != NONE for topic in kafka.metadata(names).topics):
            return
        time.sleep(LOOK_AGAIN_S)


def delete_topics(kafka: Kafka, names: Sequence[str], *, if_exists: bool = False) -> list[Failure]:
    """Delete topics; return the failures."""
    wanted = [DeleteTopicsRequest.Topic(name=name, topic_id=NULL_UUID) for name in names]
    request = DeleteTopicsRequest(topics=wanted, timeout_ms=kafka.timeout_ms)
    answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.responses])
    return [
        problems.from_error_code(result.error_code, f"topic '{result.name}' was not deleted", result.error_message)
        for result in answer.responses
        if result.error_code != NONE and not (if_exists and result.error_code == UnknownTopicOrPartition.code)
    ]


@click.command("trim")
@with_name_arguments("topic")
@click.option("--partition", "-p", "only", type=int, multiple=True, metavar="N", help="only this partition")
@click.option("--to-offset", type=int, metavar="N", help="delete the records before it")
@click.option("--to-datetime", metavar="TIME", help="delete the records before that time")
@click.option("--all", "everything", is_flag=True, help="delete all records; the topic stays")
@with_execute_option
@with_kafka
def trim(
    kafka: Kafka,
    names: tuple[str, ...],
    only: tuple[int, ...],
    to_offset: int | None,
    to_datetime: str | None,
    everything: bool,
    execute: bool,
) -> int:
    """Deletes the oldest records of topics. There is no undo."""
    if [to_offset is not None, to_datetime is not None, everything].count(True) != 1:
        raise click.UsageError("give one limit: --to-offset, --to-datetime or --all.")
    places = [place for topic in kafka.topics(names) for place in _places(topic) if not only or place.partition in only]
    if not places:
        raise Failure("there is no such partition", exit_code=Exit.NOT_FOUND)
    first = offsets_or_fail(kafka, dict.fromkeys(places, EARLIEST))
    end = offsets_or_fail(kafka, dict.fromkeys(places, LATEST))
    target = dict.fromkeys(places, to_offset) if to_offset is not None else dict(end)
    if to_datetime is not None:
        moment = _moment(to_datetime)
        at = offsets_or_fail(kafka, dict.fromkeys(places, moment))
        target = {place: end[place] if at[place] < 0 else at[place] for place in places}
    plan = {place: min(max(target[place] or 0, first[place]), end[place]) for place in places}
    rows = [
        {**place._asdict(), "start": first[place], "new": plan[place], "records": plan[place] - first[place]}
        for place in places
    ]
    show(rows, TRIM_COLUMNS, "table")
    if not confirmed(execute, "Delete these records?"):
        return Exit.OK
    return exit_code_of(_delete_records(kafka, plan), len(plan))


TRIM_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("START", "start"),
    Column("NEW-START", "new"),
    Column("DELETE", "records"),
)


def _delete_records(kafka: Kafka, plan: dict[TopicPartition, int]) -> list[Failure]:
    Topic = DeleteRecordsRequest.Topic
    failures = []
    for leader, places in kafka.leaders(plan).items():
        topics = [
            Topic(
                name=name,
                partitions=[
                    Topic.Partition(partition_index=index, offset=plan[TopicPartition(name, index)])
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(places)
        ]
        answer = kafka.ask_node(leader, DeleteRecordsRequest(topics=topics, timeout_ms=kafka.timeout_ms))
        failures += [
            problems.from_error_code(result.error_code, f"{topic.name}:{result.partition_index} was not trimmed")
            for topic in answer.topics
            for result in topic.partitions
            if result.error_code != NONE
        ]
    return failures


def _moment(text: str) -> int:
    try:
        return parse_moment_ms(text, int(time.time() * 1000))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None


def _places(topic: MetadataResponse.Topic) -> list[TopicPartition]:
    return sorted(TopicPartition(topic.name or "", each.partition_index) for each in topic.partitions)
