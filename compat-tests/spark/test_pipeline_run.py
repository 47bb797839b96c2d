"""Declared pipelines on real Spark against trioka: what goes in, what comes out, and what becomes of the rest."""

import io
import json
import shutil
import signal
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, message_factory
from mutants.plant import assert_noticed
from pyspark.sql import SparkSession

from spark.pipeline_rules import ARE_ALL_WANTED, MISTAKES, TABLE, Rule
from spark.pipelines import Driver, PipelineHarness
from spark.registry import Registry
from trioka.pipeline import Pipeline
from trioka.pipeline.errors import InvalidPipeline, PipelineFailed
from trioka.pipeline.example import orders, run_example
from trioka.pipeline.installation.cache import Unreachable
from trioka.pipeline.runner import checkpoint
from trioka.pipeline.runner.run import spark_for
from trioka.pipeline.sources.offsets import Commit
from trioka.pipeline.tables.delivery import Delivery, table_of

# PySpark leaves the sockets over which it collects rows to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SCHEMA = "id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP"
JSON = {"format": "json", "schema": SCHEMA}
ICEBERG = {"kind": "iceberg", "warehouse": "warehouse", "table": "shop.wrong"}
DISCARD = {"kind": "discard"}


def order(id: int, amount: float = 1.0, minute: int = 0) -> dict[str, Any]:
    return {"id": id, "amount": amount, "at": f"2026-11-16T08:{minute:02}:00Z"}


def framed(id: int, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, schema, record)
    return b"\0" + id.to_bytes(4) + target.getvalue()


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_every_record_is_in_the_table_once_or_among_the_dead_letters_with_its_reason(
    workshop: PipelineHarness, topic: str
) -> None:
    broken = [b"{", b"", None, b"[1]", b"\xff\xfe", b'{"id": "x"}', b'{"amount": 2}', json.dumps(order(7, -1)).encode()]
    workshop.topic(topic, [*map(order, range(100)), *broken])
    workshop.topic(f"{topic}-dead")
    values = {
        "name": topic,
        "source": {"topics": [topic], "max_records_per_batch": 60},
        "decode": JSON,
        "validate": {"positive": "amount > 0"},
        "sink": TABLE,
        "dead_letters": {"kind": "topic", "topic": f"{topic}-dead"},
    }
    pipeline = workshop.run(**values)
    assert ids(workshop.parquet()) == list(range(100))
    assert [(one.committed, one.records) for one in pipeline.lag()] == [(54, 0), (54, 0)]  # its group was told
    dead = workshop.messages(f"{topic}-dead")
    assert sorted((one.value or b"-") for one in dead) == sorted(one or b"-" for one in broken)
    reasons = {one.value: dict(one.headers)["trioka.reason"].decode() for one in dead}
    assert reasons[b"{"] == "the value is not JSON of the schema"
    assert reasons[None] == "the value is null"
    assert reasons[b'{"amount": 2}'] == "the field 'id' is missing or null"
    assert reasons[broken[-1]] == "it breaks the rule 'positive'"
    origins = {dict(one.headers)["trioka.origin"].decode() for one in dead}
    assert origins == {f"{topic}-{number % 2}@{number // 2}" for number in range(100, 108)}

    # A second run finds nothing new, and a third only what came since.
    workshop.run(**values)
    workshop.send(topic, [order(100)])
    workshop.run(**values)
    assert ids(workshop.parquet()) == list(range(101))
    assert len(workshop.messages(f"{topic}-dead")) == len(broken)


@pytest.mark.nightly  # with an Iceberg table, and with a graph's dead letters, it is shown in each run
def test_a_lost_checkpoint_is_made_anew_from_the_table(workshop: PipelineHarness, topic: str) -> None:
    workshop.topic(topic, [*map(order, range(20)), b"{"])
    dead = {"kind": "parquet", "path": "dead"}
    values = {"name": topic, "source": {"topics": [topic]}, "decode": JSON, "sink": TABLE, "dead_letters": dead}
    workshop.run(**values, checkpoint="first")
    workshop.send(topic, [*map(order, range(20, 30)), b"["])
    workshop.run(**values, checkpoint="second")
    assert ids(workshop.parquet()) == list(range(30))
    assert sorted(row["kafka_value"] for row in workshop.parquet("dead")) == [b"[", b"{"]
    shutil.rmtree(workshop.folder / "second")
    workshop.run(**values, checkpoint="second")
    assert ids(workshop.parquet()) == list(range(30))
    assert sorted(row["kafka_value"] for row in workshop.parquet("dead")) == [b"[", b"{"]


@pytest.mark.nightly  # added_columns_are_taken_in, below, shows it for Iceberg
def test_added_fields_become_columns_of_both_kinds_of_table(
    workshop: PipelineHarness, spark: SparkSession, topic: str
) -> None:
    workshop.topic(topic, map(order, range(5)))
    values = {"source": {"topics": [topic]}, "dead_letters": DISCARD}
    grown = {"format": "json", "schema": f"{SCHEMA}, note STRING"}
    for sink in (TABLE, workshop.iceberg_sink("grown")):
        named = {**values, "name": f"{topic}-{sink['kind']}", "sink": sink}
        workshop.run(**named, decode=JSON)
    workshop.send(topic, [{**order(5), "note": "new"}])
    for sink in (TABLE, workshop.iceberg_sink("grown")):
        named = {**values, "name": f"{topic}-{sink['kind']}", "sink": sink}
        pipeline = workshop.run(**named, decode=grown)
        found = {row["id"]: row["note"] for row in pipeline.frame(spark).collect()}
        assert found == {**dict.fromkeys(range(5)), 5: "new"}


def test_windows_are_updated_in_an_iceberg_table(workshop: PipelineHarness, spark: SparkSession, topic: str) -> None:
    workshop.topic(topic, [order(id, 2.0, id // 10) for id in range(30)] + [order(3, 2.0)] * 5)
    values = {
        "name": topic,
        "source": {"topics": [topic], "max_records_per_batch": 10},
        "decode": JSON,
        "transform": {"sql": "SELECT id, at, amount * 10 AS cents FROM records"},
        "watermark": {"column": "at", "delay": "1 hour"},
        "aggregate": {
            "window": "1 minute",
            "columns": {"cents": "sum(cents)", "orders": "count(*)"},
            "emit": "updates",
        },
        "sink": workshop.iceberg_sink("minutes"),
        "dead_letters": DISCARD,
    }
    pipeline = workshop.run(**values)
    found = {row["window_start"].minute: row["orders"] for row in pipeline.frame(spark).collect()}
    assert found == {0: 15, 1: 10, 2: 10}
    workshop.send(topic, [order(31, 2.0, 2)])
    workshop.run(**values)
    rows = pipeline.frame(spark).orderBy("window_start").collect()
    assert [(row["orders"], row["cents"]) for row in rows] == [(15, 300.0), (10, 200.0), (11, 220.0)]
    commits = spark.sql(
        f"SELECT summary['trioka.commit'] AS commit FROM {pipeline.declared.sink.full_name}.snapshots"  # type: ignore[union-attr]
    ).collect()
    ends = [json.loads(row["commit"])["end"] for row in commits if row["commit"]]
    assert max(sum(end[topic].values()) for end in ends) == 36  # every snapshot says up to where it has read


@pytest.mark.nightly  # state through a repeated batch, and windows that are updated, run each time
def test_doubles_are_dropped_and_finished_windows_are_written_once(workshop: PipelineHarness, topic: str) -> None:
    doubled = [order(id, 1.0, id // 10) for id in range(40) for _ in range(2)]
    values = {
        "name": topic,
        "source": {"topics": [topic], "max_records_per_batch": 30},
        "decode": JSON,
        "watermark": {"column": "at", "delay": "1 minute"},
        "deduplicate": {"keys": ["id"]},
        "aggregate": {"window": "1 minute", "columns": {"orders": "count(*)"}},
        "sink": TABLE,
        "dead_letters": DISCARD,
    }
    workshop.topic(topic, doubled)
    workshop.run(**values)
    workshop.send(topic, [order(99, 1.0, 30)])
    workshop.run(**values)
    rows = sorted((row["window_start"].minute, row["orders"]) for row in workshop.parquet())
    assert rows == [(0, 10), (1, 10), (2, 10), (3, 10)]


def test_avro_records_are_read_by_the_schema_that_their_id_names(workshop: PipelineHarness, topic: str) -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    amount = {"name": "amount", "type": ["null", "double"], "default": None}
    new: dict[str, Any] = {**old, "fields": [*old["fields"], amount]}
    (workshop.folder / "old.avsc").write_text(json.dumps(old))
    (workshop.folder / "new.avsc").write_text(json.dumps(new))

    good = [framed(1, old, {"id": 1}), framed(2, new, {"id": 2, "amount": 2.5})]
    workshop.topic(topic, [*good, framed(9, old, {"id": 3}), b"\0\0", good[0] + b"!"])
    workshop.run(
        name=topic,
        source={"topics": [topic]},
        decode={"format": "avro", "schema_file": "new.avsc", "writers": {"1": "old.avsc", "2": "new.avsc"}},
        sink=TABLE,
        dead_letters={"kind": "parquet", "path": "dead"},
    )
    assert sorted((row["id"], row["amount"]) for row in workshop.parquet()) == [(1, None), (2, 2.5)]
    assert {row["reason"] for row in workshop.parquet("dead")} == {
        "schema id 9 is not among the writers that were declared",
        "the value does not begin with a schema id: a zero byte and four more",
        "1 bytes follow the Avro record",
    }


def test_protobuf_messages_are_read_by_their_descriptor(workshop: PipelineHarness, topic: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="tags", number=2, type=9, label=3)
    descriptor = descriptor_pb2.FileDescriptorSet(file=[file])
    (workshop.folder / "order.desc").write_bytes(descriptor.SerializeToString())
    made = message_factory.GetMessages([file])["shop.Order"]
    workshop.topic(topic, [made(id=5, tags=["a", "b"]).SerializeToString(), b"\xff\xff"])
    workshop.run(
        name=topic,
        source={"topics": [topic]},
        decode={"format": "protobuf", "descriptor": "order.desc", "message": "shop.Order"},
        sink=TABLE,
        dead_letters={"kind": "parquet", "path": "dead"},
    )
    assert [(row["id"], row["tags"]) for row in workshop.parquet()] == [(5, ["a", "b"])]
    assert len(workshop.parquet("dead")) == 1


def test_a_backfill_reads_what_was_before_the_stream_and_a_replay_goes_elsewhere(
    workshop: PipelineHarness, topic: str
) -> None:
    workshop.topic(topic, map(order, range(40)))
    source = {"topics": [topic], "start_offsets": {topic: {"0": 10, "1": 10}}}
    pipeline = workshop.run(name=topic, source=source, decode=JSON, sink=TABLE, dead_letters=DISCARD)
    assert ids(workshop.parquet()) == list(range(20, 40))
    with pytest.raises(InvalidPipeline, match="The stream itself reads a part of that range"):
        pipeline.backfill(until="latest")
    assert pipeline.backfill(min_partitions=4) == 20
    assert pipeline.backfill(min_partitions=4) == 20  # it is there already, and is not written again
    assert ids(workshop.parquet()) == list(range(40))
    with pytest.raises(InvalidPipeline, match="holds a part of that range already"):
        pipeline.backfill(since={topic: {"0": 5, "1": 5}})
    elsewhere = workshop.folder / "replayed"
    assert pipeline.backfill(since={topic: {"0": 5}}, into=str(elsewhere)) == 35
    assert ids(workshop.parquet("replayed")) == [id for id in range(40) if id % 2 == 1 or id >= 10]


def test_rows_go_to_another_topic_as_json(workshop: PipelineHarness, topic: str) -> None:
    workshop.topic(topic, map(order, range(4)))
    workshop.topic(f"{topic}-out")
    workshop.run(
        name=topic,
        source={"pattern": topic},
        decode=JSON,
        transform={"sql": "SELECT id, amount FROM records WHERE id > 0"},
        sink={"kind": "topic", "topic": f"{topic}-out", "key": "id"},
        dead_letters=DISCARD,
    )
    found = sorted((one.key, json.loads(one.value)) for one in workshop.messages(f"{topic}-out"))
    assert found == [(str(id).encode(), {"id": id, "amount": 1.0}) for id in (1, 2, 3)]


@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.nightly), "iceberg"])
def test_a_batch_that_comes_again_is_known_by_its_commit(
    workshop: PipelineHarness, spark: SparkSession, kind: str
) -> None:
    declared = workshop.pipeline(
        name="again", source={"topics": ["t"]}, sink=TABLE if kind == "parquet" else workshop.iceberg_sink("again")
    ).declared
    sink = declared.sink
    rows = spark.createDataFrame([(1,), (2,)], "id BIGINT")

    def batch(number: int, run: str = "run") -> Commit:
        return Commit(
            pipeline="again", run=run, batch=number, start={"t": {0: 2 * number}}, end={"t": {0: 2 * number + 2}}
        )

    with spark_for(declared, "local[2]", None):
        delivery = Delivery(spark, sink)
        found = []
        for commit in (batch(0), batch(0), batch(1), batch(1), batch(1, run="another run")):
            found.append(delivery.holds(commit))
            if not found[-1]:
                delivery.deliver(rows, commit)
        assert found == [False, True, False, True, False]
        table = table_of(spark, sink)
        assert table is not None
        assert len(table.commits()) == (3 if kind == "parquet" else 2)  # an Iceberg table joins those of a run
    there = workshop.parquet() if kind == "parquet" else workshop.iceberg("again")
    assert ids(there) == [1, 1, 1, 2, 2, 2]


def test_the_example_counts_every_good_order_once_and_draws_a_picture(
    workshop: PipelineHarness, spark: SparkSession, tmp_path: Path
) -> None:
    text: list[str] = []
    shown = run_example(
        tmp_path / "example", bootstrap=workshop.bootstrap, count=1000, master="local[2]", say=text.append
    )
    good: dict[str, list[Decimal]] = {}
    for sold in map(json.loads, orders(1000)):
        amount = sold["amount"]
        if isinstance(amount, float) and amount > 0 and sold["currency"] != "XYZ" and sold["order_id"] is not None:
            good.setdefault(sold["currency"], []).append(Decimal(str(amount)))
    lines = [line.split()[:3] for line in shown.splitlines()[1:]]
    assert lines == [[name, str(len(amounts)), str(sum(amounts))] for name, amounts in sorted(good.items())]
    assert sum(map(len, good.values())) == 995
    assert (tmp_path / "example" / "revenue.png").read_bytes().startswith(b"\x89PNG")
    assert len(workshop.messages("example-dead-letters")) == 5


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"transform": {"sql": "SELECT nothing FROM records"}}, "transform.sql"),
        ({"validate": {"odd": "ammount > 0"}}, "validate.'odd'"),
        ({"watermark": {"column": "when", "delay": "1 minute"}}, "watermark.column"),
        ({"sink": {**TABLE, "partition_by": ["day"]}}, "sink.partition_by"),
        ({"sink": {**ICEBERG, "partition_by": ["day"]}}, "sink.partition_by"),
    ],
)
def test_sql_that_spark_does_not_understand_is_said_by_its_key_and_nothing_is_written(
    workshop: PipelineHarness, topic: str, changed: dict[str, Any], key: str
) -> None:
    workshop.topic(topic, [order(1)])
    values = {"name": topic, "source": {"topics": [topic]}, "decode": JSON, "sink": TABLE, "dead_letters": DISCARD}
    with pytest.raises(InvalidPipeline, match=key):
        workshop.run(**{**values, **changed})
    assert list(workshop.folder.iterdir()) == []


# -- while the stream goes on ------------------------------------------------------------------------------------------


STREAM = """
name = "{topic}"
every = "1 second"
checkpoint = "checkpoint"
[source]
topics = ["{topic}"]
start_offsets = {{ {topic} = {{ 0 = 10, 1 = 10 }} }}
[decode]
format = "json"
schema = "id BIGINT NOT NULL"
[sink]
kind = "iceberg"
catalog = "{topic}"
warehouse = "warehouse"
table = "shop.beside"
[dead_letters]
kind = "discard"
"""


def test_a_stream_goes_on_while_a_backfill_fills_in_what_was_before_it_and_a_second_driver_is_refused(
    workshop: PipelineHarness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic.replace("-", "_")  # a catalog is named after it
    workshop.topic(topic, [{"id": id} for id in range(40)])
    file = workshop.folder / "beside.toml"
    file.write_text(STREAM.format(topic=topic))
    stream = Driver(file, workshop.bootstrap)
    try:
        stream.wait_until(lambda: stream.batches() >= 1)
        pipeline = Pipeline.read(file, bootstrap=workshop.bootstrap)
        monkeypatch.setattr(checkpoint, "LOCK_PATIENCE_S", 0.5)
        with pytest.raises(
            InvalidPipeline, match=f"Another driver runs this pipeline: .* {workshop.folder}/checkpoint"
        ):
            pipeline.run(once=True)
        workshop.send(topic, [{"id": id} for id in range(40, 60)])
        assert pipeline.backfill(min_partitions=4) == 20
        workshop.send(topic, [{"id": id} for id in range(60, 80)])
        stream.wait_until(lambda: len(workshop.iceberg("beside")) >= 80)
        assert_stopped_in_one_line(stream, signal.SIGTERM)
    finally:
        stream.end()
    assert ids(workshop.iceberg("beside")) == list(range(80))


def test_ctrl_c_ends_a_command_that_starts_spark_and_a_stream_with_one_line_each(
    workshop: PipelineHarness, topic: str
) -> None:
    topic = topic.replace("-", "_")
    workshop.topic(topic, [{"id": id} for id in range(2000)])
    file = workshop.folder / "interrupted.toml"
    file.write_text(STREAM.format(topic=topic).replace("[source]\n", "[source]\nmax_records_per_batch = 2\n"))
    starting = Driver(file, workshop.bootstrap)
    try:
        starting.wait_until(lambda: bool(starting.javas()))
        starting.process.send_signal(signal.SIGINT)
        assert starting.finish() == 130
        assert [line for line in starting.talk() if line.startswith("error")] == [
            "error: interrupted before it had begun"
        ]
        assert "Traceback" not in starting.log.read_text()
    finally:
        starting.end()
    for number in (signal.SIGINT, signal.SIGTERM)[: 2 if ARE_ALL_WANTED else 1]:
        stream = Driver(file, workshop.bootstrap)
        try:
            stream.wait_until(partial(is_in_a_batch, stream, workshop.folder / "checkpoint" / "records"))
            assert_stopped_in_one_line(stream, number)
        finally:
            stream.end()


def is_in_a_batch(stream: Driver, query: Path) -> bool:
    begun, done = ({one.name for one in (query / name).glob("[0-9]*")} for name in ("offsets", "commits"))
    return stream.batches() >= 1 and bool(begun - done)


def assert_stopped_in_one_line(stream: Driver, number: signal.Signals) -> None:
    stream.process.send_signal(number)
    assert stream.finish() == 0, stream.log.read_text()
    *_, after = stream.log.read_text().rpartition("records: batch")
    assert after.splitlines()[1:] == ["stopped; the next start goes on from the last batch"], stream.log.read_text()


# -- schemas from a registry -------------------------------------------------------------------------------------------


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as started:
        yield started


def test_schemas_come_from_a_registry_and_what_it_does_not_know_stops_nothing(
    workshop: PipelineHarness, spark: SparkSession, topic: str, registry: Registry
) -> None:
    old: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    note = {"name": "note", "type": ["null", "string"], "default": None}
    new = {**old, "fields": [*old["fields"], note]}
    url, schemas = registry.url, registry.schemas
    schemas |= {"/schemas/ids/1": json.dumps(old), "/schemas/ids/3": '{"type": "recordd"}'}
    values = {
        "name": topic,
        "source": {"topics": [topic]},
        "decode": {"format": "avro", "registry": url},
        "sink": TABLE,
        "dead_letters": {"kind": "parquet", "path": "dead"},
    }
    workshop.topic(topic, [framed(1, old, {"id": 1}), framed(9, old, {"id": 9}), framed(3, old, {"id": 3})])
    with pytest.raises(InvalidPipeline, match=f"decode.subject: the registry does not know '{topic}-value'"):
        workshop.run(**values)
    schemas[f"/subjects/{topic}-value/versions/latest"] = json.dumps(old)
    workshop.run(**values)
    assert ids(workshop.parquet()) == [1]
    reasons = {row["reason"] for row in workshop.parquet("dead")}
    assert reasons == {f"the registry has no Avro schema with the id {id}" for id in (9, 3)}

    # A field is added: the newest schema of the subject is what records of both ids are read as.
    schemas |= {f"/subjects/{topic}-value/versions/latest": json.dumps(new), "/schemas/ids/2": json.dumps(new)}
    workshop.send(topic, [framed(2, new, {"id": 2, "note": "x"}), framed(1, old, {"id": 4})])
    pipeline = workshop.run(**values)
    found = {row["id"]: row["note"] for row in pipeline.frame(spark).collect()}
    assert found == {1: None, 2: "x", 4: None}

    # A registry that fails is not the record's fault: it stops the pipeline, and the record is read when it is back.
    schemas["/schemas/ids/5"] = ""
    workshop.send(topic, [framed(5, new, {"id": 5, "note": "y"})])
    with pytest.raises(Unreachable, match=rf"^The schema registry answered 500 to {url}/schemas/ids/5\.$"):
        workshop.run(**values)
    schemas["/schemas/ids/5"] = json.dumps(new)
    workshop.run(**values)
    assert ids(workshop.parquet()) == [1, 2, 4, 5]


# -- SQL that fails on a value -----------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_fields_of_any_type_are_variants_in_an_iceberg_table(
    workshop: PipelineHarness, spark: SparkSession, topic: str
) -> None:
    workshop.topic(topic, [{"id": 1}, {"id": 2}])
    values = {
        "name": topic,
        "source": {"topics": [topic]},
        "sink": workshop.iceberg_sink("variants"),
        "dead_letters": DISCARD,
    }
    workshop.run(**values, decode={"format": "json", "schema": "id BIGINT NOT NULL"})
    workshop.send(topic, [{"id": 3, "data": {"a": [1, "x"]}}, {"id": 4, "data": 2.5}])
    pipeline = workshop.run(**values, decode={"format": "json", "schema": "id BIGINT NOT NULL, data VARIANT"})
    found = pipeline.frame(spark).selectExpr("id", "to_json(data) AS data").collect()
    assert {row["id"]: row["data"] for row in found} == {1: None, 2: None, 3: '{"a":[1,"x"]}', 4: "2.5"}


def test_json_schemas_and_protobuf_schemas_come_from_a_registry(workshop: PipelineHarness, topic: str) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}}},
        "required": ["id"],
        "$defs": {"tag": {"type": ["null", "string"]}},
    }
    good, header = b'{"id": 1, "tags": ["a", null]}', b"\0\0\0\0\7"
    workshop.topic(topic, [header + good, good, header + b'{"tags": []}', b"\0"])
    proto = (
        'syntax = "proto3"; package shop; import "tag.proto"; message Order { int64 id = 1; repeated Tag tags = 2; }'
    )
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    made = message_factory.GetMessages([file])["shop.Order"]
    workshop.topic(f"{topic}-proto", [header + b"\0" + made(id=5).SerializeToString(), b"\0\0\0\0\7\0\xff"])
    with Registry() as registry:
        registry.schemas[f"/subjects/{topic}-value/versions/latest"] = {
            "schemaType": "JSON",
            "schema": json.dumps(schema),
        }
        registry.schemas[f"/subjects/{topic}-proto-value/versions/latest"] = {
            "schemaType": "PROTOBUF",
            "schema": proto,
            "references": [{"name": "tag.proto", "subject": "tags", "version": 2}],
        }
        registry.schemas["/subjects/tags/versions/2"] = {
            "schemaType": "PROTOBUF",
            "schema": 'syntax = "proto3"; package shop; message Tag { string name = 1; }',
        }
        for name, format in ((topic, "json"), (f"{topic}-proto", "protobuf")):
            workshop.run(
                name=name,
                source={"topics": [name]},
                decode={"format": format, "registry": registry.url},
                sink={"kind": "parquet", "path": format},
                dead_letters={"kind": "parquet", "path": f"{format}-dead"},
            )
        with pytest.raises(InvalidPipeline, match="has schemas of the type JSON, and not PROTOBUF"):
            workshop.run(
                name="wrong",
                source={"topics": [topic]},
                decode={"format": "protobuf", "registry": registry.url},
                sink=TABLE,
                dead_letters=DISCARD,
            )
    assert [(row["id"], row["tags"]) for row in workshop.parquet("json")] == [(1, ["a", None])]
    assert sorted(row["reason"] for row in workshop.parquet("json-dead")) == [
        "the field 'id' is missing or null",
        "the value does not begin with a schema id: a zero byte and four more",
        "the value does not begin with a schema id: a zero byte and four more",
    ]
    assert [(row["id"], row["tags"]) for row in workshop.parquet("protobuf")] == [(5, [])]
    assert len(workshop.parquet("protobuf-dead")) == 1


def test_a_rule_that_fails_on_a_value_is_broken_and_a_transformation_that_does_stops_the_pipeline(
    workshop: PipelineHarness, topic: str
) -> None:
    workshop.topic(topic, [{"id": id, "text": str(id)} for id in range(6)])
    values: dict[str, Any] = {
        "name": topic,
        "source": {"topics": [topic]},
        "decode": {"format": "json", "schema": "id BIGINT NOT NULL, text STRING"},
        "validate": {"a number": "cast(text AS INT) >= 0", "of use": "100 / cast(text AS INT) > 0"},
        "transform": {"sql": "SELECT id, 6 / (id - 5) AS share FROM records"},
        "sink": TABLE,
        "dead_letters": {"kind": "parquet", "path": "dead"},
    }
    with pytest.raises(PipelineFailed, match=r"stopped: .*DIVIDE_BY_ZERO") as stopped:
        workshop.run(**values)
    assert stopped.value.exit_code == 1
    assert not list((workshop.folder / "table").glob("commit=*"))
    values["transform"] = {"sql": "SELECT id, try_divide(6, id - 5) AS share FROM records"}
    workshop.send(topic, [{"id": 6, "text": "six"}, {"id": 7, "text": str(10**12)}])
    workshop.run(**values)
    assert {row["id"]: row["share"] for row in workshop.parquet()} == {1: -1.5, 2: -2.0, 3: -3.0, 4: -6.0, 5: None}
    assert {(json.loads(row["kafka_value"])["id"], row["reason"]) for row in workshop.parquet("dead")} == {
        (0, "it breaks the rule 'of use'"),
        (6, "it breaks the rule 'a number'"),
        (7, "it breaks the rule 'a number'"),
    }


@pytest.mark.parametrize(("rule", "module", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    workshop: PipelineHarness, spark: SparkSession, rule: Rule, module: ModuleType, right: str, wrong: str
) -> None:
    assert_noticed(module, right, wrong, lambda one: rule(one, workshop, spark))
