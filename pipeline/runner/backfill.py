"""Backfill and replay: reads a bounded range in parallel to the running stream.

Two uses, which differ in the target of the rows:

- **Backfill**, into the pipeline's own table: only records that the stream will never read, which are those before its
start. So no row is duplicated, and the default end is the start of the stream. - **Replay**, into another table of the
same kind (`into`): any range, any number of times.

A backfill is one commit. If its driver dies, none of its rows are in the table, and a repeated backfill of a range that
the table has does nothing. The stream's checkpoint and group are not changed.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from trioka.protocol.lazy_dataclass import frozen

from ..declaration.model import Declaration, Discard, Source, Start
from ..errors import InvalidPipeline
from ..sources.broker_view import BrokerView
from ..sources.offsets import BACKFILL, Commit, Ends, overlaps, to_json
from ..sources.topics import check_ids
from ..tables.delivery import dead_letters_of, into, rows_of, table_of
from .checkpoint import RECORDS, Checkpoint
from .run import Say, check_topics, failures, silent, spark_for, stream_of
from .session import LOCAL_MASTER, source_options
from .stages import Stages, check_schema
from .state import state_of

EARLIEST = Start()
LATEST = Start(at="latest")
NOT_BESIDE = "Windows, distinct keys and joins cannot be filled in beside the stream: name --into."


@frozen
class Range:
    """The range to read. Default end: the start of the stream; for a replay, the latest offsets at this time."""

    start: Start = EARLIEST
    end: Start | None = None
    min_partitions: int | None = None


def backfill(
    declared: Declaration,
    wanted: Range,
    *,
    target: str | None = None,
    master: str = LOCAL_MASTER,
    settings: Mapping[str, str] | None = None,
    say: Say = silent,
) -> int:
    """Read the range; returns the number of offsets. With a `target`, a table or topic of that name gets the rows."""
    if target is not None:
        # The stream has written its dead letters; a replay does not write them again.
        declared = replace(into(declared, target), dead_letters=Discard())
    elif declared.declares_state:
        raise InvalidPipeline(NOT_BESIDE)
    with BrokerView(declared.source.brokers) as view:
        partitions = check_topics(declared, view)
        ids = view.topic_ids(partitions)
        start = view.resolve(partitions, wanted.start)
        end = view.resolve(partitions, wanted.end or LATEST)
    check_schema(declared.decoding)
    with spark_for(declared, master, settings) as spark, failures(declared):
        if target is None:
            if state_of(Stages(declared).accepted(stream_of(spark, declared.source, {}))).is_kept:
                raise InvalidPipeline(NOT_BESIDE)
            kept = Checkpoint(spark, declared.checkpoint)
            check_ids(kept.topics(), ids, declared.checkpoint)
            began = kept.starts().get(RECORDS)
            end = before_the_stream(began, end, is_given=wanted.end is not None)
        commit = _commit(declared, start, end, ids)
        count = sum(until - since for since, until in commit.ranges().values())
        if count == 0:
            say("nothing lies in that range")
            return 0
        _refuse_overlap(spark, declared, commit)
        records = _records(spark, declared.source, commit, wanted.min_partitions)
        deliver(spark, declared, records, commit, say)
        return count


def before_the_stream(began: Ends | None, end: Ends, *, is_given: bool) -> Ends:
    """The end of a range that the stream with this start never reads. An end from the user is not changed."""
    if began is None:
        raise InvalidPipeline(
            "The pipeline has not run yet, so all of this is still before it: run it, or name --into."
        )
    late = [
        f"{topic}-{one} (the stream began at {began.get(topic, {}).get(one, 0)})"
        for topic, ones in end.items()
        for one, until in ones.items()
        if until > began.get(topic, {}).get(one, 0)
    ]
    if late and is_given:
        raise InvalidPipeline(
            f"The stream itself reads a part of that range: {', '.join(late)}. End before it, or replay with --into."
        )
    return {
        topic: {one: min(until, began.get(topic, {}).get(one, 0)) for one, until in ones.items()}
        for topic, ones in end.items()
    }


def _commit(declared: Declaration, start: Ends, end: Ends, ids: Mapping[str, str]) -> Commit:
    """Named after the range and its topics, so that a repeated range of the same topics is recognised. A start after
    the end is an empty range.
    """
    start = {t: {one: min(at, end.get(t, {}).get(one, 0)) for one, at in ones.items()} for t, ones in start.items()}
    digest = hashlib.sha256(f"{to_json(start)}{to_json(end)}{sorted(ids.items())}".encode()).hexdigest()[:12]
    return Commit(pipeline=declared.name, run=f"{BACKFILL}{digest}", batch=0, start=start, end=end, topics=ids)


def _refuse_overlap(spark: SparkSession, declared: Declaration, commit: Commit) -> None:
    table = table_of(spark, declared.sink)
    there = table.commits() if table is not None else []
    held = overlaps(commit, [one for one in there if one.name != commit.name])
    if held:
        raise InvalidPipeline(f"{declared.sink.target} holds a part of that range already: {', '.join(held)}.")


def _records(spark: SparkSession, source: Source, commit: Commit, min_partitions: int | None) -> DataFrame:
    options = {"kafka.isolation.level": "read_committed", **source.options}
    reader = spark.read.format("kafka").options(**source_options(source.bootstrap, **options))
    reader = reader.options(
        subscribe=",".join(commit.end), startingOffsets=to_json(commit.start), endingOffsets=to_json(commit.end)
    )
    least = min_partitions or source.min_partitions
    return (reader.option("minPartitions", str(least)) if least else reader).load()


def deliver(spark: SparkSession, declared: Declaration, records: DataFrame, commit: Commit, say: Say) -> None:
    """Rows and dead letters of these records, as one commit each."""
    stages = Stages(declared)
    rows = stages.accepted(records)
    delivery = rows_of(spark, declared)
    delivery.analyse(rows)

    # Dead letters first: if the driver dies between the two, the next try finds the rows missing and writes both again.
    def confirm() -> None:
        with BrokerView(declared.source.brokers) as view:
            check_ids(commit.topics, view.topic_ids(commit.end), declared.checkpoint)

    dead_letters = dead_letters_of(spark, declared)
    if dead_letters is not None and not dead_letters.holds(commit):
        dead_letters.deliver(stages.refused(records), commit, confirm)
    if delivery.holds(commit):
        say("this range is in the table already")
        return
    delivery.deliver(rows, commit, confirm)
    say("written")
