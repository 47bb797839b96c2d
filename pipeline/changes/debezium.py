"""Debezium's change events as rows for `create_auto_cdc_flow`.

    @dp.temporary_view
    def customer_changes():
        return debezium(read_topic("db.public.customers"), schema="id BIGINT NOT NULL, name STRING")

    create_auto_cdc_flow(target="customers", source="customer_changes", keys=["id"], sequence_by="__lsn",
                         apply_as_deletes="__op = 'd'")

An event has the row before and after the change; a deletion has only the row before. With or without its schema (the
JSON converter's `schemas.enable`), the event gives the columns of the row and

    __op       c (created), u (updated), d (deleted), r (read by a snapshot)
    __ts_ms    when the connector saw it
    __lsn      the place in the database's log: `source.lsn` (PostgreSQL), or `source.pos` (MySQL, within one file)

A tombstone (a null value, for compaction) follows the event of the deletion, and is left out. Anything else that is no
event is refused, with a reason in `kafka_refused`.
"""

from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..errors import InvalidPipeline
from ..expectations.columns import METADATA, REASON, VALUE

ENVELOPE_COLUMNS = ("__op", "__ts_ms", "__lsn")
OPERATIONS = ("c", "u", "d", "r")
EVENT = "__event"


def debezium(records: DataFrame, *, schema: str) -> DataFrame:
    """The events of a topic that was read without a schema; `schema` is that of the rows."""
    if VALUE not in records.columns:
        raise InvalidPipeline("debezium() takes the records of a topic read without a schema: read_topic(name).")
    fields = cast(StructType, StructType.fromDDL(schema))
    envelope = (
        f"before STRUCT<{schema}>, after STRUCT<{schema}>, op STRING, ts_ms BIGINT, "
        "source STRUCT<lsn: BIGINT, pos: BIGINT>"
    )
    parsed = F.from_json(F.col(VALUE).cast("string"), f"{envelope}, payload STRUCT<{envelope}>")
    read = records.where(F.col(VALUE).isNotNull()).withColumn(EVENT, parsed)
    event = F.when(F.col(f"{EVENT}.payload").isNotNull(), F.col(f"{EVENT}.payload")).otherwise(
        F.struct(*(F.col(f"{EVENT}.{name}").alias(name) for name in ("before", "after", "op", "ts_ms", "source")))
    )
    read = read.withColumn(EVENT, event)
    operation = F.col(f"{EVENT}.op")
    row = F.when(operation == "d", F.col(f"{EVENT}.before")).otherwise(F.col(f"{EVENT}.after"))
    read = read.withColumn("__row", row)
    reason = F.when(operation.isNull() | ~operation.isin(*OPERATIONS), F.lit("the value is not an event of Debezium"))
    reason = reason.when(F.col("__row").isNull(), F.lit("the event has no row of the schema"))
    for field in fields.fields:
        if not field.nullable:
            missing = F.col(f"__row.`{field.name}`").isNull()
            reason = reason.when(missing, F.lit(f"the field '{field.name}' is missing or null"))
    return read.select(
        *(F.col(f"__row.`{field.name}`").alias(field.name) for field in fields.fields),
        operation.alias("__op"),
        F.col(f"{EVENT}.ts_ms").alias("__ts_ms"),
        F.coalesce(F.col(f"{EVENT}.source.lsn"), F.col(f"{EVENT}.source.pos")).alias("__lsn"),
        *METADATA,
        VALUE,
        F.coalesce(F.col(REASON), reason).alias(REASON),
    )
