"""What flows deliver to: tables of the catalog, topics, and the other sinks of Spark.

    class Target:
        commits()                         the batches that it has, of every flow; nothing if it cannot know
        holds(commit)                     whether it has this batch
        deliver(rows, commit, confirm)    the rows; `confirm` is called when they are ready to be seen, and what it
                                          raises keeps them unseen, as far as the target can
        is_seen_later                     whether `confirm` is called after all rows were computed

Tables have each batch once: rows and progress change in one step (`tables/sinks.py`). Topics have each batch once by
transactions (`tables/topic_transactions.py`). Any other sink of Spark gets a batch again if the driver died in it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..declaration.model import IcebergSink
from ..errors import InvalidPipeline
from ..expectations.judge import letters_as_messages
from ..graph.analysis import quoted
from ..graph.elements import Output
from ..graph.spec import GraphSpec
from ..sources.offsets import Commit
from ..tables.sinks import Confirm, IcebergTable
from ..tables.topic_transactions import OWN_OPTIONS

CONSOLE_ROWS = 20


class Target(Protocol):
    @property
    def is_seen_later(self) -> bool: ...
    def commits(self) -> list[Commit]: ...
    def holds(self, commit: Commit) -> bool: ...
    def deliver(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None: ...


class TableTarget:
    is_seen_later = True

    def __init__(self, spark: SparkSession, sink: IcebergSink) -> None:
        self.sink = sink
        self._spark = spark

    def commits(self) -> list[Commit]:
        return IcebergTable(self._spark, self.sink).commits()

    def has_rows(self) -> bool:
        return IcebergTable(self._spark, self.sink).has_rows()

    def holds(self, commit: Commit) -> bool:
        return IcebergTable(self._spark, self.sink).holds(commit)

    def deliver(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None:
        IcebergTable(rows.sparkSession, self.sink).append(rows, commit, confirm)


class SparkSink:
    """A sink that only Spark knows. It cannot tell which batches it has."""

    is_seen_later = False

    def __init__(self, output: Output) -> None:
        self._output = output

    def commits(self) -> list[Commit]:
        return []

    def holds(self, commit: Commit) -> bool:
        return False

    def deliver(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None:
        confirm()
        options = self._output.options
        if self._output.format == "console":
            rows.show(int(options.get("numRows", CONSOLE_ROWS)), truncate=options.get("truncate", "true") == "true")
            return
        if self._output.format == "kafka" and "value" not in rows.columns and "reason" in rows.columns:
            rows = letters_as_messages(rows)
        given = {key: value for key, value in options.items() if key not in OWN_OPTIONS}
        rows.write.format(str(self._output.format)).options(**given).mode("append").save()


class Tables:
    """The tables of a graph in the catalog: their full names, and their creation."""

    def __init__(self, spark: SparkSession, spec: GraphSpec) -> None:
        self._spark = spark
        self._spec = spec

    def sink(self, output: Output) -> IcebergSink:
        catalog, table = self.names(output.name)
        return IcebergSink(
            catalog=catalog, table=table, warehouse=None, properties={}, partition_by=output.partition_by
        )

    def names(self, name: str) -> tuple[str, str]:
        """The catalog, and `database.table` in it."""
        parts = name.split(".")
        if len(parts) == 1:
            return self._spec.catalog, f"{self._spec.database}.{name}"
        return (self._spec.catalog, name) if len(parts) == 2 else (parts[0], ".".join(parts[1:]))

    def prepare(self, output: Output, schema: StructType) -> None:
        """Create a table that does not exist yet, so that flows which read it can be analysed."""
        IcebergTable(self._spark, self.sink(output)).ensure(
            output.schema or schema, properties=output.properties, comment=output.comment
        )

    def exists(self, output: Output) -> bool:
        return IcebergTable(self._spark, self.sink(output)).exists()

    def refresh(self, output: Output, rows: DataFrame) -> None:
        """Replace the content of a materialized view, in one step of its table."""
        catalog, table = self.names(output.name)
        writer = rows.writeTo(quoted(catalog, *table.split("."))).using("iceberg")
        for key, value in _properties(output).items():
            writer = writer.tableProperty(key, value)
        if output.partition_by:
            first, *rest = output.partition_by
            writer = writer.partitionedBy(first, *rest)
        writer.createOrReplace()

    def snapshot(self, name: str) -> Any:
        """The current snapshot of a table; it changes with the table."""
        catalog, table = self.names(name)
        return IcebergTable(
            self._spark, IcebergSink(catalog=catalog, table=table, warehouse=None, properties={})
        ).snapshot()


def _properties(output: Output) -> Mapping[str, str]:
    return {**output.properties, **({"comment": output.comment} if output.comment else {})}


def database_created(spark: SparkSession, spec: GraphSpec) -> None:
    """Make the database of a graph the current one, and create it if it is missing."""
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(spec.catalog, spec.database)}")
        spark.catalog.setCurrentCatalog(spec.catalog)
        spark.catalog.setCurrentDatabase(spec.database)
    except PySparkException as error:
        raise InvalidPipeline(f"The database {spec.catalog}.{spec.database} cannot be used: {error}.") from error
