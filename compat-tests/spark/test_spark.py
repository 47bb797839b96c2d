"""Spark's own Kafka connector, unmodified, against trioka and against Apache Kafka: the same steps, the same rows.

One Spark session and one node of each broker serve all tests of this file, which is why it is one file. Before each
step trioka is killed without a warning and started again on its data and port; Apache Kafka is left in peace, so its
rows are those of an undisturbed broker. At the end trioka is killed in the middle of a stream, and then the driver is.
"""

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest
from oracle import ApacheKafka, die_with_parent
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from toolchains import unavailable
from trioka_process import TriokaProcess

from spark.contestants import GROUP, TRANSACTION, Contestant
from spark.driver import COLUMNS, QUICK
from spark.steps import PARTITIONS, STEPS, Place, Rows, Step, finish, keep, rows, settings, start
from trioka.pipeline.installation.cache import Unavailable
from trioka.pipeline.installation.jars import TESTED_PYSPARK
from trioka.pipeline.runner.session import session
from trioka.protocol.record import Record

DRIVER = Path(__file__).with_name("driver.py")
NEEDS = {GROUP: "consumer groups", TRANSACTION: "transactions"}
# A stream that is killed in the middle needs a middle: this many batches of so many records.
BATCHES = 6
BATCH_RECORDS = 90
PATIENCE_S = 300
POLL_S = 0.05

# PySpark leaves the sockets over which it collects rows to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """What PySpark left is gone before the next file of tests, where an unclosed socket is a mistake."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def spark(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    result = {**QUICK, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    # Whoever runs these tests with another PySpark wants to know that it was that one.
    assert pyspark.__version__ == os.environ.get("TRIOKA_PYSPARK", TESTED_PYSPARK)
    was_there = SparkContext._active_spark_context is not None  # of another file of tests
    try:
        started = session("compat", master="local[2]", settings=result)
    except Unavailable as missing:
        unavailable(missing)
    yield started
    if not was_there:
        started.stop()


@pytest.fixture(scope="module")
def trioka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contestant]:
    with TriokaProcess(tmp_path_factory.mktemp("trioka")) as process:

        def restart() -> None:
            process.kill()
            process.start()

        contestant = Contestant(name="trioka", bootstrap=process.bootstrap, restart=restart)
        yield contestant
        contestant.side.client.close()


@pytest.fixture(scope="module")
def kafka(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contestant]:
    with ApacheKafka(parent=tmp_path_factory.mktemp("kafka")) as node:
        contestant = Contestant(name="kafka", bootstrap=node.bootstrap)
        yield contestant
        contestant.side.client.close()


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def place(spark: SparkSession, trioka: Contestant, tmp_path: Path, numbers: Iterator[int]) -> Place:
    """For what is done to trioka alone."""
    return Place(spark=spark, broker=trioka, topic=f"alone-{next(numbers)}", folder=tmp_path)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_gives_the_rows_of_apache_kafka(
    step: Step, spark: SparkSession, trioka: Contestant, kafka: Contestant, tmp_path: Path, numbers: Iterator[int]
) -> None:
    if step.needs is not None and not trioka.has_coordinator(step.needs):
        pytest.skip(f"NEEDS {NEEDS[step.needs]}, for which trioka says that it has no coordinator")
    trioka.crash()
    topic = f"step-{next(numbers)}"

    def taken(broker: Contestant) -> Rows:
        folder = tmp_path / broker.name
        folder.mkdir()
        return step.take(Place(spark=spark, broker=broker, topic=topic, folder=folder))

    # Both at once, since much of a step is waiting.
    with settings(spark, step.settings), ThreadPoolExecutor(2) as pool:
        expected, found = pool.map(taken, (kafka, trioka))
    assert_same(step, expected, found)


def assert_same(step: Step, expected: Rows, found: Rows) -> None:
    assert len(expected) == step.count
    assert found == expected


def read_with_a_wrong_row(at: Place) -> Rows:
    """Three records, of which the last is another one on trioka."""
    at.broker.side.create_topic(at.topic, 1, retention_ms=-1)
    values = [b"a", b"b", b"x" if at.broker.name == "trioka" else b"c"]
    at.broker.plant(at.topic, 0, [Record(number, 1000, None, value) for number, value in enumerate(values)])
    return rows(at.read(), "partition", "offset", "cast(value as string)")


def test_a_planted_wrong_row_is_noticed(
    spark: SparkSession, trioka: Contestant, kafka: Contestant, tmp_path: Path, numbers: Iterator[int]
) -> None:
    step = Step(take=read_with_a_wrong_row, count=3)
    topic = f"planted-{next(numbers)}"
    expected, found = (
        step.take(Place(spark=spark, broker=one, topic=topic, folder=tmp_path)) for one in (kafka, trioka)
    )
    assert_same(step, expected, expected)
    for wrong in (found, expected[:-1], [*expected, expected[-1]]):
        with pytest.raises(AssertionError):
            assert_same(step, expected, wrong)


def planted(count: int) -> list[tuple[int, int, str]]:
    return sorted((number % PARTITIONS, number // PARTITIONS, f"v{number}") for number in range(count))


def found_in(spark: SparkSession, table: Path) -> Rows:
    return rows(spark.read.parquet(str(table)), "partition", "offset", "value")


def test_a_stream_goes_on_when_the_broker_is_killed_in_the_middle(place: Place) -> None:
    """Killed after the third batch has begun; every row is there once when the stream has come to its end."""
    count = BATCHES * BATCH_RECORDS
    place.planted(count=count)
    reached = threading.Event()

    def kept(batch: DataFrame, number: int) -> None:
        if number == 3:
            reached.set()
        keep(place.folder, batch, number)

    query = start(place, place.read_stream(maxOffsetsPerTrigger=BATCH_RECORDS), each=kept)
    assert reached.wait(PATIENCE_S)
    place.broker.crash()
    finish(query)
    assert found_in(place.spark, place.folder / "batches") == planted(count)


def test_records_written_while_the_broker_is_killed_are_all_there(place: Place) -> None:
    """The sink is at least once: a record may be there twice, none is missing."""
    place.broker.side.create_topic(place.topic, PARTITIONS)
    count = 20_000
    failures: list[BaseException] = []

    def write() -> None:
        try:
            place.write(place.numbers(count), topic=place.topic)
        except BaseException as failure:
            failures.append(failure)

    writing = threading.Thread(target=write)
    writing.start()
    place.broker.crash()
    writing.join()
    assert not failures
    read = {value for (value,) in rows(place.read(), "cast(value as string)")}
    assert read == {f"v{number}" for number in range(count)}


@pytest.mark.nightly  # the kills of pipelines show it in each run
def test_a_killed_driver_loses_and_repeats_nothing(place: Place) -> None:
    """The driver is killed while it writes a batch of a Parquet file sink, and the broker with it; another driver goes
    on from the checkpoint.
    """
    count = BATCHES * BATCH_RECORDS
    place.planted(count=count)
    table, checkpoint = place.folder / "table", place.folder / "checkpoint"
    driver = subprocess.Popen(
        [sys.executable, DRIVER, place.broker.bootstrap, place.topic, table, checkpoint, str(BATCH_RECORDS)],
        start_new_session=True,  # so that its JVM, which is another process, can be killed with it
        preexec_fn=die_with_parent(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_batches(driver, checkpoint / "commits", 2)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    place.broker.crash()
    assert len(committed(checkpoint / "commits")) < BATCHES, "it was killed too late to prove anything"
    frame = place.read_stream(maxOffsetsPerTrigger=BATCH_RECORDS).selectExpr(*COLUMNS)
    finish(start(place, frame, format="parquet", path=str(table)))
    assert found_in(place.spark, table) == planted(count)


def committed(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("[0-9]*")] if folder.exists() else []


def wait_for_batches(driver: subprocess.Popen[str], commits: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(committed(commits)) < count:
        assert driver.poll() is None, driver.stderr and driver.stderr.read()
        assert time.monotonic() < deadline, f"the driver has not committed {count} batches"
        time.sleep(POLL_S)
