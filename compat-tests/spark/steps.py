"""What people do with Spark's Kafka connector, step by step. Each returns rows, which must be the same with any broker.

A step gets a `Place`: the session, the broker, a folder, and a name for its topics. It leaves out of its rows what may
differ for a reason (the time at which Spark wrote a record; the order in which two tasks wrote to one partition).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.contestants import GROUP, TRANSACTION, Contestant
from trioka.pipeline.runner.session import sink_options, source_options
from trioka.protocol.record import Record

Rows = list[tuple[Any, ...]]

PARTITIONS = 3
COUNT = 120
T0 = 1_700_000_000_000
SPACING_MS = 1000
STREAM_SECONDS = 300
PLANTED = ("partition", "offset", "cast(key as string)", "cast(value as string)", "cast(timestamp as double)")
WRITTEN = ("topic", "partition", "cast(key as string)", "cast(value as string)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a step is taken. `topic` is the name of a topic that does not exist yet, or the start of several."""

    spark: SparkSession
    broker: Contestant
    topic: str
    folder: Path

    def read(self, **options: object) -> DataFrame:
        given: Mapping[str, object] = (
            {"subscribe": self.topic} if not {"assign", "subscribePattern", "subscribe"} & options.keys() else {}
        )
        return self.spark.read.format("kafka").options(**self._options({**given, **options})).load()

    def read_stream(self, **options: object) -> DataFrame:
        given = {"startingOffsets": "earliest", "subscribe": self.topic, **options}
        return self.spark.readStream.format("kafka").options(**self._options(given)).load()

    def _options(self, given: Mapping[str, object]) -> Mapping[str, Any]:
        return source_options(self.broker.bootstrap, **{key: str(value) for key, value in given.items()})

    def write(self, rows: DataFrame, **options: str) -> None:
        rows.write.format("kafka").options(**sink_options(self.broker.bootstrap, **options)).save()

    def planted(self, topic: str = "", partitions: int = PARTITIONS, count: int = COUNT) -> str:
        """A topic with records k0, k1 …, dealt out to the partitions in turns, a second apart."""
        name = topic or self.topic
        # The records are years old: a broker that found them after its first half minute would delete them.
        self.broker.side.create_topic(name, partitions, retention_ms=-1)
        self.plant_more(0, count, name, partitions)
        return name

    def plant_more(self, first: int, count: int, topic: str = "", partitions: int = PARTITIONS) -> None:
        for partition in range(partitions):
            numbers = [number for number in range(first, first + count) if number % partitions == partition]
            records = [
                Record(place, T0 + number * SPACING_MS, f"k{number}".encode(), f"v{number}".encode())
                for place, number in enumerate(numbers)
            ]
            self.broker.plant(topic or self.topic, partition, records)

    def numbers(self, count: int, tasks: int = 2) -> DataFrame:
        """Rows to be written, by two tasks."""
        return self.spark.range(0, count, 1, tasks).selectExpr(
            "cast(concat('k', id) as binary) key", "cast(concat('v', id) as binary) value", "id"
        )


def rows(frame: DataFrame, *columns: str) -> Rows:
    return sorted(tuple(row) for row in frame.selectExpr(*(columns or PLANTED)).collect())


# -- batch -------------------------------------------------------------------------------------------------------------


def write_with_headers(at: Place) -> Rows:
    at.broker.side.create_topic(at.topic, PARTITIONS)
    header = "named_struct('key', 'number', 'value', cast(cast(id as string) as binary))"
    empty = "named_struct('key', 'none', 'value', cast(null as binary))"
    at.write(at.numbers(COUNT).selectExpr("key", "value", f"array({header}, {empty}) headers"), topic=at.topic)
    read = at.read(includeHeaders="true")
    offsets = rows(read, "partition", "offset")
    ends = {partition: at.broker.end(at.topic, partition) for partition in range(PARTITIONS)}
    assert offsets == [(partition, offset) for partition, end in ends.items() for offset in range(end)]
    return rows(read, *WRITTEN, "headers[0].key", "cast(headers[0].value as string)", "headers[1].key", "size(headers)")


def write_where_the_rows_say(at: Place) -> Rows:
    """Topic and partition are columns; a null key and a null value stay null."""
    for letter in "ab":
        at.broker.side.create_topic(f"{at.topic}-{letter}", PARTITIONS)
    at.write(
        at.numbers(COUNT).selectExpr(
            f"concat('{at.topic}-', if(id % 2 = 0, 'a', 'b')) topic",
            f"cast(id % {PARTITIONS} as int) partition",
            "if(id % 5 = 0, null, key) key",
            "if(id % 7 = 0, null, value) value",
        )
    )
    read = at.read(subscribe=f"{at.topic}-a,{at.topic}-b")
    return rows(read, "topic", "partition", "coalesce(cast(key as string), '')", "coalesce(cast(value as string), '')")


def read_from_the_earliest_to_the_latest(at: Place) -> Rows:
    at.planted()
    return rows(at.read(startingOffsets="earliest", endingOffsets="latest"))


def read_between_offsets(at: Place) -> Rows:
    """-2 is the earliest, -1 the latest."""
    at.planted()
    starts = json.dumps({at.topic: {"0": 5, "1": -2, "2": 30}})
    ends = json.dumps({at.topic: {"0": 25, "1": 7, "2": -1}})
    return rows(at.read(startingOffsets=starts, endingOffsets=ends))


def read_between_timestamps_of_partitions(at: Place) -> Rows:
    at.planted()
    starts = json.dumps({at.topic: {"0": T0, "1": T0 + 10 * SPACING_MS, "2": T0 + 60 * SPACING_MS + 1}})
    ends = json.dumps({at.topic: {"0": T0 + 30 * SPACING_MS, "1": T0 + 10**9, "2": T0 + 90 * SPACING_MS}})
    return rows(at.read(startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends))


def read_between_two_timestamps(at: Place) -> Rows:
    at.planted()
    return rows(at.read(startingTimestamp=T0 + 20 * SPACING_MS, endingTimestamp=T0 + 80 * SPACING_MS))


def read_with_more_tasks_than_partitions(at: Place) -> Rows:
    at.planted()
    read = at.read(minPartitions=8)
    assert read.rdd.getNumPartitions() >= 8
    return rows(read)


def read_with_few_records_per_task(at: Place) -> Rows:
    """A batch read heeds the limit only when it asks for more tasks than partitions as well; a stream always does."""
    at.planted()
    read = at.read(maxRecordsPerPartition=10, minPartitions=PARTITIONS + 1)
    assert read.rdd.getNumPartitions() == COUNT // 10
    return rows(read)


def read_assigned_partitions(at: Place) -> Rows:
    at.planted()
    return rows(at.read(assign=json.dumps({at.topic: [0, 2]})))


def read_topics_of_a_pattern(at: Place) -> Rows:
    for letter, partitions in (("a", 1), ("b", 2), ("other", 1)):
        at.planted(f"{at.topic}-{letter}", partitions, 30)
    return rows(at.read(subscribePattern=f"{at.topic}-[ab]"), "topic", *PLANTED)


def read_committed(at: Place) -> Rows:
    at.planted()
    return rows(at.read(**{"kafka.isolation.level": "read_committed"}))


def read_committed_between_aborted_transactions(at: Place) -> Rows:
    """Two transactions, the first of them aborted: offsets have gaps then, where its records and both markers are."""
    at.broker.side.create_topic(at.topic, 1)
    producer = Producer({"bootstrap.servers": at.broker.bootstrap, "transactional.id": at.topic})
    producer.init_transactions(STREAM_SECONDS)
    for word, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        for number in range(30):
            producer.produce(at.topic, f"{word} {number}", timestamp=T0 + number)
        producer.flush(STREAM_SECONDS)
        end(STREAM_SECONDS)
    committed = rows(at.read(**{"kafka.isolation.level": "read_committed"}), "offset", "cast(value as string)")
    uncommitted = rows(at.read(), "offset", "cast(value as string)")
    assert len(uncommitted) == 2 * len(committed)
    return committed + uncommitted


def read_by_a_consumer_of_the_driver(at: Place) -> Rows:
    """The old way: the driver asks for offsets with a consumer that joins a group."""
    at.planted()
    starts = json.dumps({at.topic: {"0": 5, "1": -2, "2": 30}})
    return rows(at.read(startingOffsets=starts, endingOffsets="latest"))


def read_after_the_front_was_deleted(at: Place) -> Rows:
    at.planted()
    at.broker.delete_before(at.topic, 1, 30)
    return rows(at.read(startingOffsets="earliest"))


# -- streams -----------------------------------------------------------------------------------------------------------


def stream_all_that_is_there(at: Place) -> Rows:
    at.planted()
    table = f"{at.topic}_{at.broker.name}".replace("-", "_")
    finish(start(at, at.read_stream(), format="memory", queryName=table))
    return rows(at.spark.table(table))


def stream_with_few_offsets_per_batch(at: Place) -> Rows:
    """The rows of each batch, which come in the same steps from any broker."""
    at.planted()
    seen: Rows = []

    def note(batch: DataFrame, number: int) -> None:
        seen.extend((number, *row) for row in rows(batch))

    query = start(at, at.read_stream(maxOffsetsPerTrigger=30), each=note)
    finish(query)
    assert {number for number, *_ in seen} == {0, 1, 2, 3}
    return seen


def stream_batches_to_parquet(at: Place) -> Rows:
    at.planted()
    query = start(at, at.read_stream(maxOffsetsPerTrigger=60), each=partial(keep, at.folder))
    finish(query)
    return rows(at.spark.read.parquet(str(at.folder / "batches")), "batch", *NAMED)


def stream_again_from_the_checkpoint(at: Place) -> Rows:
    """What was read before is not read again, and nothing is left out."""
    at.planted()
    for first, count in ((COUNT, 60), (COUNT + 60, 0)):
        finish(start(at, at.read_stream(), each=partial(keep, at.folder)))
        if count:
            at.plant_more(first, count)
    return rows(at.spark.read.parquet(str(at.folder / "batches")), "batch", *NAMED)


def stream_to_parquet_files(at: Place) -> Rows:
    at.planted()
    finish(start(at, at.read_stream().selectExpr(*AS_NAMED), format="parquet", path=str(at.folder / "table")))
    return rows(at.spark.read.parquet(str(at.folder / "table")), *NAMED)


def stream_from_topic_to_topic(at: Place) -> Rows:
    at.planted()
    copy = f"{at.topic}-copy"
    at.broker.side.create_topic(copy, PARTITIONS)
    changed = at.read_stream(includeHeaders="true").selectExpr("key", "upper(cast(value as string)) value", "partition")
    sink: Any = sink_options(at.broker.bootstrap, topic=copy)
    finish(start(at, changed, format="kafka", **sink))
    return rows(at.read(subscribe=copy), *WRITTEN)


AS_NAMED = (
    "partition",
    "offset",
    "cast(key as string) key",
    "cast(value as string) value",
    "cast(timestamp as double) timestamp",
)
NAMED = ("partition", "offset", "key", "value", "timestamp")


def start(
    at: Place, frame: DataFrame, *, each: Callable[[DataFrame, int], None] | None = None, **options: str
) -> StreamingQuery:
    """A query over all that is there, with a checkpoint in the step's folder."""
    writer = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(at.folder / "checkpoint"))
    if each is not None:
        return writer.foreachBatch(each).start()
    if "queryName" in options:
        writer = writer.queryName(options.pop("queryName"))
    return writer.format(options.pop("format")).options(**options).start()


def keep(folder: Path, batch: DataFrame, number: int) -> None:
    """Write a batch to a folder of its number: a batch that is done again replaces itself."""
    place = folder / "batches" / f"batch={number}"
    batch.selectExpr(*AS_NAMED).write.mode("overwrite").parquet(str(place))


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(STREAM_SECONDS), f"{query.status} after {STREAM_SECONDS} s"


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for the length of a `with`."""
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in wanted:
            spark.conf.unset(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`count` is how many rows there must be. `needs` is the coordinator without which it cannot be taken; `settings`
    are those of the session while it is taken.
    """

    take: Callable[[Place], Rows]
    count: int
    needs: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.take.__name__


STEPS: tuple[Step, ...] = (
    Step(take=write_with_headers, count=COUNT),
    Step(take=write_where_the_rows_say, count=COUNT),
    Step(take=read_from_the_earliest_to_the_latest, count=COUNT),
    Step(take=read_between_offsets, count=20 + 7 + 10),
    Step(take=read_between_timestamps_of_partitions, count=10 + 37 + 10),
    Step(take=read_between_two_timestamps, count=60),
    Step(take=read_with_more_tasks_than_partitions, count=COUNT),
    Step(take=read_with_few_records_per_task, count=COUNT),
    Step(take=read_assigned_partitions, count=COUNT * 2 // 3),
    Step(take=read_topics_of_a_pattern, count=60),
    Step(take=read_committed, count=COUNT),
    Step(
        take=read_by_a_consumer_of_the_driver,
        count=35 + 40 + 10,
        needs=GROUP,
        settings={"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"},
    ),
    Step(take=read_after_the_front_was_deleted, count=COUNT - 30),
    Step(take=stream_all_that_is_there, count=COUNT),
    Step(take=stream_with_few_offsets_per_batch, count=COUNT),
    Step(take=stream_batches_to_parquet, count=COUNT),
    Step(take=stream_again_from_the_checkpoint, count=COUNT + 60),
    Step(take=stream_to_parquet_files, count=COUNT),
    Step(take=stream_from_topic_to_topic, count=COUNT),
    Step(take=read_committed_between_aborted_transactions, count=90, needs=TRANSACTION),
)
