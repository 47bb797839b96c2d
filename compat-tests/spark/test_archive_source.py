"""Spark reads the archive of tiered topics, as a batch and as a stream, and agrees with the log to the hash."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from support.archive_objects import Objects, digest, digest_of_log, objects_of, sample_log
from support.archive_stores import put_objects

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
