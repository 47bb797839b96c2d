"""A graph on a standalone cluster with two workers: its modules are sent there, and an executor may be killed."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from trioka_process import TriokaProcess

from spark.cluster import HOST, WORKERS, Cluster, cluster
from spark.graphs import GraphHarness
from spark.pipelines import Driver, PipelineHarness, committed

SEED = 20261119
RECORDS = 200
ODD = [number for number in range(RECORDS) if number % 2]
OPTIONS = (
    "--conf",
    f"spark.driver.host={HOST}",
    "--conf",
    f"spark.driver.bindAddress={HOST}",
    "--conf",
    "spark.executor.memory=512m",
)
DEFINITIONS = """
from shares import half

dp.create_sink("copy", "kafka", {"kafka.bootstrap.servers": BROKERS, "topic": "copy"})

@F.udf("double", useArrow=False)
def halved(number):
    import shares  # on the worker, from the package
    return shares.half(number)

def source():
    options = {"maxOffsetsPerTrigger": "40"}
    return read_topic("numbers", schema="id BIGINT NOT NULL", bootstrap=BROKERS, options=options)

@dp.table
@expect_or_drop("odd", "id % 2 = 1")
@dead_letters("even")
def odds():
    return source().withColumn("half", halved("id"))

dp.create_streaming_table("even")

@dp.append_flow(target="copy")
def copied():
    return source().where("kafka_refused IS NULL").selectExpr("cast(id AS STRING) AS value")
"""


@pytest.fixture
def broker(apache_kafka: None, tmp_path: Path) -> Iterator[TriokaProcess]:
    with TriokaProcess(tmp_path) as process:
        yield process


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder) as started:
        yield started


def executors(of: Cluster) -> list[psutil.Process]:
    below = [child for pid in of.pids for child in psutil.Process(pid).children(recursive=True)]
    found = []
    for one in below:
        with suppress(psutil.Error):  # it may have ended just now
            if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()):
                found.append(one)
    return found


@pytest.mark.nightly
def test_a_graph_runs_on_two_workers_with_its_modules_though_an_executor_is_killed(
    broker: TriokaProcess, standalone: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", HOST)  # of the driver
    graph = GraphHarness(topics=PipelineHarness(folder=tmp_path, bootstrap=broker.bootstrap))
    graph.topics.topic("numbers", [{"id": number} for number in range(RECORDS)])
    graph.topics.topic("copy", partitions=2)
    (tmp_path / "shares.py").write_text("def half(number):\n    return number / 2\n")
    graph.write(DEFINITIONS)
    driver = Driver(tmp_path / "pipeline.toml", broker.bootstrap, "--once", *OPTIONS, master=standalone.master)
    driver.wait_until(lambda: len(executors(standalone)) == WORKERS)
    driver.wait_until(lambda: ": batch 0:" in driver.log.read_text())
    time.sleep(random.Random(SEED).random())
    for one in executors(standalone)[:1]:
        one.kill()
    assert driver.finish() == 0, driver.log.read_text()
    rows = {row["id"]: row["half"] for row in graph.rows("odds")}
    assert rows == {number: number / 2 for number in ODD}
    assert len(graph.rows("odds")) == len(ODD)
    assert len(graph.rows("even")) == RECORDS - len(ODD)
    assert committed(broker.bootstrap, "copy") == list(range(RECORDS))
