"""The rules for a part of a pipeline on Spark, as functions of a module, so that a faulty copy of it can be tested.

The planted faults are here too: those that show only with Spark. Each rule takes seconds, so a usual run plants the
first fault of each; `TRIOKA_SPARK_ALL` runs all of them.
"""

import itertools
import os
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.pipelines import PipelineHarness
from trioka.pipeline.errors import PipelineFailed
from trioka.pipeline.expectations import judge
from trioka.pipeline.expectations.judge import Judge
from trioka.pipeline.expectations.rules import Expectation
from trioka.pipeline.flows import batch_plan
from trioka.pipeline.runner import backfill, stages
from trioka.pipeline.runner.run import spark_for
from trioka.pipeline.runner.session import source_options
from trioka.pipeline.sources.offsets import Commit
from trioka.pipeline.tables import sinks
from trioka.pipeline.tables.delivery import always

ARE_ALL_WANTED = bool(os.environ.get("TRIOKA_SPARK_ALL"))
TABLE = {"kind": "parquet", "path": "table"}
NUMBERS = itertools.count()
REST = ("topic", "partition", "timestamp", "timestampType")  # of the columns of the connector
Rule = Callable[[ModuleType, PipelineHarness, SparkSession], None]


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """What the connector would give for these values."""
    columns = "key BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, value BINARY"
    return spark.createDataFrame([(None, "t", 0, number, None, one) for number, one in enumerate(values)], columns)


def refused_records_stop_nothing(module: ModuleType, workshop: PipelineHarness, spark: SparkSession) -> None:
    declared = workshop.pipeline(
        name="refused",
        source={"topics": ["t"]},
        decode={"format": "json", "schema": "id INT NOT NULL, text STRING"},
        validate={"a number": "cast(text AS INT) > 0"},
        sink=TABLE,
        dead_letters={"kind": "parquet", "path": "dead"},
    ).declared
    good, odd = b'{"id": 1, "text": "1"}', b'{"id": 2, "text": "x"}'
    given = records(spark, good, b"{", None, odd, b'{"text": "1"}')
    stages = module.Stages(declared)
    assert [row["kafka_offset"] for row in stages.accepted(given).collect()] == [0]
    assert sorted(row["kafka_offset"] for row in stages.refused(given).collect()) == [1, 2, 3, 4]


def rows_are_judged_and_counted(module: ModuleType, workshop: PipelineHarness, spark: SparkSession) -> None:
    columns = "id INT, text STRING, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT"
    rows = spark.createDataFrame(
        [(id, text, "t", 0, id) for id, text in enumerate(("1", "x", "-1", None, "7"))], columns
    )
    number = Expectation(name="a number", condition="cast(text AS INT) > 0", action="drop")
    whole = Expectation(name="whole", condition="cast(text AS INT) IS NOT NULL", action="warn")
    small = Expectation(name="small", condition="text < '5'", action="warn")
    judge = module.Judge([number, small, whole], "flow")
    clean = rows.where("id IN (0, 4)")
    for given, is_cached in ((clean, True), (rows, False), (rows, True)):  # after a clean batch, none is cached
        with judge.judged(given, is_seen_later=True) as found:
            assert sorted(row["id"] for row in found.accepted.collect()) == [0, 4]
            verdict = found.verdict()
            assert (verdict.is_cached, verdict.reads) == (is_cached, 1)
            if given is clean:
                assert (verdict.counts.records, verdict.refused) == (2, None)
                continue
            assert (verdict.counts.records, verdict.counts.refused) == (5, 3)
            assert verdict.counts.broken == {"a number": 3, "small": 3, "whole": 2}
            letters = module.letters_of(module.beyond(verdict.refused, {"t": {0: 2}}), "flow").collect()
            assert sorted(row["kafka_offset"] for row in letters) == [2, 3]
    strict = Expectation(name="small ids", condition="id < 4", action="fail")
    judge = module.Judge([strict], "flow")
    for given in (rows, rows.where("id < 4"), rows):  # cached, then counted on the way
        expected = "'small ids' of the flow flow fails for 1 of 5 rows"
        with pytest.raises(PipelineFailed, match=expected) if given is rows else nullcontext():
            _computed(judge, given)


def _computed(judge: Judge, rows: DataFrame) -> None:
    with judge.judged(rows, is_seen_later=True) as found:
        found.accepted.collect()
        found.verdict()


def no_decimal_is_rounded(module: ModuleType, workshop: PipelineHarness, spark: SparkSession) -> None:
    """Each of these is a JSON value of the field, and whether DECIMAL(10,2) keeps it as it is."""
    given = {
        "1.23": True,
        "1.230": True,
        "1.239": False,
        "123e-2": True,
        "1239e-3": False,
        "0.005": False,
        "-0.10": True,
        "99999999.99": True,
        '"1.239"': False,
        '"1,000.5"': True,
        "null": True,
    }
    shapes = {
        "a DECIMAL(10,2)": '{"a": %s}',
        "a ARRAY<STRUCT<b: DECIMAL(10,2)>>": '{"a": [{"b": 1}, {"b": %s}]}',
        "a MAP<STRING, DECIMAL(10,2)>": '{"a": {"x": 1, "y": %s}}',
        "a DECIMAL(38,2), b INT": '{"b": 1, "a": %s}',
    }
    for ddl, text in shapes.items():
        declared = workshop.pipeline(
            name="exact",
            source={"topics": ["t"]},
            decode={"format": "json", "schema": ddl},
            sink=TABLE,
            dead_letters={"kind": "discard"},
        ).declared
        rows = records(spark, *((text % one).encode() for one in given))
        stages = module.Stages(declared)
        kept = sorted(row["kafka_offset"] for row in stages.accepted(rows).collect())
        assert kept == [number for number, is_exact in enumerate(given.values()) if is_exact], ddl
        reasons = {row["reason"] for row in stages.refused(rows).collect()}
        assert reasons == {"the field 'a' has more digits than its type keeps"}


def added_columns_are_taken_in(module: ModuleType, workshop: PipelineHarness, spark: SparkSession) -> None:
    name = f"evolved{next(NUMBERS)}"
    declared = workshop.pipeline(name="evolved", source={"topics": ["t"]}, sink=workshop.iceberg_sink(name)).declared
    with spark_for(declared, "local[2]", None):
        table = module.IcebergTable(spark, declared.sink)
        for number, (row, columns) in enumerate(
            [((1,), "id INT"), ((2, "x"), "id INT, note STRING"), ((3,), "id INT")]
        ):
            commit = Commit(pipeline="evolved", run="run", batch=number, start={}, end={})
            table.append(spark.createDataFrame([row], columns), commit, always)
        found = spark.table(declared.sink.full_name).collect()  # type: ignore[union-attr]
    assert {row["id"]: row["note"] for row in found} == {1: None, 2: "x", 3: None}


def a_bounded_read_ends_at_its_end(module: ModuleType, workshop: PipelineHarness, spark: SparkSession) -> None:
    topic = f"bounded-{next(NUMBERS)}"
    workshop.topic(topic, [{"id": number} for number in range(10)])
    declared = workshop.pipeline(name="bounded", source={"topics": [topic]}, sink=TABLE).declared
    commit = Commit(pipeline="b", run="r", batch=0, start={topic: {0: 1, 1: 0}}, end={topic: {0: 3, 1: 2}})
    read = module._records(spark, declared.source, commit, 4).collect()
    assert sorted((row["partition"], row["offset"]) for row in read) == [(0, 1), (0, 2), (1, 0), (1, 1)]


def a_flow_is_computed_from_a_batch_of_its_source(
    module: ModuleType, workshop: PipelineHarness, spark: SparkSession
) -> None:
    options = source_options(workshop.bootstrap, subscribe="t")
    stream = spark.readStream.format("kafka").options(**options).load()
    stream.createOrReplaceTempView("plain_stream")
    rows = spark.sql("SELECT offset * 10 AS id, cast(value AS STRING) AS text FROM plain_stream WHERE offset > 0")
    given = spark.createDataFrame([(b"b", 1), (b"a", 0)], "value BINARY, offset BIGINT")
    batch = given.selectExpr("cast(null AS BINARY) AS key", "*", *("0 AS " + name for name in REST))
    assert module.source_of(rows) == options
    assert [tuple(row) for row in module.over_batch(rows, batch).collect()] == [(10, "b")]
    assert module.source_of(rows.groupBy("id").count()) is None
    assert module.source_of(rows.union(rows)) is None


ALL: list[tuple[Rule, ModuleType, list[tuple[str, str]]]] = [
    (
        refused_records_stop_nothing,
        stages,
        [
            ('"mode": "PERMISSIVE"', '"mode": "FAILFAST"'),
            ("rows.where(F.col(REASON).isNull())", "rows"),
        ],
    ),
    (
        rows_are_judged_and_counted,
        judge,
        [
            ("attempted(rows.sparkSession, F.expr(rule.condition))", "F.expr(rule.condition)"),
            ('if rule.action == "drop":', "if True:"),
            ('if rule.action == "fail" and counts.broken[rule.name]:', "if False:"),
            ('is_of & (F.col("kafka_offset") < end)', "is_of"),
            ("self._expects_refused = counts.refused > 0", "pass"),
        ],
    ),
    (
        no_decimal_is_rounded,
        stages,
        [
            (
                "rounded = is_rounded(record[decimal.name], read[decimal.name], decimal.dataType)",
                "rounded = F.lit(False)",
            )
        ],
    ),
    (
        a_flow_is_computed_from_a_batch_of_its_source,
        batch_plan,
        [
            ("if is_kafka_stream(plan):", "if False:"),
            ("len(sources) == 1 and state_of(rows).can_be_made_anew", "sources"),
        ],
    ),
    (added_columns_are_taken_in, sinks, [("        if new:\n", "        if False:\n")]),
    (
        a_bounded_read_ends_at_its_end,
        backfill,
        [
            ("endingOffsets=to_json(commit.end)", 'endingOffsets="latest"'),
            ("startingOffsets=to_json(commit.start), ", ""),
        ],
    ),
]
MISTAKES = [
    (rule, module, right, wrong)
    for rule, module, planted in ALL
    for right, wrong in (planted if ARE_ALL_WANTED else planted[:1])
]
