"""Pipelines that are graphs, for Python programs and for the commands.

from trioka.pipeline import GraphPipeline

shop = GraphPipeline.read("shop/pipeline.toml")      # or a spark-pipeline.yml, or one file of definitions
print(shop.check())                                  # the graph as text, analysed by Spark, nothing written
shop.run(once=True)
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .graph.spec import GraphSpec, read_spec
from .pipeline import LOCAL_MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .graph.drawing import Drawing

Say = Callable[[str], None]


def silent(_: str) -> None:
    """The observer of callers that need only the errors."""


class GraphPipeline:
    def __init__(self, spec: GraphSpec) -> None:
        self.spec = spec

    @classmethod
    def read(cls, path: str | Path) -> "GraphPipeline":
        return cls(read_spec(Path(path)))

    def drawing(
        self, *, asked: bool = False, master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None
    ) -> "Drawing":
        """The graph as it can be drawn. Spark analyses every query; nothing is written. `asked`: also check on the
        brokers that the topics exist.
        """
        from .flows.graph_run import checked
        from .graph.definitions import read_definitions
        from .graph.drawing import drawing_of

        with self._session(master, settings) as spark:
            graph = read_definitions(self.spec, spark)
            analysis = checked(spark, self.spec, graph, asked=asked)
            return drawing_of(graph, analysis.reads, analysis.topics())

    def run(
        self,
        *,
        once: bool = False,
        master: str = LOCAL_MASTER,
        settings: Mapping[str, str] | None = None,
        say: Say = silent,
        stop: threading.Event | None = None,
        began: Callable[[], None] = lambda: None,
        events: Path | None = None,
        metrics_port: int = 0,
    ) -> None:
        """Run until `stop` is set or a flow fails; with `once`, until the records that exist now have been read."""
        from .flows.events import EVENTS_FILE, EventLog
        from .flows.graph_run import GraphRun, event_file, prepared
        from .flows.metrics import Metrics
        from .runner import checkpoint

        checkpoint.probe(self.spec.checkpoint)
        with self._session(master, settings) as spark:
            analysis, tables = prepared(spark, self.spec)
            log = EventLog(event_file(self.spec, events, EVENTS_FILE))
            with Metrics(self.spec.name, metrics_port) as metrics, log:
                run = GraphRun(spark, self.spec, analysis, tables, say=say, metrics=metrics, events=log)
                run.run(once=once, stop=stop or threading.Event(), began=began)

    def maintain(
        self,
        *,
        keep: timedelta,
        master: str = LOCAL_MASTER,
        settings: Mapping[str, str] | None = None,
        say: Say = silent,
    ) -> None:
        """Compact the tables, and remove snapshots and files that are older than `keep`."""
        from .changes.merge import DELETIONS
        from .flows.targets import Tables
        from .graph.definitions import read_definitions
        from .tables.maintenance import maintain

        with self.session(master=master, settings=settings) as spark:
            graph = read_definitions(self.spec, spark)
            tables = Tables(spark, self.spec)
            for output in graph.outputs:
                if output.is_table:
                    catalog, table = tables.names(output.name)
                    for name in (table, f"{table}{DELETIONS}"):
                        maintain(spark, catalog, name, now=datetime.now(UTC), keep=keep, say=say)

    @contextmanager
    def session(
        self, *, master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None
    ) -> "Iterator[SparkSession]":
        """A session whose current catalog and database are the pipeline's."""
        from .flows.targets import database_created

        with self._session(master, settings) as spark:
            database_created(spark, self.spec)
            yield spark

    @contextmanager
    def _session(self, master: str, settings: Mapping[str, str] | None) -> "Iterator[SparkSession]":
        from .runner.run import spark_with
        from .runner.session import is_local
        from .tables.delivery import catalog_of

        spec = self.spec
        catalogs = catalog_of(spec.catalog, spec.warehouse, {}) | dict(spec.settings)
        with spark_with(
            f"trioka pipeline {spec.name}", master, settings, catalogs=catalogs, warehouse=spec.warehouse or "."
        ) as spark:
            before = spark.catalog.currentCatalog()
            try:
                if is_local(master):
                    yield spark
                else:
                    with self._modules_sent(spark):
                        yield spark
            finally:
                if spark.sparkContext._jsc is not None:  # a session that was there before goes on
                    spark.catalog.setCurrentCatalog(before)

    @contextmanager
    def _modules_sent(self, spark: "SparkSession") -> Iterator[None]:
        """The workers of a cluster can import the modules beside the definitions, which they fetch when they start."""
        from .package import write_package

        with tempfile.TemporaryDirectory(prefix="trioka-package-") as folder:
            package = Path(folder) / f"{self.spec.name}.zip"
            write_package(self.spec, package)
            spark.sparkContext.addPyFile(str(package))
            yield
