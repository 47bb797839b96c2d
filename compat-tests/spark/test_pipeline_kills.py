"""Pipelines that are killed: the driver at chosen and at seeded moments, and the broker. In the end each row is
there once.

The chosen moments are those that a promise of exactly once can break at, seen from outside by the files that appear: a
batch is half written; its rows are in the table but Spark has not ticked it off; it is ticked off and the next one
begins. `TRIOKA_SPARK_KILLS` asks for more kills at seeded moments than the few of a usual run, and `TRIOKA_SPARK_ALL`
for the last of the chosen moments too, which is the mildest.
"""

import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from trioka_process import TriokaProcess

from spark.pipelines import Driver, PipelineHarness

KILLS = int(os.environ.get("TRIOKA_SPARK_KILLS", "1"))
SEED = int(os.environ.get("TRIOKA_SEED", "20261116"))
MOMENTS = ["is_half_written", "is_not_ticked_off", "is_ticked_off"][: 3 if os.environ.get("TRIOKA_SPARK_ALL") else 1]
RECORDS = 240
BATCH = 40
BROKEN_EVERY = 10
MAX_STARTS = 5
UNREACHABLE = 3  # the exit code of a driver whose brokers do not answer

DECLARATION = """
name = "killed"
every = "1 second"

[source]
topics = ["killed"]
max_records_per_batch = {batch}

[decode]
format = "json"
schema = "id BIGINT NOT NULL"

[sink]
{sink}

[dead_letters]
kind = "parquet"
path = "dead"
"""
PARQUET = 'kind = "parquet"\npath = "table"'
ICEBERG = 'kind = "iceberg"\nwarehouse = "warehouse"\ntable = "shop.killed"'
WINDOWS = """
[watermark]
column = "kafka_timestamp"
delay = "1 minute"

[deduplicate]
keys = ["id"]
"""


@pytest.fixture
def broker(apache_kafka: None, tmp_path: Path) -> Iterator[TriokaProcess]:
    with TriokaProcess(tmp_path) as process:
        yield process


def planted(broker: TriokaProcess, folder: Path, text: str) -> tuple[PipelineHarness, Path]:
    workshop = PipelineHarness(folder=folder, bootstrap=broker.bootstrap)
    workshop.topic("killed", [message(number) for number in range(RECORDS)])
    file = folder / "killed.toml"
    file.write_text(text)
    return workshop, file


def message(number: int) -> bytes:
    return b"broken" if number % BROKEN_EVERY == 0 else b'{"id": %d}' % number


def assert_each_row_once(ids: list[int], workshop: PipelineHarness) -> None:
    assert sorted(ids) == [number for number in range(RECORDS) if number % BROKEN_EVERY]
    dead = sorted((row["kafka_partition"], row["kafka_offset"]) for row in workshop.parquet("dead"))
    assert dead == sorted((number % 2, number // 2) for number in range(0, RECORDS, BROKEN_EVERY))


class Files:
    """What a driver has done so far, by the files that it made."""

    def __init__(self, folder: Path) -> None:
        self._table = folder / "table"
        self._ticks = folder / "checkpoints" / "killed" / "records" / "commits"

    def commits(self) -> int:
        return sum(1 for _ in self._table.glob("commit=*"))

    def ticks(self) -> int:
        return sum(1 for one in self._ticks.glob("*") if one.name.isdigit())

    def is_half_written(self) -> bool:
        return self.commits() >= 1 and any((self._table / "_staging").rglob("*.parquet"))

    def is_not_ticked_off(self) -> bool:
        return self.commits() >= 2 and self.commits() > self.ticks()

    def is_ticked_off(self) -> bool:
        return self.ticks() >= 3 and self.ticks() == self.commits()


@pytest.mark.nightly  # the one below kills a driver and a broker in each run
@pytest.mark.parametrize("moment", MOMENTS)
def test_each_row_is_in_a_parquet_table_once_whenever_the_driver_is_killed(
    broker: TriokaProcess, tmp_path: Path, moment: str
) -> None:
    workshop, file = planted(broker, tmp_path, DECLARATION.format(batch=BATCH, sink=PARQUET))
    happened = getattr(Files(tmp_path), moment)
    # A moment may have passed when the kill comes; the files say whether it had.
    hits = 0
    while hits == 0 and Driver(file, broker.bootstrap, "--once").kill_when(happened):
        hits += happened()
    assert hits == 1
    chance = random.Random(SEED)
    for _ in range(KILLS - 1):
        driver = Driver(file, broker.bootstrap, "--once")
        driver.kill_when(partial(_seeded, driver, chance.randrange(3), chance.random()))
    driver = Driver(file, broker.bootstrap, "--once")
    assert driver.finish() == 0, driver.log.read_text()
    assert_each_row_once([row["id"] for row in workshop.parquet()], workshop)


def _seeded(driver: Driver, batches: int, seconds: float) -> bool:
    if driver.batches() < batches:
        return False
    time.sleep(seconds)
    return True


def test_each_row_is_in_an_iceberg_table_once_though_driver_and_broker_are_killed(
    broker: TriokaProcess, tmp_path: Path
) -> None:
    """Deduplication gives the query a state, which must come through the kills as well."""
    workshop, file = planted(broker, tmp_path, DECLARATION.format(batch=BATCH, sink=ICEBERG) + WINDOWS)
    snapshots = tmp_path / "warehouse" / "shop" / "killed" / "metadata"
    chance = random.Random(SEED)
    for round in range(KILLS):
        wanted = 2 + 2 * round
        pause = chance.random() / 4
        driver = Driver(file, broker.bootstrap)
        assert driver.kill_when(partial(_snapshots, snapshots, wanted, pause))
    driver = Driver(file, broker.bootstrap, "--once")
    driver.wait_until(lambda: driver.batches() >= 1)
    broker.kill()
    broker.start()
    # A driver may give up on a broker that needs long for its start, and says so; then it is started again.
    for _ in range(MAX_STARTS):
        if (code := driver.finish()) != UNREACHABLE:
            break
        driver = Driver(file, broker.bootstrap, "--once")
    assert code == 0, driver.log.read_text()
    assert_each_row_once(ids_in_iceberg(workshop), workshop)


def ids_in_iceberg(workshop: PipelineHarness) -> list[int]:
    return [row["id"] for row in workshop.iceberg("killed")]


def _snapshots(folder: Path, count: int, pause: float) -> bool:
    if sum(1 for _ in folder.glob("snap-*.avro")) < count:
        return False
    time.sleep(pause)
    return True
