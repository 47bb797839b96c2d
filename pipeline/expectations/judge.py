"""Applies expectations to the rows of a batch: which are kept, which are refused and why, and how many break each rule.

A target that shows its rows in a second step, as tables do, gets them in one pass: the rows are counted on their way,
and what the counts say is known before any row is seen. Only if a row was refused is the batch read once more for the
dead letters, and the next batches of the flow are cached and then divided, until one has no refused row. Any other
target, and the first batch of a run, gets rows that were cached and counted before.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from trioka.protocol.lazy_dataclass import frozen

from ..errors import PipelineFailed
from ..sources.offsets import Ends
from .columns import MAX_REASON_CHARS, METADATA, REASON, VALUE, attempted, sentences
from .rules import Counts, Expectation

BROKEN = "__trioka_broken_"
NOT_DECODED = "the record is decoded"
MAX_SAMPLE_CHARS = 300
# Spark reports what it observed by an event of its own, after the rows were written.
OBSERVED_WITHIN_S = 30
RECORDS, REFUSED, UNDECODED = "records", "refused", "undecoded"
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
class Verdict:
    """`refused` rows have their reason; None if there are none. `counts` is None if nothing had to be counted.
    `is_cached`: to compute them does not read the source again. `reads` is how often it was read until now.
    """

    refused: DataFrame | None = None
    counts: Counts | None = None
    is_cached: bool = False
    reads: int = 1


@frozen
class Judged:
    """`verdict` may be called when the accepted rows have been computed. It raises `PipelineFailed` for a broken rule
    whose action is to fail.
    """

    accepted: DataFrame
    verdict: Callable[[], Verdict]


def check_rule(rows: DataFrame, rule: Expectation, key: str) -> None:
    """Let Spark analyse a condition, before anything runs; a mistake is reported under the key."""
    with sentences(key):
        rows.where(_holds(rows, rule))


class Judge:
    """Judges the batches of one flow. `is_lean`: what accepted rows are made of has no use for the original bytes."""

    def __init__(
        self, rules: Sequence[Expectation], flow: str, *, may_refuse: bool = True, is_lean: bool = False
    ) -> None:
        self._rules = rules
        self._flow = flow
        self._may_refuse = may_refuse
        self._is_lean = is_lean
        self._expects_refused = True

    @contextmanager
    def judged(self, rows: DataFrame, *, is_seen_later: bool = False) -> Iterator[Judged]:
        """The batch, divided. `is_seen_later`: the verdict is called before anybody sees the accepted rows."""
        is_decoded = REASON in rows.columns
        if not self._rules and not (is_decoded and self._may_refuse):
            yield Judged(accepted=rows, verdict=Verdict)
            return
        found = marked(rows, self._rules)
        columns = _aggregates(self._rules, is_decoded=is_decoded)
        if is_seen_later and not self._expects_refused:
            observation = Observation()
            lean = found.drop(VALUE) if self._is_lean else found  # Spark prunes no column above what it observes
            watched = lean.observe(observation, *(column.alias(name) for name, column in columns.items()))
            yield Judged(
                accepted=self._accepted(watched),
                verdict=cache(lambda: self._verdict(found, columns, _observed(observation))),
            )
            return
        kept = found
        if self._is_lean and VALUE in rows.columns:
            kept = found.withColumn(VALUE, F.when(F.col(REASON).isNotNull(), F.col(VALUE)))
        cached = kept.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            verdict = replace(self._verdict(cached, columns, {}), is_cached=True, reads=1)
            yield Judged(accepted=self._accepted(cached), verdict=lambda: verdict)
        finally:
            cached.unpersist()

    def _accepted(self, found: DataFrame) -> DataFrame:
        return without_marks(found.where(F.col(REASON).isNull()), self._rules).drop(REASON)

    def _verdict(self, found: DataFrame, columns: Mapping[str, Column], observed: Mapping[str, int]) -> Verdict:
        values = observed or found.agg(*(column.alias(name) for name, column in columns.items())).collect()[0].asDict()
        broken = {rule.name: values[f"{BROKEN}{number}"] for number, rule in enumerate(self._rules)}
        if UNDECODED in values:
            broken = {NOT_DECODED: values[UNDECODED], **broken}
        counts = Counts(records=values[RECORDS], refused=values[REFUSED], broken=broken)
        self._expects_refused = counts.refused > 0
        _stop_if_failed(found, self._rules, counts, self._flow)
        refused = without_marks(found.where(F.col(REASON).isNotNull()), self._rules) if counts.refused else None
        return Verdict(refused=refused, counts=counts, reads=1 if observed else 2)


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


def _aggregates(rules: Sequence[Expectation], *, is_decoded: bool) -> dict[str, Column]:
    """What is counted, by the name of its column: rows, refused ones, those not decoded, those that break each rule."""
    is_refused = F.col(REASON).isNotNull()
    found = {RECORDS: F.count(F.lit(1)), REFUSED: F.count_if(is_refused)}
    if is_decoded:
        is_undecoded = is_refused
        for number, rule in enumerate(rules):
            if rule.action == "drop":
                is_undecoded = is_undecoded & ~F.col(f"{BROKEN}{number}")
        found[UNDECODED] = F.count_if(is_undecoded)
    return found | {f"{BROKEN}{number}": F.count_if(F.col(f"{BROKEN}{number}")) for number in range(len(rules))}


def _observed(observation: Observation) -> dict[str, int]:
    """What Spark counted; nothing if it has left the count out of its plan."""
    seen: Any = observation._jo
    jvm: Any = observation._jvm
    try:
        patience = jvm.scala.concurrent.duration.Duration.apply(OBSERVED_WITHIN_S, "s")
        row = jvm.org.apache.spark.util.ThreadUtils.awaitResult(seen.future(), patience)
        return {str(name): int(row.getAs(name)) for name in row.schema().fieldNames()}
    except (Py4JError, PySparkException, ValueError):
        return {}


def _stop_if_failed(found: DataFrame, rules: Sequence[Expectation], counts: Counts, flow: str) -> None:
    for number, rule in enumerate(rules):
        if rule.action == "fail" and counts.broken[rule.name]:
            broken = without_marks(found.where(F.col(f"{BROKEN}{number}")), rules)
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
