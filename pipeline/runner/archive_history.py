"""A pipeline that begins in the archive: `source.archive` of the short form.

    [source]
    topics = ["orders"]
    archive = "s3://bucket/prefix"        # archive_options = { region = "eu-central-1" }

The first run finds out where the archive ends. Everything before is delivered as one commit with a fixed name, and the
stream begins there: each record is in the table once. If the driver dies before the commit, the next run reads the same
range again; the commit of a table tells it when that was done.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import reduce
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from trioka.archive.errors import ArchiveError
from trioka.protocol.primitives import uuid_text

from ..declaration.model import Declaration, Source
from ..errors import InvalidPipeline
from ..sources.archive_source import FORMAT, STORE_OPTION, end_offsets, register
from ..sources.offsets import BACKFILL, Commit, Ends, is_another_topic
from ..tables.delivery import rows_of
from .backfill import deliver
from .run import Say

NO_STATE = "Windows, distinct keys and joins cannot begin in an archive."
HEADERS = "includeHeaders"


def history_run(pipeline: str) -> str:
    """The name of the commit's run: one for each pipeline, as several may write to one table."""
    return f"{BACKFILL}archive-{hashlib.sha256(pipeline.encode()).hexdigest()[:12]}"


def behind_archive(declared: Declaration, start: Ends, ids: Mapping[str, str], commits: Iterable[Commit]) -> Ends:
    """Where the stream begins: behind the history that the table has, or else behind what the archive has now.
    Partitions that the archive has not begin at `start`."""
    run = history_run(declared.name)
    known = [one for one in commits if one.pipeline == declared.name and one.run == run]
    ends: dict[str, Mapping[int, int]] = {}
    for topic in start:
        held = [one.end[topic] for one in known if topic in one.end and not is_another_topic(one.topics, ids, topic)]
        ends[topic] = held[0] if held else _archive_ends(declared.source, topic, ids)
    return {topic: {one: ends[topic].get(one, at) for one, at in ones.items()} for topic, ones in start.items()}


def deliver_history(spark: SparkSession, declared: Declaration, end: Ends, ids: Mapping[str, str], say: Say) -> None:
    """Everything of the archive before `end`, unless the table has it."""
    commit = Commit(pipeline=declared.name, run=history_run(declared.name), batch=0, start={}, end=end, topics=ids)
    if rows_of(spark, declared).holds(commit):
        return
    register(spark)
    source = declared.source
    frames = [_frame(spark, source, topic, ones, ids) for topic, ones in sorted(end.items())]
    records = reduce(DataFrame.unionByName, frames)
    say(f"reading the archive {source.archive} before the topics")
    deliver(spark, declared, records, commit, say)


def _frame(
    spark: SparkSession, source: Source, topic: str, end: Mapping[int, int], ids: Mapping[str, str]
) -> DataFrame:
    reader = spark.read.format(FORMAT).options(**_options(source, topic, ids))
    ending = json.dumps({str(one): at for one, at in end.items()})
    records = reader.option("topic", topic).option("endingOffsets", ending).load(source.archive)
    has_headers = source.options.get(HEADERS, "false").lower() == "true"
    return records.drop("leaderEpoch") if has_headers else records.drop("leaderEpoch", "headers")


def _archive_ends(source: Source, topic: str, ids: Mapping[str, str]) -> dict[int, int]:
    assert source.archive is not None
    try:
        found = end_offsets(source.archive, topic, **_options(source, topic, ids))
    except ArchiveError as error:
        raise InvalidPipeline(f"source.archive: {error}.") from None
    return {int(one): at for one, at in found.items()}


def _options(source: Source, topic: str, ids: Mapping[str, str]) -> dict[str, str]:
    isolation = source.options.get("kafka.isolation.level", "read_committed")
    found = {"isolation": isolation, **{f"{STORE_OPTION}{key}": value for key, value in source.archive_options.items()}}
    if topic in ids:
        found["topicId"] = uuid_text(UUID(ids[topic]).bytes)
    return found
