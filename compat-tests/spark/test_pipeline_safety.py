"""No row twice and none lost, whatever becomes of checkpoints, tables and topics between two runs of a pipeline."""

import itertools
import shutil
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from spark.pipeline_rules import TABLE
from spark.pipelines import PATIENCE_S, PipelineHarness, untick
from trioka.pipeline import Pipeline
from trioka.pipeline.errors import InvalidPipeline, PipelineFailed
from trioka.pipeline.runner.run import spark_for, stream_of
from trioka.pipeline.runner.stages import Stages
from trioka.pipeline.runner.state import State, state_of
from trioka.pipeline.sources.offsets import Commit
from trioka.pipeline.tables.delivery import always, catalog_settings, table_of
from trioka.pipeline.tables.sinks import IcebergTable

# PySpark leaves the sockets over which it collects rows to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

JSON = {"format": "json", "schema": "id BIGINT NOT NULL, at TIMESTAMP"}
DISCARD = {"kind": "discard"}


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def numbers(*range_of: int) -> list[dict[str, Any]]:
    return [{"id": id} for id in range(*range_of)]


def maintained(spark: SparkSession, pipeline: Pipeline) -> None:
    """What an operator's job does to a table: small files become large ones, and old snapshots go."""
    sink = pipeline.declared.sink
    assert sink.kind == "iceberg"
    with spark_for(pipeline.declared, "local[2]", None):
        options = "options => map('rewrite-all', 'true')"
        spark.sql(f"CALL {sink.catalog}.system.rewrite_data_files(table => '{sink.table}', {options})")
        until = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
        spark.sql(f"CALL {sink.catalog}.system.expire_snapshots(table => '{sink.table}', {until})")
        assert spark.sql(f"SELECT * FROM {sink.full_name}.snapshots").count() == 1


def created_again(workshop: PipelineHarness, topic: str, messages: list[dict[str, Any]]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=workshop.bootstrap)
    admin.delete_topics([topic])
    admin.close()
    workshop.topic(topic, messages)


# -- what a table remembers --------------------------------------------------------------------------------------------


def test_a_lost_checkpoint_is_made_anew_though_maintenance_removed_every_snapshot(
    workshop: PipelineHarness, spark: SparkSession, topic: str
) -> None:
    workshop.topic(topic, [*numbers(20), b"{"])
    values = {
        "name": topic,
        "source": {"topics": [topic], "max_records_per_batch": 10},
        "decode": JSON,
        "sink": workshop.iceberg_sink("kept"),
        "dead_letters": workshop.iceberg_sink("refused"),
    }
    pipeline = workshop.run(**values)
    maintained(spark, pipeline)
    shutil.rmtree(workshop.folder / "checkpoints")
    workshop.send(topic, [*numbers(20, 30), b"["])
    workshop.run(**values)
    assert ids(workshop.iceberg("kept")) == list(range(30))
    assert sorted(row["kafka_value"] for row in workshop.iceberg("refused")) == [b"[", b"{"]

    # A batch whose driver died before the tick comes again after maintenance, too.
    maintained(spark, pipeline)
    untick(workshop.folder / "checkpoints" / topic / "records")
    workshop.run(**values)
    assert ids(workshop.iceberg("kept")) == list(range(30))
    assert len(workshop.iceberg("refused")) == 2


def test_rows_of_which_nothing_says_whose_they_are_stop_the_pipeline(
    workshop: PipelineHarness, spark: SparkSession, topic: str
) -> None:
    workshop.topic(topic, numbers(10))
    sink = workshop.iceberg_sink("bare")
    values = {"name": topic, "source": {"topics": [topic]}, "decode": JSON, "dead_letters": DISCARD}
    pipeline = workshop.run(**values, sink=sink)
    maintained(spark, pipeline)
    with spark_for(pipeline.declared, "local[2]", None):
        table = pipeline.declared.sink.full_name  # type: ignore[union-attr]
        for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect():
            if row["key"].startswith("trioka."):
                spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{row['key']}')")
    shutil.rmtree(workshop.folder / "checkpoints")
    with pytest.raises(
        InvalidPipeline, match=rf"shop.bare holds rows, and .* the pipeline {topic} wrote them"
    ) as raised:
        workshop.run(**values, sink=sink)
    assert str(raised.value).count("\n") == 0
    assert ids(workshop.iceberg("bare")) == list(range(10))
    # Whoever knows that the rows are somebody else's says so.
    workshop.run(**values, sink={**sink, "on_unknown_rows": "append"})
    assert len(workshop.iceberg("bare")) == 20


@pytest.mark.nightly
def test_files_in_a_folder_of_which_nothing_says_whose_they_are_stop_the_pipeline(
    workshop: PipelineHarness, spark: SparkSession, topic: str
) -> None:
    workshop.topic(topic, numbers(10))
    values = {"name": topic, "source": {"topics": [topic]}, "decode": JSON, "dead_letters": DISCARD}
    spark.createDataFrame([(99,)], "id BIGINT").write.parquet(str(workshop.folder / "table"))
    with pytest.raises(InvalidPipeline, match=r"on_unknown_rows = 'append'"):
        workshop.run(**values, sink=TABLE)


def test_a_table_whose_commits_stand_in_summaries_alone_keeps_them(
    workshop: PipelineHarness, spark: SparkSession
) -> None:
    """As tables were written before there were properties."""
    declared = workshop.pipeline(name="old", source={"topics": ["t"]}, sink=workshop.iceberg_sink("old")).declared
    table = table_of(spark, declared.sink)
    assert isinstance(table, IcebergTable)

    def batch(number: int) -> Commit:
        return Commit(
            pipeline="old", run="r", batch=number, start={"t": {0: number}}, end={"t": {0: number + 1}}, topics={}
        )

    rows = spark.createDataFrame([(1,)], "id BIGINT")
    with spark_for(declared, "local[2]", None):
        spark.sql(f"CREATE NAMESPACE {declared.sink.catalog}.shop")  # type: ignore[union-attr]
        rows.limit(0).writeTo(declared.sink.full_name).using("iceberg").create()  # type: ignore[union-attr]
        for number in range(2):
            writer = rows.writeTo(declared.sink.full_name)  # type: ignore[union-attr]
            writer.option("snapshot-property.trioka.commit", batch(number).to_json()).append()
        assert table.holds(batch(1))
        assert not table.holds(batch(2))
        table.append(rows, batch(2), always)
        maintained(spark, Pipeline(declared))
        assert table.holds(batch(2))
        (known,) = table.commits()
    assert (known.start, known.end) == ({"t": {0: 0}}, {"t": {0: 3}})


def test_rows_that_are_staged_and_not_confirmed_are_not_in_the_table(
    workshop: PipelineHarness, spark: SparkSession
) -> None:
    """As if the driver had died between the two: neither the rows nor the progress are there, and both come later."""
    declared = workshop.pipeline(name="staged", source={"topics": ["t"]}, sink=workshop.iceberg_sink("staged")).declared
    rows = spark.createDataFrame([(1,)], "id BIGINT")
    commit = Commit(pipeline="staged", run="r", batch=0, start={}, end={"t": {0: 1}})

    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    with spark_for(declared, "local[2]", None):
        for keys in ((), ("id",)):
            table = IcebergTable(spark, declared.sink, keys)  # type: ignore[arg-type]
            with pytest.raises(Died):
                table.append(rows, commit, die)
            assert not table.has_rows()
            assert not table.holds(commit)
        table.append(rows, commit, always)
        assert table.holds(commit)
    assert ids(workshop.iceberg("staged")) == [1]


@pytest.mark.nightly
def test_a_merge_is_made_again_if_somebody_else_changed_the_table_meanwhile(
    workshop: PipelineHarness, spark: SparkSession
) -> None:
    declared = workshop.pipeline(name="merge", source={"topics": ["t"]}, sink=workshop.iceberg_sink("merge")).declared
    with spark_for(declared, "local[2]", None):
        name = declared.sink.full_name  # type: ignore[union-attr]
        table = IcebergTable(spark, declared.sink, ("id",))  # type: ignore[arg-type]
        attempts = itertools.count()

        def disturb() -> None:
            if next(attempts) == 0:
                spark.createDataFrame([(3, "other")], "id BIGINT, note STRING").writeTo(name).append()

        rows = spark.createDataFrame([(1, "a"), (3, "mine")], "id BIGINT, note STRING")
        table.append(rows, Commit(pipeline="merge", run="r", batch=0, start={}, end={"t": {0: 2}}), disturb)
        assert next(attempts) == 2
        assert sorted((row["id"], row["note"]) for row in spark.table(name).collect()) == [(1, "a"), (3, "mine")]


def test_a_checkpoint_that_is_older_than_the_table_stops_the_pipeline(workshop: PipelineHarness, topic: str) -> None:
    """One that was restored from a backup: its next batch has a number that the table knows, and other offsets."""
    workshop.topic(topic, numbers(10))
    values = {"name": topic, "source": {"topics": [topic]}, "decode": JSON, "dead_letters": DISCARD}
    readers: list[tuple[dict[str, Any], Callable[[], list[dict[str, Any]]]]] = [
        (TABLE, workshop.parquet),
        (workshop.iceberg_sink("older"), lambda: workshop.iceberg("older")),
    ]
    for sink, read in readers:
        named = {**values, "name": f"{topic}-{sink['kind']}", "sink": sink}
        backup = workshop.folder / f"backup-{sink['kind']}"
        workshop.run(**named, checkpoint="checkpoint")
        shutil.copytree(workshop.folder / "checkpoint", backup)
        workshop.send(topic, numbers(10, 20))
        workshop.run(**named, checkpoint="checkpoint")
        workshop.send(topic, numbers(20, 30))
        before = ids(read())
        with pytest.raises(InvalidPipeline, match=r"^The checkpoint is older than the table: batch 1 is"):
            workshop.run(**named, checkpoint=str(backup))
        assert ids(read()) == before
        shutil.rmtree(backup)
        workshop.run(**named, checkpoint=str(backup))  # made anew from the table
        assert ids(read()) == sorted(before + list(range(20, 30)))
        shutil.rmtree(workshop.folder / "checkpoint")


# -- topics that are other ones ----------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("file", ["start.json", "topics.json", "records/metadata", "records/offsets/0"])
def test_a_damaged_file_of_a_checkpoint_is_one_sentence_and_loses_nothing(
    workshop: PipelineHarness, topic: str, file: str
) -> None:
    workshop.topic(topic, numbers(4))
    values = {"name": topic, "source": {"topics": [topic]}, "decode": JSON, "sink": TABLE, "dead_letters": DISCARD}
    workshop.run(**values, checkpoint="checkpoint")
    damaged = workshop.folder / "checkpoint" / file
    damaged.write_text("{")
    damaged.with_name(f".{damaged.name}.crc").unlink(missing_ok=True)
    workshop.send(topic, numbers(4, 5))
    with pytest.raises(PipelineFailed) as raised:
        workshop.run(**values, checkpoint="checkpoint")
    assert len(str(raised.value).splitlines()) == 1
    shutil.rmtree(workshop.folder / "checkpoint")
    workshop.run(**values, checkpoint="checkpoint")
    assert sorted(row["id"] for row in workshop.parquet()) == list(range(5))


def test_a_topic_that_was_deleted_and_created_again_stops_the_pipeline(workshop: PipelineHarness, topic: str) -> None:
    workshop.topic(topic, numbers(10))
    values = {"name": topic, "source": {"topics": [topic]}, "decode": JSON, "sink": TABLE, "dead_letters": DISCARD}
    pipeline = workshop.run(**values)
    created_again(workshop, topic, numbers(100, 130))
    with pytest.raises(InvalidPipeline, match=f"^The topic '{topic}' was deleted and created again") as raised:
        workshop.run(**values)
    assert str(raised.value).count("\n") == 0
    assert ids(workshop.parquet()) == list(range(10))
    with pytest.raises(InvalidPipeline, match=f"^The topic '{topic}' was deleted and created again"):
        pipeline.backfill()
    # What the sentence says to do: the new topic is read from its start, whatever the table knows of the old one.
    shutil.rmtree(workshop.folder / "checkpoints")
    workshop.run(**values)
    assert ids(workshop.parquet()) == [*range(10), *range(100, 130)]


@pytest.mark.nightly
def test_a_topic_that_is_created_again_while_the_pipeline_runs_stops_it(workshop: PipelineHarness, topic: str) -> None:
    workshop.topic(topic, numbers(10))
    pipeline = workshop.pipeline(
        name=topic,
        every="1 second",
        source={"topics": [topic], "on_data_loss": "skip"},
        decode=JSON,
        sink=TABLE,
        dead_letters=DISCARD,
    )
    message, failed = threading.Event(), []

    def run() -> None:
        try:
            pipeline.run(say=lambda text: message.set() if text.startswith("records: batch 0:") else None)
        except PipelineFailed as wrong:
            failed.append(str(wrong))
        finally:
            message.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert message.wait(PATIENCE_S)
    created_again(workshop, topic, numbers(100, 130))
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert failed and failed[0].startswith(f"The topic '{topic}' was deleted and created again")
    assert ids(workshop.parquet()) == list(range(10))


# -- the first start ---------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_two_tables_are_created_in_a_new_namespace_at_the_same_moment(
    workshop: PipelineHarness, spark: SparkSession
) -> None:
    """What the first batches of rows and of dead letters do; whichever of them comes second finds it done."""
    for number in range(5):
        sinks = [
            workshop.pipeline(
                name="first",
                source={"topics": ["t"]},
                sink={**workshop.iceberg_sink("x"), "table": f"new{number}.{name}"},
            ).declared
            for name in ("rows", "dead", "rows")
        ]
        with spark_for(sinks[0], "local[2]", None):
            gate = threading.Barrier(len(sinks))
            failed: list[object] = []

            def append(
                index: int, gate: threading.Barrier = gate, failed: list[object] = failed, sinks: Any = sinks
            ) -> None:
                commit = Commit(pipeline="first", run=f"r{index}", batch=0, start={}, end={"t": {0: 1}})
                own = spark.newSession()  # as each query has one
                for key, value in catalog_settings(sinks[index]).items():
                    if key.startswith("spark.sql.catalog."):
                        own.conf.set(key, value)
                gate.wait()
                try:
                    IcebergTable(own, sinks[index].sink).append(
                        own.createDataFrame([(1,)], "id BIGINT"), commit, always
                    )
                except Exception as error:
                    failed.append(error)

            threads = [threading.Thread(target=append, args=(index,)) for index in range(len(sinks))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failed == []
            counts = [spark.table(one.sink.full_name).count() for one in sinks]  # type: ignore[union-attr]
            assert counts == [2, 1, 2]


# -- state that only the plan shows ------------------------------------------------------------------------------------


def test_state_that_the_sql_asks_for_comes_through_a_batch_that_is_repeated(
    workshop: PipelineHarness, topic: str
) -> None:
    workshop.topic(topic, numbers(10))
    values = {
        "name": topic,
        "source": {"topics": [topic], "max_records_per_batch": 6},
        "decode": JSON,
        "transform": {"sql": "SELECT a.id FROM records a JOIN records b ON a.id = b.id"},
        "sink": TABLE,
        "dead_letters": DISCARD,
    }
    workshop.run(**values)
    untick(workshop.folder / "checkpoints" / topic / "records")
    workshop.send(topic, numbers(10, 20))
    workshop.run(**values)
    assert ids(workshop.parquet()) == list(range(20))
    with pytest.raises(InvalidPipeline, match="Windows, distinct keys and joins cannot be filled in"):
        workshop.pipeline(**values).backfill()
    shutil.rmtree(workshop.folder / "checkpoints")
    with pytest.raises(InvalidPipeline, match="the windows, keys and joins that were open"):
        workshop.run(**values)


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("SELECT id FROM records", State(is_kept=False, sources=1)),
        ("SELECT id FROM records JOIN VALUES (1), (2) AS few(id) USING (id)", State(is_kept=False, sources=1)),
        ("SELECT id FROM records UNION ALL SELECT -id FROM records", State(is_kept=False, sources=2)),
        ("SELECT DISTINCT id FROM records", State(is_kept=True, sources=1)),
        ("SELECT id, count(*) FROM records GROUP BY id", State(is_kept=True, sources=1)),
        ("SELECT id FROM records LIMIT 5", State(is_kept=True, sources=1)),
        ("WITH r AS (SELECT id FROM records) SELECT a.id FROM r a JOIN r b USING (id)", State(is_kept=True, sources=2)),
    ],
)
def test_the_plan_of_spark_says_whether_there_is_state(
    workshop: PipelineHarness, spark: SparkSession, sql: str, state: State
) -> None:
    declared = workshop.pipeline(
        name="plan",
        source={"topics": ["t"]},
        decode=JSON,
        transform={"sql": sql},
        sink=TABLE,
        dead_letters=DISCARD,
    ).declared
    assert state_of(Stages(declared).accepted(stream_of(spark, declared.source, {}))) == state


# -- rows that come too late -------------------------------------------------------------------------------------------


def test_rows_that_come_later_than_the_watermark_allows_are_counted(workshop: PipelineHarness, topic: str) -> None:
    def at(id: int, minute: int) -> dict[str, Any]:
        return {"id": id, "at": f"2026-11-16T08:{minute:02}:00Z"}

    workshop.topic(topic, [at(1, 0), at(2, 30)], partitions=1)
    values = {
        "name": topic,
        "source": {"topics": [topic]},
        "decode": JSON,
        "watermark": {"column": "at", "delay": "1 minute"},
        "deduplicate": {"keys": ["id"]},
        "sink": TABLE,
        "dead_letters": DISCARD,
    }
    pipeline = workshop.run(**values)
    assert pipeline.late_rows() == 0
    for ids_late in ((3, 4), (5,)):
        workshop.send(topic, [at(id, 1) for id in ids_late], partitions=1)
        workshop.run(**values)
    assert ids(workshop.parquet()) == [1, 2]
    late = [line for line in workshop.said if "later than the watermark" in line]
    assert [line.partition(": ")[2].partition(": ")[2] or line for line in late] == [
        "2 rows came later than the watermark allows and were dropped.",
        "In all, 2 rows came later than the watermark allows and were dropped.",
        "1 row came later than the watermark allows and was dropped.",
        "In all, 3 rows came later than the watermark allows and were dropped.",
    ]
    assert pipeline.late_rows() == 3
