"""A pipeline on Structured Streaming.

Each batch is planned, written to the checkpoint, run, delivered, and only then marked as finished in the checkpoint. If
a driver dies between the delivery and the mark, the next one runs the same batch again, and the table recognises it by
its commit. Before the delivery nothing is visible. So each row is in the table once, whenever a process is killed.

Checks before the first write, in this order: the brokers and topics, the schema, the checkpoint's disk,
Java and jars, the user's SQL, and whether the table and the checkpoint belong together.
"""

import logging
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ..declaration.model import Declaration, Source, TopicSink
from ..errors import InvalidPipeline, PipelineFailed, ResourceUnreachable, first_sentence
from ..installation.cache import Unreachable
from ..sources.broker_view import BrokerView
from ..sources.offsets import Ends, to_json
from ..tables.delivery import catalog_settings
from .session import is_local, session, source_options
from .stages import check_schema

# PySpark's own log of errors in queries, each with its stack.
PYSPARK_ERRORS = "DataFrameQueryContextLogger"
NO_ROOM = ("No space left on device", "Disk quota exceeded", "File too large")
NO_REGISTRY = re.compile(r"Unreachable: (The schema registry .*)")
NO_BROKER = ("org.apache.kafka.common.errors.TimeoutException", "Failed to get records", "DisconnectException")
MAX_REASON_CHARS = 600

Say = Callable[[str], None]


def silent(_: str) -> None:
    """The observer of callers that need only the errors."""


def look(declared: Declaration) -> dict[str, list[int]]:
    """The partitions of the source, after all checks that need neither Spark nor a write."""
    with BrokerView(declared.source.brokers) as view:
        found = check_topics(declared, view)
        view.resolve(found, declared.source.start)
    check_schema(declared.decoding)
    return found


def check_topics(declared: Declaration, view: BrokerView) -> dict[str, list[int]]:
    """The partitions of the source; `InvalidPipeline` names every topic that does not exist, including those of the
    sinks.
    """
    problems: list[str] = []
    found: dict[str, list[int]] = {}
    try:
        found = view.sources(declared.source)
    except InvalidPipeline as wrong:
        problems += wrong.problems
    for key, sink in (("sink", declared.sink), ("dead_letters", declared.dead_letters)):
        if isinstance(sink, TopicSink) and sink.bootstrap == view.bootstrap:
            there = view.partitions()
            if sink.topic not in there:
                problems.append(f"{key}.topic: {view.missing(sink.topic, there)}")
    if problems:
        raise InvalidPipeline(problems)
    return found


@contextmanager
def spark_for(declared: Declaration, master: str, settings: Mapping[str, str] | None) -> Iterator[SparkSession]:
    """A session with the pipeline's settings; it ends with the `with`, unless it existed before."""
    catalogs = catalog_settings(declared)
    with spark_with(
        f"trioka pipeline {declared.name}", master, settings, catalogs=catalogs, warehouse=_warehouse(declared)
    ) as spark:
        yield spark


@contextmanager
def spark_with(
    name: str, master: str, settings: Mapping[str, str] | None, *, catalogs: Mapping[str, str], warehouse: str
) -> Iterator[SparkSession]:
    """A session with these settings and catalogs; it ends with the `with`, unless it existed before."""
    # an active session belongs to a thread, this to the process
    was_there = SparkContext._active_spark_context is not None
    result = {"spark.sql.streaming.metricsEnabled": "false", **catalogs, **(settings or {})}
    if is_local(master):
        # Spark makes an empty folder for tables of its own, which nobody here has, in the current folder.
        result = {"spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"trioka-spark-{os.getuid()}"), **result}
        # With a cluster's default of shuffle partitions, a laptop would have two hundred state stores.
        result = {"spark.sql.shuffle.partitions": "4", **result}
    folder = Path(warehouse)
    is_made_here = bool(catalogs) and not folder.exists()
    interrupted = signal.getsignal(signal.SIGINT)
    spark = session(
        name,
        master=master,
        iceberg=bool(catalogs),
        warehouse=folder,
        settings=result,
    )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupted)  # PySpark has installed its own handler
    spark.sparkContext.setLogLevel("OFF")  # errors are raised, and reported in one sentence
    logging.getLogger(PYSPARK_ERRORS).setLevel(logging.CRITICAL)
    for key, value in catalogs.items():  # a session that existed before does not have these
        if key.startswith("spark.sql.catalog."):
            spark.conf.set(key, value)
    try:
        yield spark
    finally:
        if not was_there:
            spark.stop()
        if is_made_here:
            with suppress(OSError):  # not empty if it has tables, which it has unless an error came first
                folder.rmdir()


def _warehouse(declared: Declaration) -> str:
    for sink in (declared.sink, declared.dead_letters):
        if sink.kind == "iceberg" and sink.warehouse is not None and ":/" not in sink.warehouse:
            return sink.warehouse
    return "."


def stream_of(spark: SparkSession, source: Source, start: Ends) -> DataFrame:
    """The source as a stream. Records of aborted transactions are not read."""
    options = {"kafka.isolation.level": "read_committed", **source.options}
    reader = spark.readStream.format("kafka").options(**source_options(source.bootstrap, **options))
    reader = reader.options(
        startingOffsets=to_json(start), failOnDataLoss=str(source.stops_on_data_loss).lower(), **_which(source)
    )
    if source.max_records_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(source.max_records_per_batch))
    if source.min_partitions is not None:
        reader = reader.option("minPartitions", str(source.min_partitions))
    return reader.load()


def _which(source: Source) -> dict[str, str]:
    if source.pattern is not None:
        # Connectors differ in whether a pattern must match the whole name; this one always requires it.
        return {"subscribePattern": f"^(?:{source.pattern})$"}
    return {"subscribe": ",".join(source.topics)}


@contextmanager
def failures(declared: Declaration) -> Iterator[None]:
    """Convert an error of Spark to one of the three kinds of errors."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise explained(
            error, f"The pipeline {declared.name}", declared.checkpoint, declared.source.bootstrap
        ) from error


def explained(error: Exception, subject: str, checkpoint: str, brokers: str) -> PipelineFailed | Unreachable:
    """An error of Spark as one of the three kinds of errors: one sentence with the cause."""
    text = str(error)
    if any(word in text for word in NO_ROOM):
        return ResourceUnreachable(f"No space is left for the checkpoint {checkpoint} or for Spark's own files.")
    if any(word in text for word in NO_BROKER):
        return Unreachable(f"The brokers at {brokers} stopped answering.")
    if (registry := NO_REGISTRY.search(text)) is not None:
        return Unreachable(registry[1])
    message = first_sentence(error)[:MAX_REASON_CHARS]
    if isinstance(error, AnalysisException) and not isinstance(error, StreamingQueryException):
        return InvalidPipeline(message)
    return PipelineFailed(f"{subject} stopped: {message}")
