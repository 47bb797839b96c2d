"""Applies expectations to the rows of a batch: which are kept, which are refused and why, and how many break each rule.

The batch is cached before it is counted, so that rows, dead letters and counts come from one read of the source. A
flow without expectations, and without records that its decoder refused, is not cached.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trioka.protocol.lazy_dataclass import frozen

from ..errors import PipelineFailed
from ..sources.offsets import Ends
from .columns import MAX_REASON_CHARS, METADATA, REASON, VALUE, attempted, sentences
from .rules import Counts, Expectation

BROKEN = "__trioka_broken_"
NOT_DECODED = "the record is decoded"
MAX_SAMPLE_CHARS = 300
# The columns of a table of dead letters. Kafka's are null if the refused row does not have them.
KAFKA_TYPES = {
    "kafka_key": "BINARY",
    "kafka_topic": "STRING",
    "kafka_partition": "INT",
    "kafka_offset": "BIGINT",
    "kafka_timestamp": "TIMESTAMP",
    "kafka_value": "BINARY",
}
DEAD_LETTER_SCHEMA = ", ".join(
    ["reason STRING", "flow STRING", "row STRING", *(f"{name} {kind}" for name, kind in KAFKA_TYPES.items())]
)


@frozen
class Judged:
    """`counts` is None if nothing had to be counted. `refused` rows have their reason; None if there are none."""

    accepted: DataFrame
    refused: DataFrame | None
    counts: Counts | None


def check_rule(rows: DataFrame, rule: Expectation, key: str) -> None:
    """Let Spark analyse a condition, before anything runs; a mistake is reported under the key."""
    with sentences(key):
        rows.where(_holds(rows, rule))


@contextmanager
def judged(rows: DataFrame, rules: Sequence[Expectation], flow: str, *, may_refuse: bool = True) -> Iterator[Judged]:
    """The batch, divided. A broken rule with the action `fail` raises `PipelineFailed` before anything is delivered."""
    is_decoded = REASON in rows.columns
    if not rules and not (is_decoded and may_refuse):
        yield Judged(accepted=rows, refused=None, counts=None)
        return
    cached = marked(rows, rules).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = _counted(cached, rules, is_decoded=is_decoded)
        _stop_if_failed(cached, rules, counts, flow)
        accepted = cached.where(F.col(REASON).isNull()) if counts.refused else cached
        refused = cached.where(F.col(REASON).isNotNull()) if counts.refused else None
        yield Judged(
            accepted=without_marks(accepted, rules).drop(REASON),
            refused=None if refused is None else without_marks(refused, rules),
            counts=counts,
        )
    finally:
        cached.unpersist()


def _holds(rows: DataFrame, rule: Expectation) -> Column:
    return F.coalesce(attempted(rows.sparkSession, F.expr(rule.condition)), F.lit(False))


def marked(rows: DataFrame, rules: Sequence[Expectation]) -> DataFrame:
    """The rows with a column for each rule, and the reason why a row is refused: the first rule that drops it."""
    is_decoded = REASON in rows.columns
    decoded = F.col(REASON) if is_decoded else F.lit(None).cast("string")
    # Spark computes a part that several columns share before them, outside of what catches its error, unless it stands
    # behind a condition that cannot be known before.
    is_judged = decoded.isNull() if is_decoded else F.spark_partition_id() >= 0
    marks: dict[str, Column] = {}
    reason = decoded
    for number, rule in enumerate(rules):
        # A record that was not decoded has no fields to judge.
        broken = F.when(is_judged, ~_holds(rows, rule)).otherwise(F.lit(False))
        marks[f"{BROKEN}{number}"] = broken
        if rule.action == "drop":
            reason = F.coalesce(reason, F.when(broken, F.lit(f"it breaks the rule '{rule.name}'")))
    return rows.withColumns({**marks, REASON: reason})


def without_marks(rows: DataFrame, rules: Sequence[Expectation]) -> DataFrame:
    return rows.drop(*(f"{BROKEN}{number}" for number in range(len(rules))))


def stopping(rows: DataFrame, rules: Sequence[Expectation]) -> DataFrame:
    """Marked rows as a plan that raises an error at a rule whose action is to fail, for rows that nobody counts."""
    for number, rule in enumerate(rules):
        if rule.action == "fail":
            failed = F.raise_error(F.lit(f"the expectation '{rule.name}' fails")).cast("boolean")
            rows = rows.where(F.when(F.col(f"{BROKEN}{number}"), failed).otherwise(F.lit(True)))
    return rows


def _counted(cached: DataFrame, rules: Sequence[Expectation], *, is_decoded: bool) -> Counts:
    counted = [F.count_if(F.col(f"{BROKEN}{number}")) for number in range(len(rules))]
    row = cached.agg(F.count("*"), F.count_if(F.col(REASON).isNotNull()), *counted).collect()[0]
    broken = {rule.name: int(row[2 + number]) for number, rule in enumerate(rules)}
    if is_decoded:
        dropped = [F.col(f"{BROKEN}{number}") for number, rule in enumerate(rules) if rule.action == "drop"]
        is_whole = F.lit(True)
        for one in dropped:
            is_whole = is_whole & ~one
        undecoded = cached.where(F.col(REASON).isNotNull() & is_whole).count() if row[1] else 0
        broken = {NOT_DECODED: undecoded, **broken}
    return Counts(records=int(row[0]), refused=int(row[1]), broken=broken)


def _stop_if_failed(cached: DataFrame, rules: Sequence[Expectation], counts: Counts, flow: str) -> None:
    for number, rule in enumerate(rules):
        if rule.action == "fail" and counts.broken[rule.name]:
            broken = without_marks(cached.where(F.col(f"{BROKEN}{number}")), rules)
            first = broken.drop(REASON).limit(1).toJSON().first()
            raise PipelineFailed(
                f"The expectation '{rule.name}' of the flow {flow} fails for {counts.broken[rule.name]} of "
                f"{counts.records} rows, so nothing of this batch was written. One of them: "
                f"{str(first)[:MAX_SAMPLE_CHARS]}"
            )


def letters_of(refused: DataFrame, flow: str) -> DataFrame:
    """Refused rows with the columns of a table of dead letters."""
    there = refused.columns
    hidden = {*METADATA, VALUE, REASON}
    fields = [F.col(f"`{name}`") for name in there if name not in hidden]
    row = F.to_json(F.struct(*fields)) if fields else F.lit(json.dumps({}))
    return refused.select(
        F.substring(F.col(REASON), 1, MAX_REASON_CHARS).alias("reason"),
        F.lit(flow).alias("flow"),
        row.alias("row"),
        *((F.col(name) if name in there else F.lit(None)).cast(kind).alias(name) for name, kind in KAFKA_TYPES.items()),
    )


def letters_as_messages(letters: DataFrame) -> DataFrame:
    """Dead letters for a topic: the original record, or the row as JSON, with reason and origin as headers."""
    origin = F.concat_ws("@", F.concat_ws("-", "kafka_topic", "kafka_partition"), "kafka_offset")
    headers = {"trioka.reason": F.col("reason"), "trioka.flow": F.col("flow"), "trioka.origin": origin}
    return letters.select(
        F.col("kafka_key").alias("key"),
        F.when(F.col("kafka_topic").isNull(), F.col("row").cast("binary"))
        .otherwise(F.col("kafka_value"))
        .alias("value"),
        F.array(
            *(
                F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
                for name, value in headers.items()
            )
        ).alias("headers"),
    )


def beyond(refused: DataFrame, written: Ends) -> DataFrame:
    """The refused rows that a table does not have yet, by the offsets of their records."""
    if not {"kafka_topic", "kafka_partition", "kafka_offset"} <= set(refused.columns):
        return refused
    for topic, ones in written.items():
        for partition, end in ones.items():
            is_of = (F.col("kafka_topic") == topic) & (F.col("kafka_partition") == partition)
            refused = refused.where(~F.coalesce(is_of & (F.col("kafka_offset") < end), F.lit(False)))
    return refused
