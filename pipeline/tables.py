"""Where rows go, a batch at a time. Tables take a batch and its commit in one step, and know it when it comes again.

    class Table:
        commits()               what is in it: every commit of every pipeline
        holds(commit)           whether this very batch is in it
        append(rows, commit)    the rows and the commit, both or none

**Parquet**: a batch is written below `_staging`, with its commit beside it, and then gets its name by one rename:

    orders/commit=8f3a…-0000000012/part-….parquet      seen by every reader of Parquet
    orders/commit=8f3a…-0000000012/_commit.json        hidden from them, as all names with an underscore are
    orders/_staging/…                                  a batch on its way; the next try of the same batch overwrites it

Spark's own file sink keeps a list of the good files in `_spark_metadata` instead; only Spark heeds that list, and every
other reader sees the leavings of crashes, and rows twice. Here everybody sees the same.

**Iceberg**: rows and commit are one snapshot; the commit stands in its summary. Added columns are added to the table
first, by a change that may happen twice without harm. Windows that are updated are merged into the table by their
window and group, and a merge that happens twice is harmless too.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from .declaration import IcebergSink, ParquetSink
from .folder import Folder
from .positions import Commit
from .trouble import WrongPipeline

STAGING = "_staging"
COMMIT_FILE = "_commit.json"
COMMIT_FOLDER = "commit="
COMMIT_PROPERTY = "trioka.commit"
# The stream, its dead letters and a backfill may meet in one table; whoever comes second tries again.
COMMIT_RETRIES = "20"


class Table(Protocol):
    def commits(self) -> list[Commit]: ...
    def holds(self, commit: Commit) -> bool: ...
    def append(self, rows: DataFrame, commit: Commit) -> None: ...


class ParquetTable:
    def __init__(self, spark: SparkSession, sink: ParquetSink) -> None:
        self._sink = sink
        self._folder = Folder(spark, sink.path)

    def commits(self) -> list[Commit]:
        names = [name for name in self._folder.names() if name.startswith(COMMIT_FOLDER)]
        return [Commit.from_json(self._folder.text(name, COMMIT_FILE)) for name in names]

    def holds(self, commit: Commit) -> bool:
        return self._folder.exists(f"{COMMIT_FOLDER}{commit.name}")

    def append(self, rows: DataFrame, commit: Commit) -> None:
        staged = f"{STAGING}/{commit.name}"
        writer = rows.write.mode("overwrite")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.parquet(f"{self._sink.path}/{staged}")
        self._folder.write(commit.to_json(), staged, COMMIT_FILE)
        self._folder.move(staged, f"{COMMIT_FOLDER}{commit.name}")


class IcebergTable:
    """`keys` are the columns by which a row replaces another; without them, rows are only added."""

    def __init__(self, spark: SparkSession, sink: IcebergSink, keys: Sequence[str] = ()) -> None:
        self._sink = sink
        self._name = sink.full_name
        self._keys = tuple(keys)
        self._spark = spark

    def exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(f"{self._sink.catalog}.{self._sink.table}"))

    def commits(self) -> list[Commit]:
        if not self.exists():
            return []
        found = self._spark.sql(
            f"SELECT summary['{COMMIT_PROPERTY}'] AS commit FROM {self._name}.snapshots "
            f"WHERE summary['{COMMIT_PROPERTY}'] IS NOT NULL"
        )
        return [Commit.from_json(row["commit"]) for row in found.collect()]

    def holds(self, commit: Commit) -> bool:
        return any(one.run == commit.run and one.batch >= commit.batch for one in self.commits())

    def append(self, rows: DataFrame, commit: Commit) -> None:
        rows = self._fitting(rows)
        if self._keys:
            self._merge(rows, commit)
        else:
            writer = rows.writeTo(self._name).option(f"snapshot-property.{COMMIT_PROPERTY}", commit.to_json())
            writer.append()

    def _merge(self, rows: DataFrame, commit: Commit) -> None:
        """The plan of a merge reads its rows twice, which a stateful plan must not be: so they are kept meanwhile."""
        spark = rows.sparkSession
        property_key = f"spark.sql.iceberg.snapshot-property.{COMMIT_PROPERTY}"
        view = f"updates_{re.sub(r'[^A-Za-z0-9]', '_', commit.name)}"
        kept = rows.persist()
        try:
            kept.createOrReplaceTempView(view)
            spark.conf.set(property_key, commit.to_json())
            same = " AND ".join(f"there.`{key}` <=> new.`{key}`" for key in self._keys)
            spark.sql(
                f"MERGE INTO {self._name} AS there USING {view} AS new ON {same} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        finally:
            spark.conf.unset(property_key)
            spark.catalog.dropTempView(view)
            kept.unpersist()

    def _fitting(self, rows: DataFrame) -> DataFrame:
        """The rows with every column of the table. It is made if it is not there, and gets the columns that it lacks; a
        column of another type is the user's matter. Columns may be null, since rows of before have no added ones.
        """
        schema = StructType([StructField(one.name, one.dataType, nullable=True) for one in rows.schema])
        if not self.exists():
            namespace = ".".join(f"`{part}`" for part in (self._sink.catalog, *self._sink.table.split(".")[:-1]))
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
            empty = self._spark.createDataFrame([], schema).writeTo(self._name).using("iceberg")
            if self._sink.partition_by:
                empty = empty.partitionedBy(*(F.col(name) for name in self._sink.partition_by))
            empty.tableProperty("commit.retry.num-retries", COMMIT_RETRIES).create()
            return rows
        there = {field.name.lower(): field for field in self._spark.table(self._name).schema}
        new = [field for field in schema if field.name.lower() not in there]
        for field in schema:
            known = there.get(field.name.lower())
            if known is not None and known.dataType.simpleString() != field.dataType.simpleString():
                raise WrongPipeline(
                    f"The column '{field.name}' is {known.dataType.simpleString()} in {self._sink.target} and "
                    f"{field.dataType.simpleString()} in the pipeline; only added columns are taken in."
                )
        if new:
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in new)
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({columns})")
        given = {field.name.lower() for field in schema}
        gone = [field for name, field in there.items() if name not in given]
        return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in gone}) if gone else rows
