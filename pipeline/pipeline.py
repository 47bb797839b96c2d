"""Pipelines for Python programs: the same as the command does, without a file if you like.

    from trioka.pipeline import Pipeline

    orders = Pipeline.read("orders.toml")               # or Pipeline({"name": "orders", "source": {…}, "sink": {…}})
    print(orders.plan())
    orders.run(once=True)
    orders.backfill(since="2026-11-01", into="tables/replayed")
    print([(lag.topic, lag.partition, lag.records) for lag in orders.lag()])

Spark and Kafka's client are loaded by the first method that needs them: together they take longer than the help of a
command may. A session that is there already is used and left running.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .declaration.model import Declaration, Start
from .declaration.plan import plan
from .declaration.toml_reader import milliseconds, positions, read, read_file
from .errors import WrongPipeline
from .installation.cache import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .sources.broker_view import Lag

LOCAL_MASTER = "local[*]"

# A point of a topic as a person says it: an end, a time, milliseconds, or offsets by topic and partition.
Point = str | int | Mapping[str, Mapping[Any, int]]


def point(given: Point) -> Start:
    """`ValueError` if it is none."""
    if isinstance(given, Mapping):
        return Start(offsets=positions(given))
    if given in ("earliest", "latest"):
        return Start(at="latest" if given == "latest" else "earliest")
    return Start(timestamp_ms=milliseconds(given))


class Pipeline:
    """`declared` is what it is made of; paths in a dictionary are relative to `folder`."""

    def __init__(
        self, declaration: Declaration | Mapping[str, Any], *, folder: str | Path = ".", bootstrap: str | None = None
    ) -> None:
        if isinstance(declaration, Declaration):
            self.declared = declaration
        else:
            self.declared = read(declaration, folder=folder, bootstrap=bootstrap)

    @classmethod
    def read(cls, path: str | Path, *, bootstrap: str | None = None) -> "Pipeline":
        """The pipeline in a TOML file; `bootstrap` replaces the one that it names."""
        return cls(read_file(path, bootstrap=bootstrap))

    def plan(self, *, asked: bool = False) -> str:
        """The plan in words. `asked`: the brokers are asked whether the topics are there, too."""
        return plan(self.declared, self.topics() if asked else None)

    def topics(self) -> dict[str, int]:
        """The topics of the source and how many partitions each has; `WrongPipeline` if any topic is missing, or if the
        schema is none.
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
    ) -> None:
        """Run until `stop` is set; with `once`, until everything that is there now has been read. `began` is called
        when the stream runs.
        """
        from .runner.run import run

        run(self.declared, once=once, master=master, settings=settings, say=say, stop=stop, began=began)

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
        """Read a bounded range again; how many offsets that were. See backfill.py for where it may go."""
        from .runner.backfill import Range, backfill

        try:
            wanted = Range(
                start=point(since), end=None if until is None else point(until), min_partitions=min_partitions
            )
        except ValueError as error:
            raise WrongPipeline(f"{error}.") from None
        return backfill(self.declared, wanted, target=into, master=master, settings=settings, say=say)

    def lag(self) -> "list[Lag]":
        """How far behind each partition is, by the pipeline's group; by its checkpoint if the group knows nothing."""
        from .runner.checkpoint import offsets_reached
        from .sources.broker_view import BrokerView

        with BrokerView(self.declared.source.bootstrap) as view:
            try:
                committed = view.committed(self.declared.group)
            except Unavailable:  # a broker without groups
                committed = {}
            return view.lag(self.declared.source, committed or offsets_reached(self.declared.checkpoint))

    def late_rows(self) -> int:
        """How many rows came later than the watermark allows and were dropped, by a checkpoint on this machine."""
        from .runner.checkpoint import late_rows

        return late_rows(self.declared.checkpoint)

    def frame(self, spark: "SparkSession") -> Any:
        """The table that the pipeline writes, as a DataFrame of a session that knows its catalog."""
        sink = self.declared.sink
        if sink.kind == "iceberg":
            return spark.table(sink.full_name)
        if sink.kind == "parquet":
            return spark.read.option("mergeSchema", "true").parquet(sink.path)
        raise WrongPipeline(f"{sink.target} is not a table.")
