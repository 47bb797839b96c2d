"""Delivers batches to the declared sinks.

Tables get each batch exactly once, even if the driver dies. A topic and the console get it at least once: a batch whose
driver died is delivered again. To identify duplicates, a record in a topic has the header `trioka.commit` with its
batch.
"""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..declaration.model import (
    ConsoleSink,
    DeadLetters,
    Declaration,
    Discard,
    IcebergSink,
    ParquetSink,
    Sink,
    TopicSink,
)
from ..errors import InvalidPipeline
from ..expectations.columns import sentences
from ..graph.elements import Output
from ..runner.session import iceberg_settings, sink_options
from ..sources.offsets import Commit
from .sinks import Confirm, IcebergTable, ParquetTable, Table
from .topic_transactions import TopicTarget

# How long a writer waits while another one holds the catalog's file.
CATALOG_WAIT_MS = 60_000


def always() -> None:
    """The confirmation of rows that need none."""


class Delivery:
    """The target of one kind of row: `flows/targets.py` says what a target is."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Sink,
        *,
        keys: tuple[str, ...] = (),
        is_dead: bool = False,
        transactions: TopicTarget | None = None,
    ) -> None:
        self._sink = sink
        self._is_dead = is_dead
        self._transactions = transactions
        self._table = table_of(spark, sink, keys)
        # The rows of a merge are cached before it, and those of a topic are seen while they are written.
        self.is_seen_later = self._table is not None and not keys

    def commits(self) -> list[Commit]:
        return self._table.commits() if self._table is not None else []

    def holds(self, commit: Commit) -> bool:
        target = self._transactions if self._transactions is not None else self._table
        return target is not None and target.holds(commit)

    def deliver(self, rows: DataFrame, commit: Commit, confirm: Confirm = always) -> None:
        if self._table is not None:
            self._table.append(rows, commit, confirm)
            return
        if self._transactions is not None and isinstance(self._sink, TopicSink):
            self._transactions.deliver(self._messages(rows, self._sink), commit, confirm)
            return
        confirm()
        if isinstance(self._sink, TopicSink):
            made = self._letters(rows) if self._is_dead else self._messages(rows, self._sink)
            mark = F.struct(F.lit("trioka.commit").alias("key"), F.lit(commit.name.encode()).alias("value"))
            made = made.withColumn("headers", F.array_append("headers", mark))
            made.write.format("kafka").options(
                **sink_options(self._sink.bootstrap, topic=self._sink.topic, **self._sink.security)
            ).save()
        elif isinstance(self._sink, ConsoleSink):
            rows.show(self._sink.rows, truncate=False)

    def analyse(self, rows: DataFrame) -> None:
        """Analyse the sink's expressions on the rows, before anything runs."""
        sink = self._sink
        if isinstance(sink, TopicSink) and not self._is_dead:
            with sentences("sink.value"):
                self._messages(rows, sink)
        if isinstance(sink, ParquetSink | IcebergSink):
            missing = [name for name in sink.partition_by if name not in rows.columns]
            if missing:
                raise InvalidPipeline(
                    f"sink.partition_by: there is no column '{missing[0]}' in {', '.join(rows.columns)}."
                )

    def _messages(self, rows: DataFrame, sink: TopicSink) -> DataFrame:
        value = (
            F.expr(sink.value) if sink.value else F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)))
        )
        key = F.expr(sink.key) if sink.key else F.lit(None)
        no_headers = F.array().cast("array<struct<key: string, value: binary>>")
        return rows.select(
            key.cast("string").cast("binary").alias("key"),
            value.cast("binary").alias("value"),
            no_headers.alias("headers"),
        )

    def _letters(self, rows: DataFrame) -> DataFrame:
        """A dead letter is the original record, with the reason and the origin in its headers."""
        origin = F.concat_ws("-", "kafka_topic", "kafka_partition")
        headers = {"trioka.reason": F.col("reason"), "trioka.origin": F.concat_ws("@", origin, "kafka_offset")}
        return rows.select(
            F.col("kafka_key").alias("key"),
            F.col("kafka_value").alias("value"),
            F.array(
                *(
                    F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
                    for name, value in headers.items()
                )
            ).alias("headers"),
        )


def table_of(spark: SparkSession, sink: DeadLetters, keys: tuple[str, ...] = ()) -> Table | None:
    if isinstance(sink, ParquetSink):
        return ParquetTable(spark, sink)
    return IcebergTable(spark, sink, keys) if isinstance(sink, IcebergSink) else None


def rows_of(spark: SparkSession, declared: Declaration) -> Delivery:
    """The target of a pipeline's rows. Updated windows replace the table's rows of the same window and group."""
    aggregation = declared.aggregation
    keys: tuple[str, ...] = ()
    if aggregation is not None and aggregation.emits_updates:
        keys = ("window_start", "window_end", *aggregation.by)
    return Delivery(spark, declared.sink, keys=keys, transactions=_transactions_of(spark, declared))


def _transactions_of(spark: SparkSession, declared: Declaration) -> TopicTarget | None:
    sink = declared.sink
    if not isinstance(sink, TopicSink) or not sink.is_exactly_once:
        return None
    options = {"kafka.bootstrap.servers": sink.bootstrap, "topic": sink.topic, **sink.security}
    output = Output(name=sink.topic, kind="sink", place="sink", format="kafka", options=options)
    return TopicTarget(spark, output, declared.name, f"{declared.checkpoint}/sink")


def dead_letters_of(spark: SparkSession, declared: Declaration) -> Delivery | None:
    if isinstance(declared.dead_letters, Discard) or not declared.may_refuse:
        return None
    return Delivery(spark, declared.dead_letters, is_dead=True)


def catalog_settings(declared: Declaration) -> dict[str, str]:
    """Spark's settings for the Iceberg catalogs that a pipeline writes to; nothing if there are none."""
    settings: dict[str, str] = {}
    for sink in (declared.sink, declared.dead_letters):
        if isinstance(sink, IcebergSink):
            settings |= _settings_of(sink)
    return settings


def _settings_of(sink: IcebergSink) -> dict[str, str]:
    return catalog_of(sink.catalog, sink.warehouse, sink.properties)


def catalog_of(catalog: str, warehouse: str | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for an Iceberg catalog; the given properties take precedence."""
    key = f"spark.sql.catalog.{catalog}"
    found = {key: "org.apache.iceberg.spark.SparkCatalog"}
    if warehouse is not None and ":/" in warehouse:
        found |= {f"{key}.type": "hadoop", f"{key}.warehouse": warehouse}
    elif warehouse is not None:
        found |= iceberg_settings(warehouse, catalog)
        # The rows, the dead letters and a backfill share the catalog's file, and wait for each other.
        found[f"{key}.uri"] += f"?busy_timeout={CATALOG_WAIT_MS}"
    # Each batch runs in its own session, whose catalog must not return stale cached tables.
    found[f"{key}.cache-enabled"] = "false"
    return found | {f"{key}.{name}": value for name, value in properties.items()}


def into(declared: Declaration, target: str) -> Declaration:
    """The same pipeline with another target of the same kind."""
    sink = declared.sink
    if isinstance(sink, ParquetSink):
        return replace(declared, sink=replace(sink, path=target))
    if isinstance(sink, IcebergSink):
        return replace(declared, sink=replace(sink, table=target))
    if isinstance(sink, TopicSink):
        # A replay has no place in the ledger of the stream.
        return replace(declared, sink=replace(sink, topic=target, is_exactly_once=False))
    return declared
