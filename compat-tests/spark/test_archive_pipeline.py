"""A pipeline begins in the archive, and goes on from the topic where that ends: each record is in the table once."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession
from support.beside_a_broker import closing, produce, two_epochs

from spark.pipelines import PipelineHarness
from trioka.pipeline.runner import declared_run

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def values_of_topic(bootstrap: str) -> list[tuple[int, bytes]]:
    place = TopicPartition("orders", 0)
    with closing(
        KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", consumer_timeout_ms=5000)
    ) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        return [(record.offset, bytes(record.value)) for record in consumer]


def rows(harness: PipelineHarness) -> list[tuple[int, bytes]]:
    return sorted((row["kafka_offset"], bytes(row["value"])) for row in harness.parquet())


def declared(store: Path) -> dict[str, Any]:
    return {
        "name": "history",
        "source": {"topics": ["orders"], "archive": store.as_uri()},
        "decode": {"format": "raw"},
        "sink": {"kind": "parquet", "path": "table"},
    }


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A broker with a tiered topic, and its object store as it was a while ago."""
    store = tmp_path / "store"
    store.mkdir()
    for bootstrap, end in two_epochs(tmp_path, store):
        before = Path(shutil.copytree(store, tmp_path / f"archive-{end}"))
        produce(bootstrap, 9)  # behind the archive
        yield bootstrap, before
        return


def test_history_comes_from_the_archive_and_the_rest_from_the_topic(
    spark: SparkSession, tmp_path: Path, running: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, archive = running
    harness = PipelineHarness(folder=tmp_path, bootstrap=bootstrap)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(declared_run, "deliver_history", dies)  # the start was found, and nothing was delivered
        with pytest.raises(KeyboardInterrupt):
            harness.run(**declared(archive))
    harness.run(**declared(archive))
    assert rows(harness) == values_of_topic(bootstrap)
    assert sum("reading the archive" in said for said in harness.said) == 1
    produce(bootstrap, 10)
    harness.run(**declared(archive))
    shutil.rmtree(tmp_path / "checkpoints")  # a lost checkpoint: the table says what it has
    produce(bootstrap, 11)
    harness.run(**declared(archive))
    assert rows(harness) == values_of_topic(bootstrap)
    assert sum("reading the archive" in said for said in harness.said) == 1
