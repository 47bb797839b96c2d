"""The plan of a pipeline as text: the output of `trioka pipeline check`.

    pipeline orders
      source        orders (3 partitions, 120000 records) on localhost:9092, from earliest
      decode        JSON: id BIGINT, amount DOUBLE …
      …
      sink          Iceberg table trioka.shop.orders, each row once
      checkpoint    …/checkpoints/orders, a batch every 10 seconds, progress in the group orders

It describes a declaration and, if the brokers were queried, the topics.
"""

from collections.abc import Mapping

from ..expectations.rules import Expectation
from .model import Avro, Declaration, Decoding, Discard, Json, Protobuf, Sink, TopicSink

LABEL_WIDTH = 14
EXACTLY_ONCE = ("parquet", "iceberg")


def plan(declared: Declaration, topics: Mapping[str, int] | None = None) -> str:
    """The plan as text. `topics` are the partition counts of the topics, if known."""
    lines = [("source", _source(declared, topics)), ("decode", _decoding(declared.decoding))]
    lines += [("validate", _rule(rule)) for rule in declared.rules]
    if declared.sql is not None:
        lines.append(("transform", " ".join(declared.sql.split())))
    if declared.watermark is not None:
        lines.append(("watermark", f"{declared.watermark.column}, up to {declared.watermark.delay} late"))
    if declared.distinct_by:
        lines.append(("deduplicate", f"the first of each {', '.join(declared.distinct_by)} within the watermark"))
    if declared.aggregation is not None:
        lines += _aggregation(declared)
    lines.append(("sink", _sink(declared.sink)))
    lines.append(("dead letters", _dead_letters(declared)))
    lines.append(("checkpoint", f"{declared.checkpoint}, a batch every {declared.every}"))
    lines.append(("progress", f"committed to the group {declared.group}: trioka lag --group {declared.group}"))
    return "\n".join([f"pipeline {declared.name}", *(f"  {label:<{LABEL_WIDTH}}{text}" for label, text in lines)])


def _source(declared: Declaration, topics: Mapping[str, int] | None) -> str:
    source = declared.source
    names = f"topics like {source.pattern}" if source.pattern is not None else ", ".join(source.topics)
    if topics is not None:
        names = ", ".join(f"{name} ({count} partition{'s' if count != 1 else ''})" for name, count in topics.items())
    least = "" if source.min_partitions is None else f", in at least {source.min_partitions} parts"
    most = (
        "" if source.max_records_per_batch is None else f", at most {source.max_records_per_batch} records in a batch"
    )
    start = str(source.start) if source.archive is None else f"the archive {source.archive}"
    return f"{names} on {source.bootstrap}, from {start}{most}{least}"


def _rule(rule: Expectation) -> str:
    text = f"{rule.name}: {rule.condition}"
    return text if rule.action == "drop" else f"{text} (else {rule.action})"


def _decoding(decoding: Decoding) -> str:
    match decoding:
        case Json() | Protobuf() if decoding.registry is not None:
            kind = "JSON" if isinstance(decoding, Json) else "Protobuf"
            return f"{kind}, by the newest schema of {decoding.subject} in {decoding.registry}"
        case Json():
            needed = [field.name for field in decoding.fields if field.is_required]
            line = ", ".join(f"{field.name} {field.type}" for field in decoding.fields)
            return f"JSON: {line}" + (f"; needed: {', '.join(needed)}" if needed else "")
        case Avro():
            where = f"ids from {decoding.registry}" if decoding.registry else "schema file"
            return f"Avro, {'with schema ids' if decoding.is_framed else 'without schema ids'}, {where}"
        case Protobuf():
            return f"Protobuf message {decoding.message}"
        case _:
            return "none, the value stays bytes"


def _aggregation(declared: Declaration) -> list[tuple[str, str]]:
    aggregation = declared.aggregation
    assert aggregation is not None
    slide = f" every {aggregation.slide}" if aggregation.slide else ""
    by = f" by {', '.join(aggregation.by)}" if aggregation.by else ""
    columns = ", ".join(f"{name} = {text}" for name, text in aggregation.columns.items())
    emitted = "again with each change" if aggregation.emits_updates else "once, when the watermark has passed it"
    return [
        ("aggregate", f"windows of {aggregation.window}{slide}{by}: {columns}"),
        ("", f"a window is written {emitted}"),
    ]


def _sink(sink: Sink) -> str:
    is_once = sink.kind in EXACTLY_ONCE or (isinstance(sink, TopicSink) and sink.is_exactly_once)
    return f"{sink.target}, each row {'once' if is_once else 'at least once'}"


def _dead_letters(declared: Declaration) -> str:
    if not declared.may_refuse:
        return "none: every record is taken as it is"
    if isinstance(declared.dead_letters, Discard):
        return "discarded"
    return _sink(declared.dead_letters)
