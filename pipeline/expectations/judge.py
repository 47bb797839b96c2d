"""Applies expectations to the rows of a batch: which are kept, which are refused and why, and how many break each rule.

The batch is cached before it is counted, so that rows, dead letters and counts come from one read of the source. A
flow without expectations, and without records that its decoder refused, is not cached.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trioka.protocol.lazy_dataclass import frozen

from ..errors import PipelineFailed
from ..runner.stages import MAX_REASON_CHARS, METADATA, REASON, VALUE, attempted, sentences
from .rules import Expectation

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
class Counts:
    """`broken` counts the rows that break each rule; a row may break several. `refused` rows are not in the table."""

    records: int
    refused: int
    broken: dict[str, int] = field(default_factory=dict)


@frozen
class Judged:
    """`counts` is None if nothing had to be counted. `refused` are dead letters, with the columns of their table."""

    accepted: DataFrame
    refused: DataFrame | None
    counts: Counts | None


def check_rules(rows: DataFrame, rules: Sequence[Expectation], place: str) -> None:
    """Let Spark analyse each condition, before anything runs."""
    for rule in rules:
        with sentences(f"{place}: the expectation '{rule.name}'"):
            rows.where(_holds(rows, rule))


@contextmanager
def judged(rows: DataFrame, rules: Sequence[Expectation], flow: str) -> Iterator[Judged]:
    """The batch, divided. A broken rule with the action `fail` raises `PipelineFailed` before anything is delivered."""
    is_decoded = REASON in rows.columns
    if not rules and not is_decoded:
        yield Judged(accepted=rows, refused=None, counts=None)
        return
    marked = _marked(rows, rules).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = _counted(marked, rules, is_decoded=is_decoded)
        _stop_if_failed(marked, rules, counts, flow)
        marks = [REASON, *(f"{BROKEN}{number}" for number in range(len(rules)))]
        accepted = marked.where(F.col(REASON).isNull()) if counts.refused else marked
        refused = _letters(marked.where(F.col(REASON).isNotNull()), marks, flow) if counts.refused else None
        yield Judged(accepted=accepted.drop(*marks), refused=refused, counts=counts)
    finally:
        marked.unpersist()


def _holds(rows: DataFrame, rule: Expectation) -> Column:
    return F.coalesce(attempted(rows.sparkSession, F.expr(rule.condition)), F.lit(False))


def _marked(rows: DataFrame, rules: Sequence[Expectation]) -> DataFrame:
    """The rows with a column for each rule, and the reason why a row is refused: the first rule that drops it."""
    decoded = F.col(REASON) if REASON in rows.columns else F.lit(None).cast("string")
    marks: dict[str, Column] = {}
    reason = decoded
    for number, rule in enumerate(rules):
        # A record that was not decoded has no fields to judge.
        broken = ~_holds(rows, rule) & decoded.isNull()
        marks[f"{BROKEN}{number}"] = broken
        if rule.action == "drop":
            reason = F.coalesce(reason, F.when(broken, F.lit(f"it breaks the rule '{rule.name}'")))
    return rows.withColumns({**marks, REASON: reason})


def _counted(marked: DataFrame, rules: Sequence[Expectation], *, is_decoded: bool) -> Counts:
    counted = [F.count_if(F.col(f"{BROKEN}{number}")) for number in range(len(rules))]
    row = marked.agg(F.count("*"), F.count_if(F.col(REASON).isNotNull()), *counted).collect()[0]
    broken = {rule.name: int(row[2 + number]) for number, rule in enumerate(rules)}
    if is_decoded:
        dropped = [F.col(f"{BROKEN}{number}") for number, rule in enumerate(rules) if rule.action == "drop"]
        is_whole = F.lit(True)
        for one in dropped:
            is_whole = is_whole & ~one
        undecoded = marked.where(F.col(REASON).isNotNull() & is_whole).count() if row[1] else 0
        broken = {NOT_DECODED: undecoded, **broken}
    return Counts(records=int(row[0]), refused=int(row[1]), broken=broken)


def _stop_if_failed(marked: DataFrame, rules: Sequence[Expectation], counts: Counts, flow: str) -> None:
    for number, rule in enumerate(rules):
        if rule.action == "fail" and counts.broken[rule.name]:
            marks = [REASON, *(f"{BROKEN}{other}" for other in range(len(rules)))]
            first = marked.where(F.col(f"{BROKEN}{number}")).drop(*marks).limit(1).toJSON().first()
            raise PipelineFailed(
                f"The expectation '{rule.name}' of the flow {flow} fails for {counts.broken[rule.name]} of "
                f"{counts.records} rows, so nothing of this batch was written. One of them: "
                f"{str(first)[:MAX_SAMPLE_CHARS]}"
            )


def _letters(refused: DataFrame, marks: Sequence[str], flow: str) -> DataFrame:
    there = [name for name in refused.columns if name not in marks]
    hidden = {*METADATA, VALUE}
    fields = [F.col(f"`{name}`") for name in there if name not in hidden]
    row = F.to_json(F.struct(*fields)) if fields else F.lit(json.dumps({}))
    return refused.select(
        F.substring(F.col(REASON), 1, MAX_REASON_CHARS).alias("reason"),
        F.lit(flow).alias("flow"),
        row.alias("row"),
        *((F.col(name) if name in there else F.lit(None)).cast(kind).alias(name) for name, kind in KAFKA_TYPES.items()),
    )
