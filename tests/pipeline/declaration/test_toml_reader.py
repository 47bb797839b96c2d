"""A pipeline's file: what is right is filled in, and everything that is wrong is said at once, by key and line."""

from pathlib import Path
from typing import Any

import pytest

from trioka.pipeline.declaration.model import Avro, Declaration, IcebergSink, ParquetSink, Start
from trioka.pipeline.declaration.toml_reader import milliseconds, positions, read, read_file
from trioka.pipeline.errors import InvalidPipeline

WATERMARK = {"column": "at", "delay": "10 minutes"}
AGGREGATE = {"window": "1 minute", "columns": {"revenue": "sum(amount)"}}
RIGHT: dict[str, Any] = {
    "name": "orders",
    "source": {"topics": ["orders"]},
    "decode": {"format": "json", "schema": "id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP"},
    "sink": {"kind": "parquet", "path": "tables/orders"},
    "dead_letters": {"kind": "discard"},
}


def declared(**changes: Any) -> Declaration:
    return read({**RIGHT, **changes}, folder="/somewhere")


def test_paths_are_relative_to_the_file_and_addresses_stay_as_they_are() -> None:
    plain = declared()
    assert plain.sink == ParquetSink(path="/somewhere/tables/orders")
    assert plain.checkpoint == "/somewhere/checkpoints/orders"
    assert declared(checkpoint="s3a://bucket/there/").checkpoint == "s3a://bucket/there"


def test_what_is_not_said_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    plain = declared()
    assert (plain.group, plain.every, plain.source.bootstrap) == ("orders", "10 seconds", "localhost:9092")
    assert plain.source.start == Start(at="earliest")
    assert plain.source.stops_on_data_loss
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "there:1234")
    assert declared().source.bootstrap == "there:1234"
    assert read(RIGHT, bootstrap="here:1").source.bootstrap == "here:1"


def test_needed_fields_are_known_by_not_null() -> None:
    decoding = declared().decoding
    assert decoding.format == "json"
    assert [(field.name, field.is_required) for field in decoding.fields] == [
        ("id", True),
        ("amount", False),
        ("at", False),
    ]


def test_a_rule_drops_unless_it_says_what_else_to_do() -> None:
    rules = declared(validate={"a": "amount > 0", "b": {"sql": "id > 0", "action": "warn"}, "c": True}).rules
    assert [(rule.name, rule.condition, rule.action) for rule in rules] == [
        ("a", "amount > 0", "drop"),
        ("b", "id > 0", "warn"),
        ("c", "true", "drop"),
    ]
    with pytest.raises(InvalidPipeline) as raised:
        declared(validate={"a": {"sql": "x", "action": "stop"}, "b": {"action": "fail", "why": 1}, "c": []})
    assert [problem.split(": ")[0] for problem in raised.value.problems] == [
        "validate.a.action",
        "validate.b.sql",
        "validate.b.why",
        "validate.c",
    ]


def test_an_iceberg_table_stands_in_a_catalog() -> None:
    sink = declared(sink={"kind": "iceberg", "table": "shop.orders", "warehouse": "w"}).sink
    assert isinstance(sink, IcebergSink)
    assert (sink.full_name, sink.warehouse) == ("`trioka`.`shop`.`orders`", "/somewhere/w")


def test_a_registry_with_one_topic_needs_no_subject() -> None:
    avro = declared(decode={"format": "avro", "registry": "http://localhost:8081"}).decoding
    assert isinstance(avro, Avro)
    assert (avro.subject, avro.schema, avro.is_framed) == ("orders-value", None, True)


# Each row: what is changed, the key that is named, a word of the sentence.
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "a b"}, "name", "letters"),
    ({"name": None}, "name", "missing"),
    ({"nmae": "x"}, "nmae", "did you mean name"),
    ({"every": "10"}, "every", "no length of time"),
    ({"source": None}, "source", "missing"),
    ({"source": {}}, "source.topics", "one of the two"),
    ({"source": {"topics": ["a"], "pattern": "a"}}, "source.topics", "one of the two"),
    ({"source": {"topics": ["a b"]}}, "source.topics", "cannot be a topic"),
    ({"source": {"topics": 3}}, "source.topics", "list of texts"),
    ({"source": {"pattern": "("}}, "source.pattern", "regular expression"),
    ({"source": {"topics": ["a"], "bootstrap": "nowhere:none"}}, "source.bootstrap", "list of brokers"),
    ({"source": {"topics": ["a"], "start": "yesterday"}}, "source.start", "neither earliest"),
    ({"source": {"topics": ["a"], "start_offsets": {"a": {"x": 1}}}}, "source.start_offsets", "not an offset"),
    ({"source": {"topics": ["a"], "max_records_per_batch": 0}}, "source.max_records_per_batch", "above zero"),
    ({"source": {"topics": ["a"], "on_data_loss": "cry"}}, "source.on_data_loss", "stop, skip"),
    ({"source": {"topics": ["a"], "options": {"subscribe": "b"}}}, "source.options.subscribe", "source.topics"),
    ({"source": {"pattern": "a", "archive": "s3://b"}}, "source.archive", "by name"),
    ({"source": {"topics": ["a"], "archive": "s3://b", "start": "latest"}}, "source.archive", "leave out start"),
    (
        {"source": {"topics": ["a"], "archive": "s3://b"}, "sink": {"kind": "console"}},
        "source.archive",
        "needs a table",
    ),
    (
        {"source": {"topics": ["a"], "archive": "s3://b"}, "watermark": WATERMARK, "deduplicate": {"keys": ["id"]}},
        "source.archive",
        "distinct keys",
    ),
    ({"decode": {"format": "xml"}}, "decode.format", "choose one of"),
    ({"decode": {"format": "json"}}, "decode.schema", "missing"),
    ({"decode": {"format": "json", "schema": "id BIGGINT"}}, "decode.schema", "not a type"),
    ({"decode": {"format": "json", "schema_file": "none.ddl"}}, "decode.schema_file", "cannot be read"),
    ({"decode": {"format": "avro"}}, "decode.schema_file", "missing"),
    ({"decode": {"format": "avro", "registry": "localhost"}}, "decode.registry", "http"),
    ({"decode": {"format": "protobuf", "message": "a.B"}}, "decode.descriptor", "protoc"),
    ({"decode": {"format": "raw", "schema": "x INT"}}, "decode.schema", "not known here"),
    ({"transform": {"sql": "DROP TABLE x"}}, "transform.sql", "SELECT"),
    ({"transform": {}}, "transform.sql", "missing"),
    ({"watermark": {"column": "at"}}, "watermark.delay", "missing"),
    ({"deduplicate": {"keys": ["id"]}}, "deduplicate", "needs a [watermark]"),
    ({"aggregate": AGGREGATE}, "aggregate", "needs a [watermark]"),
    ({"aggregate": {**AGGREGATE, "emit": "updates"}, "watermark": WATERMARK}, "aggregate.emit", "Parquet"),
    ({"aggregate": {**AGGREGATE, "columns": {"window_end": "x"}}, "watermark": WATERMARK}, "window_end", "taken"),
    ({"sink": {"kind": "hive"}}, "sink.kind", "choose one of"),
    ({"sink": {"kind": "iceberg", "table": "orders", "warehouse": "w"}}, "sink.table", "namespace.name"),
    ({"sink": {"kind": "iceberg", "table": "a.b"}}, "sink.warehouse", "missing"),
    ({"sink": {"kind": "topic", "topic": "orders"}}, "sink.topic", "feed itself"),
    ({"sink": "parquet"}, "sink", "must be a table"),
    ({"dead_letters": None}, "dead_letters", "is missing"),
    ({"dead_letters": {"kind": "parquet", "path": "tables/orders"}}, "dead_letters", "another place"),
]


@pytest.mark.parametrize(("changes", "key", "word"), WRONG, ids=[f"{row[1]}-{row[2]}" for row in WRONG])
def test_what_is_wrong_is_named_by_its_key(changes: dict[str, Any], key: str, word: str) -> None:
    values = {key: value for key, value in {**RIGHT, **changes}.items() if value is not None}
    with pytest.raises(InvalidPipeline) as raised:
        read(values)
    assert len(raised.value.problems) == 1, raised.value.problems
    assert key in raised.value.problems[0]
    assert word in raised.value.problems[0]


def test_all_problems_are_said_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text('name = "a b"\n\n[source]\ntopics = []\nstrat = 1\n\n[sink]\nkind = "parqet"\n')
    with pytest.raises(InvalidPipeline) as raised:
        read_file(file)
    places = [problem.removeprefix(f"{file}: ").split(": ")[:2] for problem in raised.value.problems]
    assert places == [
        ["line 1", "name"],
        ["line 4", "source.topics"],
        ["line 5", "source.strat"],
        ["line 8", "sink.kind"],
    ]


@pytest.mark.parametrize(
    ("content", "word"), [(b"name = \n", "line 1"), (b"\xff", "UTF-8"), (b"x = 1\n" * 200_000, "at most")]
)
def test_a_file_that_is_not_toml_is_said_in_one_sentence(tmp_path: Path, content: bytes, word: str) -> None:
    file = tmp_path / "orders.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidPipeline) as raised:
        read_file(file)
    assert len(raised.value.problems) == 1
    assert word in str(raised.value)


def test_a_file_that_is_not_there_is_the_users_matter(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="cannot be read"):
        read_file(tmp_path / "none.toml")


def test_points_in_time_are_understood_as_people_write_them() -> None:
    assert milliseconds("2026-11-16T08:00:00Z") == milliseconds("2026-11-16T08:00:00") == 1_794_816_000_000
    assert milliseconds("1794816000000") == milliseconds(1_794_816_000_000)
    with pytest.raises(ValueError, match="neither"):
        milliseconds("noon")


def test_offsets_are_by_topic_and_partition() -> None:
    assert positions({"a": {"0": 5, "1": -1}}) == {"a": {0: 5, 1: -1}}
    for wrong in (3, {"a": 5}, {"a": {"0": "x"}}, {"a": {"0": True}}, {"a": {"0": -3}}):
        with pytest.raises(ValueError, match=r"must be|not an offset"):
            positions(wrong)
