"""Applies the changes of a batch to an Iceberg table by MERGE. `merge_rule.py` has the rule that it keeps.

A table of type 1 has the column `__SEQUENCE`; one of type 2 has `__START_AT` and `__END_AT`. Deletions stand in a
second table, `<table>__deletions`: for type 1 the newest of each key, for type 2 all.

    deletions of the batch → <table>__deletions → the batch, the deletions and the rows of its keys → <table>

Each step gives the same result when it is repeated, so a batch whose driver died anywhere is applied again, and a lost
checkpoint only costs the time to read the changes once more. Iceberg publishes a merge only on top of the snapshot that
it has read; if another writer was faster, the merge is made again.
"""

from collections.abc import Callable, Sequence

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..declaration.model import IcebergSink
from ..errors import InvalidPipeline
from ..expectations.columns import METADATA, REASON, VALUE, sentences
from ..graph.elements import Changes, Flow
from ..sources.offsets import Commit
from ..tables.sinks import MERGE_ATTEMPTS, NOT_PUBLISHED, Confirm, IcebergTable
from .debezium import ENVELOPE_COLUMNS

SEQUENCE, START, END = "__SEQUENCE", "__START_AT", "__END_AT"
DELETED, TEXT = "__DELETED", "__TEXT"
OWN_COLUMNS = (SEQUENCE, START, END, DELETED, TEXT)
DELETIONS = "__deletions"
NEW = "__new"
ColumnOf = Callable[[str], Column]
# Columns that say how a change came, and are not of the row: another delivery of the same change has others.
NOT_OF_ROW = frozenset({REASON, VALUE, *METADATA, *ENVELOPE_COLUMNS})


class ChangesTarget:
    """The table of a flow of changes. It recognises no batches: a repeated one changes nothing."""

    is_seen_later = False

    def __init__(self, spark: SparkSession, sink: IcebergSink, changes: Changes) -> None:
        self._sink = sink
        self._changes = changes
        self._spark = spark

    def commits(self) -> list[Commit]:
        return []

    def holds(self, commit: Commit) -> bool:
        return False

    def prepare(self, schema: StructType) -> None:
        """Create both tables, and add columns that are new."""
        IcebergTable(self._spark, self._sink).accept(schema)
        kept = [*self._changes.keys, SEQUENCE]
        types = {SEQUENCE: schema[START if self._changes.scd_type == 2 else SEQUENCE].dataType}
        deletions = StructType()
        for name in kept:
            deletions = deletions.add(name, types[name] if name in types else schema[name].dataType)
        IcebergTable(self._spark, _deletions(self._sink)).accept(deletions)

    def deliver(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None:
        spark, changes = rows.sparkSession, self._changes
        events = newest(events_of(rows, changes), [*changes.keys, SEQUENCE]).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            _stop_at_null(events, changes)
            confirm()
            apply = self._merge_history if changes.scd_type == 2 else self._merge_current
            _again_if_overtaken(lambda: self._merge_deletions(events))
            _again_if_overtaken(lambda: apply(spark, events))
        finally:
            events.unpersist()

    def _merge_deletions(self, events: DataFrame) -> None:
        keys = self._changes.keys
        gone = events.where(DELETED).select(*keys, SEQUENCE)
        deletions = _deletions(self._sink)
        old = _old(deletions)
        if self._changes.scd_type == 2:
            gone.alias(NEW).mergeInto(
                deletions.full_name, _same(old, [*keys, SEQUENCE])
            ).whenNotMatched().insertAll().merge()
            return
        last = gone.groupBy(*keys).agg(F.max(SEQUENCE).alias(SEQUENCE)).alias(NEW)
        writer = last.mergeInto(deletions.full_name, _same(old, keys))
        writer = writer.whenMatched(_new(SEQUENCE) > old(SEQUENCE)).updateAll()
        writer.whenNotMatched().insertAll().merge()

    def _merge_current(self, spark: SparkSession, events: DataFrame) -> None:
        """Type 1: of the batch and all deletions, the newest change of each key that the batch names."""
        keys, old = self._changes.keys, _old(self._sink)
        touched = events.select(*keys).distinct()
        gone = matching(spark.table(_deletions(self._sink).full_name), touched, keys)
        last = newest(events.unionByName(gone.withColumn(DELETED, F.lit(True)), allowMissingColumns=True), keys)
        columns = [name for name in last.columns if name not in (DELETED, TEXT)]
        text = text_of([name for name in columns if name != SEQUENCE], keys, old)
        is_newer = (_new(SEQUENCE) > old(SEQUENCE)) | ((_new(SEQUENCE) == old(SEQUENCE)) & (_new(TEXT) > text))
        writer = last.alias(NEW).mergeInto(self._sink.full_name, _same(old, keys))
        writer = writer.whenMatched(_new(DELETED) & (_new(SEQUENCE) >= old(SEQUENCE))).delete()
        writer = writer.whenMatched(~_new(DELETED) & is_newer).update(_assigned(columns))
        writer.whenNotMatched(~_new(DELETED)).insert(_assigned(columns)).merge()

    def _merge_history(self, spark: SparkSession, events: DataFrame) -> None:
        """Type 2: the history of each key that the batch names, computed again from its rows and deletions."""
        keys, old = self._changes.keys, _old(self._sink)
        touched = events.select(*keys).distinct()
        own = [name for name in events.columns if name not in OWN_COLUMNS]
        rows = matching(spark.table(self._sink.full_name), touched, keys)
        rows = rows.withColumn(SEQUENCE, F.col(START)).drop(START, END)
        rows = rows.withColumns({DELETED: F.lit(False), TEXT: text_of(own, keys)})
        gone = matching(spark.table(_deletions(self._sink).full_name), touched, keys).withColumn(DELETED, F.lit(True))
        known = rows.unionByName(gone, allowMissingColumns=True)
        every = newest(events.unionByName(known, allowMissingColumns=True), [*keys, SEQUENCE])
        following = F.lead(SEQUENCE).over(Window.partitionBy(*keys).orderBy(SEQUENCE))
        # Deletions stay in the source: a row that began at the same sequence goes away.
        versions = every.withColumns({START: F.col(SEQUENCE), END: following}).drop(SEQUENCE, TEXT)
        columns = [name for name in versions.columns if name != DELETED]
        differs = F.lit(False)
        for name in columns:
            differs = differs | ~old(name).eqNullSafe(_new(name))
        writer = versions.alias(NEW).mergeInto(self._sink.full_name, _same(old, [*keys, START]))
        writer = writer.whenMatched(_new(DELETED)).delete()
        writer = writer.whenMatched(differs).update(_assigned(columns))
        writer.whenNotMatched(~_new(DELETED)).insert(_assigned(columns)).merge()


def _again_if_overtaken(merge: Callable[[], None]) -> None:
    """Merge, and again if another writer was faster."""
    for left in reversed(range(MERGE_ATTEMPTS)):
        try:
            merge()
            return
        except (Py4JJavaError, PySparkException) as error:
            if not left or not any(name in str(error) for name in NOT_PUBLISHED):
                raise


def events_of(rows: DataFrame, changes: Changes) -> DataFrame:
    """The changes with the table's columns, `__SEQUENCE`, whether each is a deletion, and the text that breaks ties."""
    names = table_columns(rows, changes)
    deleted = _column(changes.apply_as_deletes) if changes.apply_as_deletes is not None else F.lit(False)
    events = rows.select(
        *(F.col(f"`{name}`") for name in names),
        _column(changes.sequence_by).alias(SEQUENCE),
        F.coalesce(deleted, F.lit(False)).alias(DELETED),
    )
    return events.withColumn(TEXT, text_of(names, changes.keys))


def table_columns(rows: DataFrame, changes: Changes) -> list[str]:
    """The columns of the table: the keys, and those that were chosen."""
    if changes.columns is not None:
        chosen = list(changes.columns)
    else:
        chosen = [name for name in rows.columns if name not in NOT_OF_ROW and name not in changes.except_columns]
    return list(dict.fromkeys([*changes.keys, *chosen]))


def table_schema(rows: DataFrame, flow: Flow) -> StructType:
    """The schema of the target's table; `InvalidPipeline` if the flow does not fit its source."""
    changes = flow.changes
    assert changes is not None, "only flows of changes are asked"
    named = [*changes.keys, *(changes.columns or ()), *changes.except_columns]
    missing = [name for name in named if name not in rows.columns]
    if missing:
        raise InvalidPipeline(
            f"{flow.place}: the flow '{flow.name}': '{changes.source}' has no column '{missing[0]}'; it has "
            f"{', '.join(rows.columns)}."
        )
    taken = [name for name in table_columns(rows, changes) if name in OWN_COLUMNS]
    if taken:
        raise InvalidPipeline(f"{flow.place}: the flow '{flow.name}': the column name {taken[0]} is reserved.")
    with sentences(f"{flow.place}: the flow '{flow.name}'"):
        events = events_of(rows, changes)
    schema = StructType([one for one in events.schema if one.name not in OWN_COLUMNS])
    sequence = events.schema[SEQUENCE].dataType
    if changes.scd_type == 1:
        return schema.add(SEQUENCE, sequence)
    return schema.add(START, sequence).add(END, sequence)


def newest(events: DataFrame, by: Sequence[str]) -> DataFrame:
    """Of the changes with the same values in these columns, the one with the largest sequence; of equal ones a
    deletion, or else that with the larger text.
    """
    order = [F.desc(SEQUENCE), F.desc(DELETED), F.desc_nulls_last(TEXT)]
    place = F.row_number().over(Window.partitionBy(*(F.col(f"`{name}`") for name in by)).orderBy(*order))
    return events.withColumn("__PLACE", place).where("__PLACE = 1").drop("__PLACE")


def matching(rows: DataFrame, touched: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows whose key is among the touched ones; a null is equal to a null."""
    condition = F.lit(True)
    for key in keys:
        condition = condition & rows[f"`{key}`"].eqNullSafe(touched[f"`{key}`"])
    return rows.join(touched, condition, "left_semi")


def text_of(names: Sequence[str], keys: Sequence[str], column: ColumnOf | None = None) -> Column:
    """The columns besides the keys as one text, with nulls in it, so that different columns have different texts."""
    of = column if column is not None else (lambda name: F.col(f"`{name}`"))
    fields = [of(name).alias(name) for name in sorted(names) if name not in keys]
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}) if fields else F.lit("")


def _column(given: str | Column) -> Column:
    return F.expr(given) if isinstance(given, str) else given


def _new(name: str) -> Column:
    return F.col(f"{NEW}.`{name}`")


def _old(sink: IcebergSink) -> ColumnOf:
    """The columns of the table that is merged into, which goes by the last part of its name."""
    table = sink.table.split(".")[-1]
    return lambda name: F.col(f"`{table}`.`{name}`")


def _assigned(columns: Sequence[str]) -> dict[str, Column]:
    return {f"`{name}`": _new(name) for name in columns}


def _same(old: ColumnOf, keys: Sequence[str]) -> Column:
    found = F.lit(True)
    for key in keys:
        found = found & old(key).eqNullSafe(_new(key))
    return found


def _deletions(sink: IcebergSink) -> IcebergSink:
    return IcebergSink(catalog=sink.catalog, table=f"{sink.table}{DELETIONS}", warehouse=None, properties={})


def _stop_at_null(events: DataFrame, changes: Changes) -> None:
    """A change without a sequence has no place in the order."""
    wrong = events.where(F.col(SEQUENCE).isNull()).select(*changes.keys).limit(1).toJSON().collect()
    if wrong:
        raise InvalidPipeline(
            f"A change of '{changes.source}' has no sequence (key {wrong[0]}), so its place in the order is not known: "
            "drop such changes with expect_or_drop, or choose another sequence_by."
        )
