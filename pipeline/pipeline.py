"""Pipelines for Python programs: the same operations as the command, with or without a file.

    from trioka.pipeline import Pipeline

    orders = Pipeline.read("orders.toml")               # or Pipeline({"name": "orders", "source": {…}, "sink": {…}})
    print(orders.plan())
    orders.run(once=True)
    orders.backfill(since="2026-11-01", into="tables/replayed")
    print([(lag.topic, lag.partition, lag.records) for lag in orders.lag()])

The first method that needs Spark or a Kafka client imports it, because the imports are too slow for the help of a
command. An existing session is used and left running.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .declaration.model import Declaration, Start
from .declaration.plan import plan
from .declaration.toml_reader import milliseconds, positions, read, read_file
from .errors import InvalidPipeline
from .installation.cache import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .graph.drawing import Drawing
    from .sources.broker_view import Lag

LOCAL_MASTER = "local[*]"

# A position in a topic as users write it: an end, a time, milliseconds, or offsets by topic and partition.
Point = str | int | Mapping[str, Mapping[Any, int]]


def point(given: Point) -> Start:
    """Parse a position; `ValueError` if it is invalid."""
    if isinstance(given, Mapping):
        return Start(offsets=positions(given))
    if given in ("earliest", "latest"):
        return Start(at="latest" if given == "latest" else "earliest")
    return Start(timestamp_ms=milliseconds(given))


class Pipeline:
    """`declared` is the declaration; paths in a dictionary are relative to `folder`."""

    def __init__(
        self, declaration: Declaration | Mapping[str, Any], *, folder: str | Path = ".", bootstrap: str | None = None
    ) -> None:
        if isinstance(declaration, Declaration):
            self.declared = declaration
        else:
            self.declared = read(declaration, folder=folder, bootstrap=bootstrap)

    @classmethod
    def read(cls, path: str | Path, *, bootstrap: str | None = None) -> "Pipeline":
        """The pipeline in a TOML file; `bootstrap` replaces the address in it."""
        return cls(read_file(path, bootstrap=bootstrap))

    def plan(self, *, asked: bool = False) -> str:
        """The plan as text. `asked`: also check on the brokers that the topics exist."""
        return plan(self.declared, self.topics() if asked else None)

    def topics(self) -> dict[str, int]:
        """The topics of the source with their partition counts; `InvalidPipeline` if a topic is missing or the schema
        invalid.
        """
        from .runner.run import look

        return {name: len(ones) for name, ones in look(self.declared).items()}

    def run(
        self,
        *,
        once: bool = False,
        master: str = LOCAL_MASTER,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
        stop: threading.Event | None = None,
        began: Callable[[], None] = lambda: None,
        events: Path | None = None,
        metrics_port: int = 0,
    ) -> None:
        """Run until `stop` is set; with `once`, until the records that exist now have been read. Calls `began` when the
        stream runs. `events` is a file for the log of batches.
        """
        from .runner.declared_run import run

        run(
            self.declared,
            once=once,
            master=master,
            settings=settings,
            say=say,
            stop=stop,
            began=began,
            events=events,
            metrics_port=metrics_port,
        )

    def analyse(self, *, master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None) -> None:
        """Let Spark analyse SQL, rules and the sink's columns, without reading or writing anything."""
        from .runner.declared_run import analyse

        analyse(self.declared, master, settings)

    def maintain(
        self,
        *,
        keep: timedelta,
        master: str = LOCAL_MASTER,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Compact the Iceberg tables, and remove snapshots and files that are older than `keep`."""
        from .runner.run import spark_for
        from .tables.maintenance import maintain

        tables = [one for one in (self.declared.sink, self.declared.dead_letters) if one.kind == "iceberg"]
        if not tables:
            raise InvalidPipeline("This pipeline writes no Iceberg table, so there is nothing to maintain.")
        with spark_for(self.declared, master, settings) as spark:
            for sink in tables:
                maintain(spark, sink.catalog, sink.table, now=datetime.now(UTC), keep=keep, say=say)

    def drawing(self) -> "Drawing":
        """The pipeline as a graph: its topics, its table, and its dead letters."""
        from .declaration.graph import declared_drawing

        return declared_drawing(self.declared)

    def backfill(
        self,
        *,
        since: Point = "earliest",
        until: Point | None = None,
        min_partitions: int | None = None,
        into: str | None = None,
        master: str = LOCAL_MASTER,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Read a bounded range again; returns the number of offsets. See backfill.py for the possible targets."""
        from .runner.backfill import Range, backfill

        try:
            wanted = Range(
                start=point(since), end=None if until is None else point(until), min_partitions=min_partitions
            )
        except ValueError as error:
            raise InvalidPipeline(f"{error}.") from None
        return backfill(self.declared, wanted, target=into, master=master, settings=settings, say=say)

    def lag(self) -> "list[Lag]":
        """The lag of each partition, by the pipeline's group, or by its checkpoint if the group has no offsets."""
        from .runner.checkpoint import offsets_reached
        from .sources.broker_view import BrokerView

        with BrokerView(self.declared.source.brokers) as view:
            try:
                committed = view.committed(self.declared.group)
            except Unavailable:  # a broker without groups
                committed = {}
            return view.lag(self.declared.source, committed or offsets_reached(self.declared.checkpoint))

    def late_rows(self) -> int:
        """The number of rows that were dropped because they were later than the watermark allows, by a checkpoint on
        this machine.
        """
        from .runner.checkpoint import late_rows

        return late_rows(self.declared.checkpoint)

    def frame(self, spark: "SparkSession") -> Any:
        """The table that the pipeline writes, as a DataFrame of a session that knows its catalog."""
        sink = self.declared.sink
        if sink.kind == "iceberg":
            return spark.table(sink.full_name)
        if sink.kind == "parquet":
            return spark.read.option("mergeSchema", "true").parquet(sink.path)
        raise InvalidPipeline(f"{sink.target} is not a table.")
