"""Definition files of a graph, unchanged, by Spark's own runner: `spark-pipelines run`, on Spark Connect.

It needs grpcio-status, which nothing else here does, so that is installed into the cache folder, pinned by its hash.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from trioka_process import TriokaProcess

from spark.driver import QUICK
from spark.pipelines import PipelineHarness
from trioka.pipeline.installation.cache import folder, locked
from trioka.pipeline.installation.java import installer
from trioka.pipeline.runner.session import prepare

PINS = Path(__file__).with_name("spark-pipelines.txt")
TIMEOUT_S = 300
NAMESPACE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
spark.sql("CREATE NAMESPACE trioka.shop")
spark.stop()
"""
SPEC = """
name: shop
catalog: trioka
database: shop
storage: file://{folder}/storage
libraries:
  - glob:
      include: definitions/**
"""
ORDERS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from trioka.pipeline import expect, expect_or_drop, read_topic

@dp.temporary_view
def decoded_orders():
    return read_topic("orders", schema="id BIGINT NOT NULL, customer BIGINT, amount DOUBLE").where(
        "kafka_refused IS NULL"
    )

@dp.table
@expect("has a customer", "customer IS NOT NULL")
@expect_or_drop("an amount is above zero", "amount > 0")
def orders():
    return SparkSession.active().readStream.table("decoded_orders").select("id", "customer", "amount")
"""
TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;"


@pytest.fixture
def broker(apache_kafka: None, tmp_path: Path) -> Iterator[TriokaProcess]:
    with TriokaProcess(tmp_path) as process:
        yield process


def library() -> Path:
    digest = hashlib.sha256(PINS.read_bytes() + sys.executable.encode()).hexdigest()[:12]
    home = folder("spark-pipelines") / digest
    with locked(f"spark-pipelines-{digest}"):
        if not home.exists():
            beside = Path(tempfile.mkdtemp(dir=home.parent, prefix=".making-"))
            try:
                subprocess.run(
                    [*installer(), "--target", beside, "--no-deps", "--require-hashes", "-r", PINS], check=True
                )
                beside.rename(home)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return home


@pytest.mark.nightly
def test_definition_files_run_unchanged_by_spark_pipelines(broker: TriokaProcess, tmp_path: Path) -> None:
    topics = PipelineHarness(folder=tmp_path, bootstrap=broker.bootstrap)
    topics.topic("orders", [b"{", *({"id": id, "customer": id % 2, "amount": float(id)} for id in range(6))])
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "orders.py").write_text(ORDERS)
    (tmp_path / "definitions" / "totals.sql").write_text(TOTALS)
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    (tmp_path / "warehouse").mkdir()
    prepared = prepare(master="local[2]", iceberg=True, warehouse=tmp_path / "warehouse", settings=QUICK)
    # It refuses a master, and takes catalogs only from the file of defaults.
    lines = [f"{key} {value}" for key, value in prepared.settings.items() if key != "spark.master"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    environment = {
        **os.environ,
        **prepared.environment,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(tmp_path),
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
        "PYTHONPATH": os.pathsep.join([str(library()), *sys.path]),
    }
    script = Path(sys.executable).with_name("spark-pipelines")
    commands: list[list[str | Path]] = [
        [sys.executable, "-c", NAMESPACE],
        [script, "run", "--spec", tmp_path / "spark-pipeline.yml"],
    ]
    for command in commands:
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(row["id"] for row in topics.iceberg("orders")) == [1, 2, 3, 4, 5]
    assert {row["customer"]: row["total"] for row in topics.iceberg("totals")} == {0: 6.0, 1: 9.0}
