"""The steps between source and sink, as one plan of Spark. A stream and a bounded read use the same plan.

    records ──judged──┬─ refused (reason) ─────────────────────────────────────────→ dead letters
                      └─ accepted → transform → watermark → deduplicate → aggregate → sink

A judged record has its fields as columns, its Kafka metadata in columns that begin with `kafka_`, and a reason, which
is null if it was decoded and every rule holds. A record with a reason is a dead letter, with its original bytes.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from trioka.protocol.schema_framing import HEADER_BYTES, Undecodable

from ..declaration.ddl import InvalidSchema, parse
from ..declaration.model import Avro, Declaration, Decoding, Json, Protobuf
from ..errors import InvalidPipeline
from ..expectations.columns import MAX_REASON_CHARS, METADATA, REASON, VALUE, sentences
from ..expectations.judge import check_rule, marked, stopping, without_marks
from ..formats import avro, json_schema, protobuf
from ..formats.decimals import is_rounded, texts_of
from ..formats.registered import compiled, newest

VIEW = "records"
RECORD = "kafka_record"
CORRUPT = "kafka_corrupt"

Decoder = Callable[[DataFrame], DataFrame]


def letters(refused: DataFrame, _: str = "") -> DataFrame:
    """Refused records as dead letters; there is one flow, so they do not name it."""
    return refused.select(F.substring(F.col(REASON), 1, MAX_REASON_CHARS).alias("reason"), *METADATA, VALUE)


class Stages:
    """The plan of one declaration. Building it contacts only the registry, if one is declared."""

    def __init__(self, declared: Declaration) -> None:
        self.declared = declared
        self._decode = _decoder(declared.decoding)

    def refused(self, records: DataFrame) -> DataFrame:
        """The dead letters: the reason, the origin, and the record."""
        return letters(self.judged(records).where(F.col(REASON).isNotNull()))

    def accepted(self, records: DataFrame) -> DataFrame:
        """The rows for the sink. A rule whose action is to fail raises an error in the plan."""
        rows = stopping(self.judged(records), self.declared.rules)
        if self.declared.may_refuse:
            rows = rows.where(F.col(REASON).isNull())
        return self.transformed(rows)

    def judged(self, records: DataFrame) -> DataFrame:
        """The decoded records with a mark for each rule, and the reason of those that are refused."""
        decoded = self.decoded(records)
        for rule in self.declared.rules:
            check_rule(decoded, rule, f"validate.'{rule.name}'")
        return marked(decoded, self.declared.rules)

    def decoded(self, records: DataFrame) -> DataFrame:
        """The decoded records, and the reason why a record could not be decoded."""
        named = records.select(*(F.col(name.removeprefix("kafka_")).alias(name) for name in (*METADATA, VALUE)))
        return self._decode(named)

    def transformed(self, accepted: DataFrame) -> DataFrame:
        """What becomes of records that are not refused."""
        declared = self.declared
        rows = without_marks(accepted, declared.rules).drop(REASON, VALUE)
        with sentences("transform.sql"):
            if declared.sql is not None:
                rows.createOrReplaceTempView(VIEW)
                rows = rows.sparkSession.sql(declared.sql)
        with sentences("watermark.column"):
            if declared.watermark is not None:
                rows = rows.withWatermark(declared.watermark.column, declared.watermark.delay)
                rows.schema  # noqa: B018  # reading the schema makes Spark resolve the column now
        with sentences("deduplicate.keys"):
            if declared.distinct_by:
                keys = list(declared.distinct_by)
                rows = rows.dropDuplicatesWithinWatermark(keys) if rows.isStreaming else rows.dropDuplicates(keys)
        with sentences("aggregate"):
            return self._aggregated(rows)

    def _aggregated(self, rows: DataFrame) -> DataFrame:
        aggregation, watermark = self.declared.aggregation, self.declared.watermark
        if aggregation is None:
            return rows
        assert watermark is not None, "the declaration was checked"
        window = F.window(watermark.column, aggregation.window, aggregation.slide)
        columns = [F.expr(text).alias(name) for name, text in aggregation.columns.items()]
        grouped = rows.groupBy(window.alias("window"), *aggregation.by).agg(*columns)
        return grouped.select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            *aggregation.by,
            *aggregation.columns,
        )


# -- decoding ----------------------------------------------------------------------------------------------------------


def check_schema(decoding: Decoding) -> None:
    """Raise `InvalidPipeline` if the schema cannot give columns. Needs no Spark, but may use a registry."""
    decoding = registered(decoding)
    if isinstance(decoding, Avro):
        avro.to_ddl(avro.reader_schema(decoding))
        for id, writer in decoding.writers.items():
            avro.parsed(writer, f"decode.writers.{id}")
    elif isinstance(decoding, Protobuf):
        protobuf.to_ddl(protobuf.message_class(decoding.descriptor, decoding.message).DESCRIPTOR)


def registered(decoding: Decoding) -> Decoding:
    """A decoding with its schema: one of JSON Schema or Protobuf may be in a registry."""
    if not isinstance(decoding, Json | Protobuf) or decoding.registry is None or decoding.subject is None:
        return decoding
    if isinstance(decoding, Json):
        ddl = json_schema.to_ddl(newest(decoding.registry, decoding.subject, "JSON").text)
        try:
            return replace(decoding, ddl=ddl, fields=parse(ddl), registry=None)
        except InvalidSchema as error:
            raise InvalidPipeline(f"decode.registry: {error}.") from None
    descriptor = compiled(newest(decoding.registry, decoding.subject, "PROTOBUF"))
    message = decoding.message or protobuf.first_message(descriptor)
    return replace(decoding, descriptor=descriptor, message=message, registry=None)


def _decoder(decoding: Decoding) -> Decoder:
    decoding = registered(decoding)
    if isinstance(decoding, Json):
        return lambda records: _from_json(records, decoding)
    if isinstance(decoding, Avro):
        reader = avro.reader_schema(decoding)
        decode = avro.AvroDecoder(
            reader=reader, is_framed=decoding.is_framed, registry=decoding.registry, writers=decoding.writers
        )
        return _by_function(decode, avro.to_ddl(reader))
    if isinstance(decoding, Protobuf):
        message = protobuf.message_class(decoding.descriptor, decoding.message)
        decoder = protobuf.ProtobufDecoder(
            descriptor=decoding.descriptor, message=decoding.message, is_framed=decoding.is_framed
        )
        return _by_function(decoder, protobuf.to_ddl(message.DESCRIPTOR))
    return lambda records: records.select(
        F.col(VALUE).alias("value"), *METADATA, VALUE, F.lit(None).cast("string").alias(REASON)
    )


def _from_json(records: DataFrame, declared: Json) -> DataFrame:
    """Spark's own reader of JSON. It returns a value that does not fit the schema, as a whole or in one field, in a
    separate column, which identifies it; explicit checks find null in required fields, and decimals.py finds rounded
    decimals.
    """
    schema = f"{declared.ddl}, `{CORRUPT}` STRING"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = (F.expr(f"substring({VALUE}, {HEADER_BYTES + 1})") if declared.is_framed else F.col(VALUE)).cast("string")
    parsed = records.withColumn(RECORD, F.from_json(text, schema, options))
    record = F.col(RECORD)
    reason = F.when(F.col(VALUE).isNull(), F.lit("the value is null"))
    if declared.is_framed:
        is_framed = (F.length(VALUE) >= HEADER_BYTES) & (F.expr(f"substring({VALUE}, 1, 1)") == F.lit(b"\0"))
        reason = reason.when(~is_framed, F.lit("the value does not begin with a schema id: a zero byte and four more"))
    reason = reason.when(record.isNull() | record[CORRUPT].isNotNull(), F.lit("the value is not JSON of the schema"))
    for field in declared.fields:
        if field.is_required:
            reason = reason.when(record[field.name].isNull(), F.lit(f"the field '{field.name}' is missing or null"))
    for decimal in _decimals(declared):
        texts = texts_of(decimal.dataType)
        if texts is not None:
            read = F.from_json(text, StructType([StructField(decimal.name, texts)]))
            rounded = is_rounded(record[decimal.name], read[decimal.name], decimal.dataType)
            reason = reason.when(rounded, F.lit(f"the field '{decimal.name}' has more digits than its type keeps"))
    return _beside(parsed.withColumn(REASON, reason), [field.name for field in declared.fields])


def _decimals(declared: Json) -> list[StructField]:
    """The fields with decimals. Spark parses types by analysis, which `spark-pipelines` forbids in a query function, so
    it is asked only if there are any.
    """
    if not re.search(r"\b(dec|decimal|numeric)\b", declared.ddl, re.I):
        return []
    return cast(StructType, StructType.fromDDL(declared.ddl)).fields


def _by_function(decode: Callable[[bytes], dict[str, Any]], ddl: str) -> Decoder:
    """A decoder in Python, run by Spark's workers."""

    def judge(value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        if value is None:
            return None, "the value is null"
        try:
            return decode(bytes(value)), None
        except Undecodable as error:
            return None, str(error)

    judged = F.udf(judge, f"record STRUCT<{ddl}>, reason STRING", useArrow=True)

    def decoder(records: DataFrame) -> DataFrame:
        both = records.withColumn(RECORD, judged(F.col(VALUE))).withColumn(REASON, F.col(f"{RECORD}.reason"))
        return _beside(both.withColumn(RECORD, F.col(f"{RECORD}.record")), None)

    return decoder


def _beside(parsed: DataFrame, names: list[str] | None) -> DataFrame:
    """The fields of the record as columns."""
    names = names if names is not None else parsed.select(f"{RECORD}.*").columns
    taken = [name for name in names if name.lower() in (*METADATA, VALUE, REASON)]
    if taken:
        raise InvalidPipeline(f"decode: the field '{taken[0]}' has the name of one of Kafka's own columns.")
    fields: list[Column] = [F.col(f"{RECORD}.`{name}`").alias(name) for name in names]
    return parsed.select(*fields, *METADATA, VALUE, REASON)
