"""A graph whose driver is killed at seeded moments: a table, its dead letters, a history of changes and a topic have
each row once in the end. `TRIOKA_SPARK_KILLS` is the number of kills.
"""

import os
import random
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from trioka_process import TriokaProcess

from spark.graphs import GraphHarness
from spark.pipelines import Driver, PipelineHarness, committed

KILLS = int(os.environ.get("TRIOKA_SPARK_KILLS", "3"))
SEED = int(os.environ.get("TRIOKA_SEED", "20261116"))
RECORDS = 240
BROKEN_EVERY = 10
GOOD = [number for number in range(RECORDS) if number % BROKEN_EVERY]

DEFINITIONS = """
def source():
    schema = "id BIGINT NOT NULL, seq BIGINT NOT NULL"
    return read_topic("killed", schema=schema, bootstrap=BROKERS, options={"maxOffsetsPerTrigger": "40"})

dp.create_streaming_table("dead")
dp.create_sink("copy", "kafka", {"kafka.bootstrap.servers": BROKERS, "topic": "copy"})

@dp.table
@dead_letters("dead")
def orders():
    return source()

@dp.table
def after_orders():
    return spark.readStream.table("orders").select("id")

@dp.append_flow(target="copy")
def copied():
    text = F.col("id").cast("string")
    return source().where("kafka_refused IS NULL").select(text.alias("key"), text.alias("value"))

@dp.temporary_view
def changes():
    return source().where("kafka_refused IS NULL").selectExpr("id % 7 AS key", "id AS value", "seq")

dp.create_streaming_table("latest")
create_auto_cdc_flow(target="latest", source="changes", keys=["key"], sequence_by="seq", except_column_list=["seq"])
"""


@pytest.fixture
def broker(apache_kafka: None, tmp_path: Path) -> Iterator[TriokaProcess]:
    with TriokaProcess(tmp_path) as process:
        yield process


def message(number: int) -> bytes:
    return b"broken" if number % BROKEN_EVERY == 0 else b'{"id": %d, "seq": %d}' % (number, number)


def batches(driver: Driver) -> int:
    return len(re.findall(r"^shop\.\w+: batch", driver.log.read_text(), re.M))


def at(driver: Driver, count: int, seconds: float) -> bool:
    if batches(driver) < count:
        return False
    time.sleep(seconds)
    return True


@pytest.mark.nightly
def test_each_row_is_once_in_every_target_of_a_graph_whose_driver_is_killed(
    broker: TriokaProcess, tmp_path: Path
) -> None:
    graph = GraphHarness(topics=PipelineHarness(folder=tmp_path, bootstrap=broker.bootstrap))
    graph.topics.topic("killed", [message(number) for number in range(RECORDS)])
    graph.topics.topic("copy", partitions=3)
    graph.write(DEFINITIONS)
    file = tmp_path / "pipeline.toml"
    chance = random.Random(SEED)
    for _ in range(KILLS):
        driver = Driver(file, broker.bootstrap)
        assert driver.kill_when(partial(at, driver, 1 + chance.randrange(4), chance.random()))
    last = Driver(file, broker.bootstrap, "--once")
    assert last.finish() == 0, last.log.read_text()
    assert sorted(row["id"] for row in graph.rows("orders")) == GOOD
    assert sorted(row["id"] for row in graph.rows("after_orders")) == GOOD
    dead = sorted((row["kafka_partition"], row["kafka_offset"]) for row in graph.rows("dead"))
    assert dead == sorted((number % 2, number // 2) for number in range(0, RECORDS, BROKEN_EVERY))
    assert committed(broker.bootstrap, "copy") == GOOD
