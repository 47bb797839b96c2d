"""Spark reads the archive of tiered topics, as a batch and as a stream, and agrees with the log to the hash."""

from collections.abc import Iterable
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from support.archive_objects import Objects, digest, digest_of_log, objects_of, sample_log
from support.archive_stores import put_objects
from support.beside_a_broker import consumed, two_epochs

from trioka.archive import Archive
from trioka.pipeline.sources.archive_source import register

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

ROUNDS = 6


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def digest_of(rows: Iterable[Row]) -> str:
    return digest(
        (
            row.offset,
            round(row.timestamp.timestamp() * 1000),
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((each.key, None if each.value is None else bytes(each.value)) for each in row.headers or ()),
            row.leaderEpoch,
        )
        for row in rows
    )


def archive_frame(spark: SparkSession, url: str) -> DataFrame:
    return spark.read.format("trioka-archive").option("topic", "orders").load(url)


def test_spark_archive_and_log_agree_to_the_hash(registered: SparkSession, tmp_path: Path) -> None:
    log = sample_log(rounds=ROUNDS)
    expected = digest_of_log(log, "read_committed")
    put_objects(tmp_path.as_uri(), objects_of(log))
    frame = archive_frame(registered, tmp_path.as_uri())
    assert digest_of(frame.orderBy("offset").collect()) == expected
    assert frame.where("offset < 5 and partition = 0").rdd.getNumPartitions() == 1


@pytest.mark.nightly
def test_spark_agrees_with_a_consumer_of_the_broker_to_the_hash(registered: SparkSession, tmp_path: Path) -> None:
    """A topic with five codecs, two leader epochs and aborted transactions. The archive agrees with both, too."""
    store = tmp_path / "store"
    store.mkdir()
    for bootstrap, end in two_epochs(tmp_path, store):
        frame = archive_frame(registered, store.as_uri()).where(f"offset < {end}").orderBy("offset")
        rows = [
            (
                row.offset,
                round(row.timestamp.timestamp() * 1000),
                None if row.key is None else bytes(row.key),
                None if row.value is None else bytes(row.value),
                tuple((each.key, None if each.value is None else bytes(each.value)) for each in row.headers or ()),
            )
            for row in frame.collect()
        ]
        archived = Archive(store.as_uri()).records("orders", 0, offsets=(0, end))
        of_archive = digest((each.offset, each.timestamp, each.key, each.value, each.headers) for each in archived)
        assert digest(rows) == consumed(bootstrap, "read_committed", end) == of_archive


@pytest.mark.nightly
def test_a_stream_with_a_limit_reads_in_small_batches_and_goes_on_after_a_restart(
    registered: SparkSession, tmp_path: Path
) -> None:
    log = sample_log(2, rounds=ROUNDS)
    expected, objects = digest_of_log(log, "read_committed"), objects_of(log)
    store = tmp_path / "store"
    store.mkdir()
    put_objects(store.as_uri(), objects)
    batches: list[int] = []

    def run(batch_limit: int) -> None:
        stream = registered.readStream.format("trioka-archive").option("topic", "orders")

        def write(batch: DataFrame, number: int) -> None:
            batches.append(number)
            batch.write.mode("append").parquet(str(tmp_path / "rows"))
            if len(batches) == batch_limit:
                stopping.set()

        stopping = Event()
        query = (
            stream.option("maxSegmentsPerTrigger", "1")
            .load(store.as_uri())
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            if batch_limit:
                assert stopping.wait(120)
            else:
                query.processAllAvailable()
        finally:
            query.stop()

    run(2)
    run(0)
    segments = sum(key.endswith("manifest") for key in objects)
    assert len(set(batches)) == segments
    rows = registered.read.parquet(str(tmp_path / "rows")).orderBy("offset").distinct().orderBy("offset").collect()
    assert digest_of(rows) == expected


@pytest.mark.nightly
def test_a_stream_goes_on_from_its_checkpoint(registered: SparkSession, tmp_path: Path) -> None:
    log = sample_log(2, rounds=ROUNDS)
    expected = digest_of_log(log, "read_committed")
    objects = objects_of(log)
    store = tmp_path / "store"
    store.mkdir()
    first = min(key for key in objects if key.endswith("manifest")).removesuffix("rsm-manifest")

    def run(part: Objects) -> None:
        put_objects(store.as_uri(), part)
        stream = registered.readStream.format("trioka-archive").option("topic", "orders").load(store.as_uri())
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        assert query.awaitTermination(120)

    run({key: data for key, data in objects.items() if key.startswith(first)})
    run(objects)
    assert digest_of(registered.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()) == expected
