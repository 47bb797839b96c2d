"""A pipeline on Structured Streaming.

Each batch is planned, written to the checkpoint, run, delivered, and only then marked as finished in the checkpoint. If
a driver dies between the delivery and the mark, the next one runs the same batch again, and the table recognises it by
its commit. Before the delivery nothing is visible. So each row is in the table once, whenever a process is killed.

Checks before the first write, in this order: the brokers and topics, the schema, the checkpoint's disk,
Java and jars, the user's SQL, and whether the table and the checkpoint belong together.
"""

import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ..declaration.model import Declaration, Source, TopicSink
from ..errors import InvalidPipeline, PipelineFailed, ResourceUnreachable, first_sentence
from ..installation.cache import Unreachable
from ..sources.broker_view import BrokerView
from ..sources.offsets import Commit, Ends, to_json
from ..sources.start_offsets import StartOffsets
from ..sources.topics import Topics
from ..tables.delivery import Delivery, catalog_settings, dead_letters_of, rows_of
from . import checkpoint as checkpoints
from .checkpoint import DEAD_LETTERS, RECORDS, Checkpoint
from .group_progress import GroupProgress
from .late import LateRows
from .session import LOCAL_MASTER, is_local, session, source_options
from .stages import Stages, check_schema
from .state import state_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.5
# PySpark's own log of errors in queries, each with its stack.
PYSPARK_ERRORS = "DataFrameQueryContextLogger"
NO_ROOM = ("No space left on device", "Disk quota exceeded", "File too large")
NO_REGISTRY = re.compile(r"Unreachable: (The schema registry .*)")
NO_BROKER = ("org.apache.kafka.common.errors.TimeoutException", "Failed to get records", "DisconnectException")
MAX_REASON_CHARS = 600

Say = Callable[[str], None]


def silent(_: str) -> None:
    """The observer of callers that need only the errors."""


def run(
    declared: Declaration,
    *,
    once: bool = False,
    master: str = LOCAL_MASTER,
    settings: Mapping[str, str] | None = None,
    say: Say = silent,
    stop: threading.Event | None = None,
    began: Callable[[], None] = lambda: None,
) -> None:
    """Run until `stop` is set or an error occurs; with `once`, until the records that exist now have been read."""
    look(declared)
    checkpoints.probe(declared.checkpoint)
    with spark_for(declared, master, settings) as spark, failures(declared):
        Run(spark, declared, say).run(once=once, stop=stop or threading.Event(), began=began)


def look(declared: Declaration) -> dict[str, list[int]]:
    """The partitions of the source, after all checks that need neither Spark nor a write."""
    with BrokerView(declared.source.bootstrap) as view:
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


class Run:
    """One run of a pipeline in a session."""

    def __init__(self, spark: SparkSession, declared: Declaration, say: Say) -> None:
        self._spark = spark
        self._declared = declared
        self._say = say
        self._checkpoint = Checkpoint(spark, declared.checkpoint)
        self._stages = Stages(declared)
        self._late = LateRows(self._checkpoint, say)
        self._failure: Exception | None = None
        self._queries: dict[str, StreamingQuery] = {}

    def run(self, *, once: bool, stop: threading.Event, began: Callable[[], None]) -> None:
        declared = self._declared
        placeholder = self._stages.accepted(stream_of(self._spark, declared.source, {}))  # enough to check the plan
        state = state_of(placeholder)
        rows = rows_of(declared, is_stateful=state.is_kept)
        rows.analyse(placeholder)
        self._checkpoint.take()
        try:
            with Topics(declared.source.bootstrap, self._checkpoint) as topics:
                starts = StartOffsets(self._spark, declared, self._checkpoint, topics, state).find()
                records, others = (
                    stream_of(self._spark, declared.source, starts[one]) for one in (RECORDS, DEAD_LETTERS)
                )
                with GroupProgress(declared.source.bootstrap, declared.group, self._say) as progress:
                    mode = "update" if declared.aggregation and declared.aggregation.emits_updates else "append"
                    self._start(RECORDS, self._stages.accepted(records), rows, mode, once, topics, progress)
                    if (dead_letters := dead_letters_of(declared)) is not None:
                        refused = self._stages.refused(others)
                        self._start(DEAD_LETTERS, refused, dead_letters, "append", once, topics, None)
                    began()
                    self._wait(stop)
        finally:
            with suppress(PySparkException, Py4JError, OSError):  # the JVM may have ended, which released everything
                for query in self._queries.values():
                    query.stop()
                self._late.end(self._queries.get(RECORDS))
                self._checkpoint.release()

    def _start(
        self,
        name: str,
        rows: DataFrame,
        delivery: Delivery,
        mode: str,
        once: bool,
        topics: Topics,
        progress: GroupProgress | None,
    ) -> None:
        declared = self._declared

        def deliver(batch: DataFrame, number: int) -> None:
            try:
                start, end = self._checkpoint.batch(name, number)
                run_id = self._checkpoint.run_id(name)
                ids = topics.confirm(end)
                commit = Commit(pipeline=declared.name, run=run_id, batch=number, start=start, end=end, topics=ids)
                is_new = delivery.deliver(batch, commit, partial(topics.confirm, end))
            except Exception as failure:
                # Keep the Python exception: Java would return a long text, which Spark itself may fail to parse.
                self._failure = failure
                raise RuntimeError("the batch was not delivered") from None
            if progress is not None:
                progress.tell(end)
            self._say(f"{name}: batch {number}{'' if is_new else ' was there already'}")

        writer = rows.writeStream.queryName(f"{declared.name} {name}").outputMode(mode).foreachBatch(deliver)
        writer = writer.option("checkpointLocation", self._checkpoint.of(name))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=declared.every)
        self._queries[name] = writer.start()

    def _wait(self, stop: threading.Event) -> None:
        """Wait until all queries have ended, one has failed, or a stop is requested."""
        while not stop.wait(POLL_S):
            for query in self._queries.values():
                if (failure := query.exception()) is not None:
                    raise self._failure or failure
            self._late.look(self._queries[RECORDS])
            if not any(query.isActive for query in self._queries.values()):
                return


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
