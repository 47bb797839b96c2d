"""Pipelines under test: a broker in a process of its own, topics that are filled with what a test says, and drivers.

A pipeline runs in this process and its one session (`PipelineHarness.run`), or in a process of its own that can be
killed (`Driver`). Tables are read back without Spark, as other people would read them.
"""

import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import psutil
import pyarrow.dataset
import pyarrow.parquet
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from oracle import die_with_parent
from pyspark import SparkContext
from pyspark.sql import SparkSession
from toolchains import unavailable

from spark.driver import QUICK
from trioka.pipeline import Pipeline
from trioka.pipeline.installation.cache import Unavailable
from trioka.pipeline.runner.session import session

PATIENCE_S = 240
POLL_S = 0.002
DELETED = 2  # of an entry in a manifest
COMMAND = [sys.executable, "-m", "trioka.pipeline", "pipeline"]
Message = bytes | None | dict[str, Any]


class SharedJvm:
    """A session for all files of tests of one process: a JVM takes seconds to start, and more to warm up. A file that
    needs other jars ends it, and the next one starts it again.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        if self._session is None or self._session.sparkContext._jsc is None:
            end_jvm()
            try:
                self._session = session(
                    "pipelines", master="local[2]", iceberg=True, warehouse=self._warehouse, settings=QUICK
                )
            except Unavailable as missing:
                unavailable(missing)
        assert self._session is not None, "unavailable() ends the test"
        return self._session

    def close(self) -> None:
        if self._session is not None and self._session.sparkContext._jsc is not None:
            self._session.stop()
            end_jvm()


def end_jvm() -> None:
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None


@dataclass(slots=True, kw_only=True)
class PipelineHarness:
    """One pipeline's folder, and the broker it reads from."""

    folder: Path
    bootstrap: str
    said: list[str] = field(default_factory=list)

    def topic(self, name: str, messages: Iterable[Message] = (), partitions: int = 2) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}}, wait_for_metadata=True)
        admin.close()
        self.send(name, messages, partitions)

    def send(self, name: str, messages: Iterable[Message], partitions: int = 2) -> None:
        """Messages are dealt out to the partitions in turns; a dictionary is sent as JSON."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=20)
        for number, message in enumerate(messages):
            value = json.dumps(message).encode() if isinstance(message, dict) else message
            producer.send(name, value, partition=number % partitions, key=f"k{number}".encode())
        producer.flush()
        producer.close()

    def pipeline(self, **values: Any) -> Pipeline:
        return Pipeline(values, folder=self.folder, bootstrap=self.bootstrap)

    def run(self, **values: Any) -> Pipeline:
        """Run a pipeline over everything that is there."""
        pipeline = self.pipeline(**values)
        pipeline.run(once=True, say=self.said.append)
        return pipeline

    def parquet(self, path: str = "table") -> list[dict[str, Any]]:
        """The rows of a Parquet table, as a reader sees them that knows nothing of Spark."""
        found = pyarrow.dataset.dataset(self.folder / path, format="parquet", partitioning="hive")
        rows: list[dict[str, Any]] = found.to_table().to_pylist()
        return rows

    def iceberg_sink(self, table: str) -> dict[str, Any]:
        """A table in a catalog of this folder's own, beside its other files."""
        name = self.folder.name.replace("-", "_")
        return {"kind": "iceberg", "catalog": name, "warehouse": "warehouse", "table": f"shop.{table}"}

    def iceberg(self, table: str) -> list[dict[str, Any]]:
        """The rows of an Iceberg table's newest snapshot: catalog → metadata → manifests → data files."""
        with closing(sqlite3.connect(self.folder / "warehouse" / "catalog.db")) as catalog:
            (place,) = catalog.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", [table])
        metadata = json.loads(_local(place[0]).read_text())
        listed = next(
            one["manifest-list"]
            for one in metadata["snapshots"]
            if one["snapshot-id"] == metadata["current-snapshot-id"]
        )
        rows: list[dict[str, Any]] = []
        for manifest in _avro(listed):
            for entry in _avro(manifest["manifest_path"]):
                if entry["status"] != DELETED:
                    rows += pyarrow.parquet.read_table(_local(entry["data_file"]["file_path"])).to_pylist()
        return rows

    def messages(self, topic: str) -> list[Any]:
        """Everything in a topic, partition by partition."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, consumer_timeout_ms=PATIENCE_S * 1000)
        places = [TopicPartition(topic, one) for one in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        count = sum(consumer.end_offsets(places).values())
        found = [next(consumer) for _ in range(count)]
        consumer.close()
        return sorted(found, key=lambda one: (one.partition, one.offset))


def _avro(path: str) -> Iterator[Any]:
    with _local(path).open("rb") as file:
        yield from fastavro.reader(file)


def _local(address: str) -> Path:
    return Path(address.removeprefix("file:"))


def committed(bootstrap: str, topic: str) -> list[int]:
    """What a reader of committed records sees, in the order of the numbers that are their values."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
    places = [TopicPartition(topic, one) for one in consumer.partitions_for_topic(topic)]
    consumer.assign(places)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(places)  # of what is committed
    found: list[int] = []
    while any(consumer.position(place) < ends[place] for place in places):
        found += [int(one.value) for batch in consumer.poll(timeout_ms=500).values() for one in batch]
    consumer.close()
    return sorted(found)


def untick(query: Path) -> None:
    """As if the driver had died between the delivery of the last batch and its tick."""
    last = max((query / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


class Driver:
    """`trioka pipeline run FILE` in a process of its own."""

    def __init__(self, file: Path, bootstrap: str, *options: str, master: str = "local[2]") -> None:
        settings = [part for key, value in QUICK.items() for part in ("--conf", f"{key}={value}")]
        command = [
            *COMMAND,
            "run",
            str(file),
            "--bootstrap-server",
            bootstrap,
            "--master",
            master,
            *settings,
            *options,
        ]
        self.log = file.with_suffix(f".{time.monotonic_ns()}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=file.parent, preexec_fn=die_with_parent()
            )

    def kill_when(self, happened: Callable[[], bool]) -> bool:
        """Kill it without a warning as soon as that has happened; False if it came to its end before.

        Its JVM is killed first: left alone, it would still finish what it is at before it noticed.
        """
        jvm: list[psutil.Process] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                assert self.process.returncode == 0, self.log.read_text()
                return False
            # Looked for anew until it stays: before Spark's own, others are only asked for their version.
            jvm = [one for one in jvm if one.is_running()] or self.javas()
            if happened():
                for one in jvm:
                    with suppress(psutil.NoSuchProcess):  # it may have ended just now
                        one.kill()
                self.process.kill()
                self.process.wait()
                psutil.wait_procs(jvm)
                return True
            time.sleep(POLL_S)
        self.process.kill()
        self.process.wait()
        raise AssertionError(f"it never happened:\n{self.log.read_text()}")

    def wait_until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"it never happened:\n{self.log.read_text()}"
            time.sleep(50 * POLL_S)

    def javas(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [one for one in psutil.Process(self.process.pid).children() if one.name() == "java"]
        return []

    def finish(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.end()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def talk(self) -> list[str]:
        """Its lines, without empty ones."""
        return [line for line in self.log.read_text().splitlines() if line.strip()]

    def batches(self) -> int:
        """The number of batches of rows that it reports as delivered."""
        return len(re.findall(r"^records: batch", self.log.read_text(), re.M))
