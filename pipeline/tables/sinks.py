"""Sinks write rows batch by batch. Tables store a batch and its commit in one step, and recognise a repeated batch.

    class Table:
        commits()                        its commits, of every pipeline
        has_rows()                       whether it has rows, of any origin
        holds(commit)                    whether it has this batch
        append(rows, commit, confirm)    the rows and the commit, both or none; `confirm` is called when the rows are
                                         ready to be seen, and what it raises keeps them unseen

**Parquet**: a batch is written below `_staging`, with its commit beside it, and then gets its name by one rename:

    orders/commit=8f3a…-0000000012/part-….parquet      visible to every reader of Parquet
    orders/commit=8f3a…-0000000012/_commit.json        hidden from them, as all names with an underscore are
    orders/_staging/…                                  a batch on its way; the next try of the same batch overwrites it

Spark's own file sink keeps a list of the valid files in `_spark_metadata` instead; only Spark uses that list, and every
other reader sees leftovers of crashes, and duplicate rows. With this sink all readers see the same rows.

**Iceberg**: the rows are staged, as a snapshot that no reader sees (Iceberg's write-audit-publish), and published in
one transaction with the properties that record the pipeline's progress (table_progress.py). `expire_snapshots` removes
the staged snapshot of a driver that died. New columns are added to the table first, by an idempotent change. Updated
windows are merged into the table by their window and group. A merge can be published only if no other writer has
changed the table since it was staged; otherwise it is made again.
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StructField, StructType

from ..declaration.model import IcebergSink, ParquetSink
from ..errors import InvalidPipeline
from ..sources.offsets import Commit, is_held
from .folder import Folder
from .table_progress import COMMIT_PROPERTY, STAGED, commits_of, has_rows, properties_with

STAGING = "_staging"
COMMIT_FILE = "_commit.json"
COMMIT_FOLDER = "commit="
ATTEMPT_PROPERTY = "trioka.attempt"
STAGING_ENABLED = "write.wap.enabled"
# The stream, its dead letters and a backfill may write to one table; the second writer retries.
COMMIT_RETRIES = "20"
MERGE_ATTEMPTS = 10
CREATE_ATTEMPTS = 5
# A catalog on a file system publishes a table by several renames: a load in between fails, and succeeds a moment later.
LOAD_ATTEMPTS = 5
LOAD_RETRY_S = 0.2
NOT_PUBLISHED = ("org.apache.iceberg.exceptions.ValidationException", "CommitFailedException")

NO_SNAPSHOT = -1
WIDER = {("bigint", "int"), ("double", "float")}

Confirm = Callable[[], object]
T = TypeVar("T")


class Overtaken(Exception):
    """Another writer has changed the table since a merge of it was staged."""


def _load(load: Callable[[], T]) -> T:
    """Call `load`; retry while another query creates the table at the same time."""
    for _ in range(LOAD_ATTEMPTS - 1):
        try:
            return load()
        except Py4JJavaError:
            time.sleep(LOAD_RETRY_S)
    return load()


class Table(Protocol):
    def commits(self) -> list[Commit]: ...
    def has_rows(self) -> bool: ...
    def holds(self, commit: Commit) -> bool: ...
    def append(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None: ...


class ParquetTable:
    def __init__(self, spark: SparkSession, sink: ParquetSink) -> None:
        self._sink = sink
        self._folder = Folder(spark, sink.path)

    def commits(self) -> list[Commit]:
        names = [name for name in self._folder.names() if name.startswith(COMMIT_FOLDER)]
        return [Commit.from_json(self._folder.text(name, COMMIT_FILE)) for name in names]

    def has_rows(self) -> bool:
        return any(not name.startswith(("_", ".")) for name in self._folder.names())

    def holds(self, commit: Commit) -> bool:
        name = f"{COMMIT_FOLDER}{commit.name}"
        if not self._folder.exists(name):
            return False
        return is_held([Commit.from_json(self._folder.text(name, COMMIT_FILE))], commit)

    def append(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None:
        staged = f"{STAGING}/{commit.name}"
        writer = rows.write.mode("overwrite")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.parquet(f"{self._sink.path}/{staged}")
        self._folder.write(commit.to_json(), staged, COMMIT_FILE)
        confirm()
        self._folder.move(staged, f"{COMMIT_FOLDER}{commit.name}")


class IcebergTable:
    """`keys` are the columns by which a row replaces another; without them, rows are only appended."""

    def __init__(self, spark: SparkSession, sink: IcebergSink, keys: Sequence[str] = ()) -> None:
        self._sink = sink
        self._name = sink.full_name
        self._keys = tuple(keys)
        self._spark = spark

    def exists(self) -> bool:
        name = f"{self._sink.catalog}.{self._sink.table}"
        return _load(lambda: bool(self._spark.catalog.tableExists(name)))

    def ensure(self, schema: Any, *, properties: Mapping[str, str], comment: str | None = None) -> None:
        """Create the table if it is missing. `schema` is a StructType or a DDL text."""
        if self.exists():
            return
        given = self._spark.createDataFrame([], schema).schema
        columns = StructType([StructField(one.name, one.dataType, nullable=True) for one in given])
        self._create(columns, {**properties, **({"comment": comment} if comment else {})})

    def snapshot(self) -> int | None:
        """The id of the current snapshot; None without one."""
        return self._metadata().get("current-snapshot-id") if self.exists() else None

    def commits(self) -> list[Commit]:
        return commits_of(self._metadata(), self._sink.target) if self.exists() else []

    def has_rows(self) -> bool:
        return self.exists() and has_rows(self._metadata())

    def holds(self, commit: Commit) -> bool:
        return is_held(self.commits(), commit)

    def append(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None:
        rows = self._fitting(rows)
        self._enable_staging()
        if self._keys:
            self._merge(rows, commit, confirm)
            return
        with self._staging(rows.sparkSession, commit) as attempt:
            rows.writeTo(self._name).append()
        confirm()
        self._publish(attempt, commit)

    def _merge(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None:
        """The plan of a merge reads its rows twice, which a stateful plan does not allow, so the rows are cached
        meanwhile.
        """
        spark = rows.sparkSession
        view = f"updates_{re.sub(r'[^A-Za-z0-9]', '_', commit.name)}"
        kept = rows.persist()
        try:
            kept.createOrReplaceTempView(view)
            same = " AND ".join(f"there.`{key}` <=> new.`{key}`" for key in self._keys)
            for left in reversed(range(MERGE_ATTEMPTS)):
                with self._staging(spark, commit) as attempt:
                    spark.sql(
                        f"MERGE INTO {self._name} AS there USING {view} AS new ON {same} "
                        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                    )
                confirm()
                try:
                    self._publish(attempt, commit, is_merge=True)
                    return
                except (Overtaken, Py4JJavaError) as error:
                    is_overtaken = isinstance(error, Overtaken) or any(name in str(error) for name in NOT_PUBLISHED)
                    if not left or not is_overtaken:
                        raise
        finally:
            spark.catalog.dropTempView(view)
            kept.unpersist()

    @contextmanager
    def _staging(self, spark: SparkSession, commit: Commit) -> Iterator[str]:
        """Stage table writes inside of it as a snapshot that readers do not see. The attempt's name identifies it."""
        attempt = uuid.uuid4().hex
        settings = {
            # Iceberg publishes an id once, and the flows of a shared read have the same run and batch.
            "spark.wap.id": f"{commit.pipeline}-{commit.name}",
            f"spark.sql.iceberg.snapshot-property.{COMMIT_PROPERTY}": commit.to_json(),
            f"spark.sql.iceberg.snapshot-property.{ATTEMPT_PROPERTY}": attempt,
        }
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            yield attempt
        finally:
            for key in settings:
                spark.conf.unset(key)

    def _publish(self, attempt: str, commit: Commit, *, is_merge: bool = False) -> None:
        """Publish the staged rows and the pipeline's progress, in one step of the table."""
        metadata = self._metadata()
        staged = [one for one in metadata["snapshots"] if one["summary"].get(ATTEMPT_PROPERTY) == attempt]
        assert len(staged) == 1 and STAGED in staged[0]["summary"], f"the rows of {commit.name} were not staged"
        if is_merge and staged[0].get("parent-snapshot-id", NO_SNAPSHOT) != metadata["current-snapshot-id"]:
            raise Overtaken  # Iceberg itself refuses only a merge that replaced rows, not one that only appended
        transaction = self._loaded().newTransaction()
        transaction.manageSnapshots().cherrypick(staged[0]["snapshot-id"]).commit()
        properties = transaction.updateProperties()
        there = commits_of(metadata, self._sink.target)
        for key, value in properties_with(there, commit, self._sink.target).items():
            if value is None:
                properties.remove(key)
            elif metadata["properties"].get(key) != value:
                properties.set(key, value)
        properties.commit()
        transaction.commitTransaction()

    def _enable_staging(self) -> None:
        if self._metadata().get("properties", {}).get(STAGING_ENABLED) != "true":
            self._loaded().updateProperties().set(STAGING_ENABLED, "true").commit()

    def _metadata(self) -> Any:
        """The table's metadata, read at once, so that properties and snapshots are consistent."""
        jvm: Any = self._spark.sparkContext._jvm
        return json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(self._loaded().operations().current()))

    def _loaded(self) -> Any:
        jvm: Any = self._spark.sparkContext._jvm
        session = self._spark._jsparkSession
        return _load(lambda: jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, self._name))

    def _create(self, schema: StructType, properties: Mapping[str, str] | None = None) -> None:
        """Create the namespace and the table; another query or pipeline may create them at the same time."""
        namespace = ".".join(f"`{part}`" for part in (self._sink.catalog, *self._sink.table.split(".")[:-1]))
        for left in reversed(range(CREATE_ATTEMPTS)):
            try:
                self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
                empty = self._spark.createDataFrame([], schema).writeTo(self._name).using("iceberg")
                if self._sink.partition_by:
                    empty = empty.partitionedBy(*(F.col(name) for name in self._sink.partition_by))
                empty = empty.tableProperty("commit.retry.num-retries", COMMIT_RETRIES)
                for key, value in {**_format_of(schema), **(properties or {})}.items():
                    empty = empty.tableProperty(key, value)
                empty.tableProperty(STAGING_ENABLED, "true").create()
                return
            except (Py4JJavaError, AnalysisException):
                if self.exists():
                    return
                if not left:
                    raise

    def _fitting(self, rows: DataFrame) -> DataFrame:
        """The rows with every column of the table. Creates the table if it is missing, and adds its missing columns; a
        column with another type is an error of the user. Columns may be null, because older rows lack added ones.
        """
        there = self.accept(rows.schema)
        given = {name.lower() for name in rows.columns}
        gone = [field for name, field in there.items() if name not in given]
        return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in gone}) if gone else rows

    def accept(self, given: StructType) -> dict[str, StructField]:
        """Create the table if it is missing, add its missing columns, and widen types: INT to BIGINT, FLOAT to DOUBLE,
        a DECIMAL to more digits. Returns the columns that the table had before, by name in lower case.
        """
        schema = StructType([StructField(one.name, one.dataType, nullable=True) for one in given])
        if not self.exists():
            self._create(schema)
        there = {field.name.lower(): field for field in _load(lambda: self._spark.table(self._name).schema)}
        new = [field for field in schema if field.name.lower() not in there]
        for field in schema:
            known = there.get(field.name.lower())
            if known is None or known.dataType == field.dataType or is_wider(known.dataType, field.dataType):
                continue
            if not is_wider(field.dataType, known.dataType):
                raise InvalidPipeline(
                    f"The column '{field.name}' is {known.dataType.simpleString()} in {self._sink.target} and "
                    f"{field.dataType.simpleString()} in the pipeline; columns are added and types are widened, and "
                    "nothing else."
                )
            wider = field.dataType.simpleString()
            self._spark.sql(f"ALTER TABLE {self._name} ALTER COLUMN `{known.name}` TYPE {wider}")
        if new:
            for key, value in _format_of(StructType(new)).items():
                self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ('{key}' = '{value}')")
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in new)
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({columns})")
        return there


def _format_of(schema: StructType) -> dict[str, str]:
    """The properties of a table with these columns: Iceberg has variants from the third version of its format on."""
    return {"format-version": "3"} if "variant" in schema.simpleString() else {}


def is_wider(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of the narrow type is one of the wide type, and Iceberg widens columns so."""
    if isinstance(wide, DecimalType) and isinstance(narrow, DecimalType):
        return wide.scale == narrow.scale and wide.precision >= narrow.precision
    return (wide.simpleString(), narrow.simpleString()) in WIDER
