"""`trioka table sync`: raw records and Avro values, its mistakes, and where a second sync ends."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from support.archive_objects import append_records, new_log, objects_of, sample_log
from support.archive_stores import put_objects
from support.command_line import Ended, command
from support.log_fixtures import NOW_MS

from trioka.cli.table.avro_columns import arrow_type
from trioka.pipeline.errors import InvalidPipeline
from trioka.protocol.record import Record

SCHEMA = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": {"type": "string", "logicalType": "uuid"}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            ]}}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    yield made
    made.engine.dispose()


def sync(place: Path, *arguments: str) -> Ended:
    options = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}
    pairs = [word for key, value in options.items() for word in ("--catalog-option", f"{key}={value}")]
    return command(
        "table", "sync", "orders", "--archive", str(place / "store"), "--catalog", "test", *pairs, *arguments
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path


def test_a_topic_becomes_a_table_and_a_second_run_adds_nothing(place: Path, catalog: SqlCatalog) -> None:
    put_objects((place / "store").as_uri(), objects_of(sample_log(rounds=6)))
    first, second = sync(place), sync(place)
    assert (first.code, second.code) == (0, 0), first
    assert "next offsets 0:" in first.out and "0 rows in 0 commits" in second.out
    assert catalog.load_table("default.orders").scan().to_arrow().num_rows == int(first.out.split()[1])


def avro(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return out.getvalue()


def test_avro_values_are_columns_and_what_does_not_follow_is_a_dead_letter(place: Path, catalog: SqlCatalog) -> None:
    lines = [{"sku": "6f1d7d0e-0000-4000-8000-000000000001", "price": Decimal("12.50")}]
    written = avro({"id": 7, "at": NOW_MS, "note": None, "lines": lines, "tags": {"red": 1}})
    log = new_log()
    for value in (written, b"nonsense", None):
        append_records(log, Record(0, NOW_MS, b"k", value))
    put_objects((place / "store").as_uri(), objects_of(log))
    (place / "order.avsc").write_text(json.dumps(SCHEMA))
    ended = sync(place, "--schema", str(place / "order.avsc"), "--table", "shop.orders")
    assert ended.code == 0 and "1 values do not follow the schema" in ended.stderr, ended
    rows = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    assert [row["offset"] for row in rows] == [0, 2]
    assert rows[0]["value"] == {
        "id": 7,
        "at": datetime.fromtimestamp(NOW_MS / 1000, UTC),
        "note": None,
        "lines": lines,
        "tags": [("red", 1)],
    }
    assert rows[1]["value"] is None
    dead = catalog.load_table("shop.orders_dlq").scan().to_arrow().to_pylist()
    assert [(row["offset"], row["value"]) for row in dead] == [(1, b"nonsense")]


def test_the_table_of_another_topic_is_refused(place: Path, catalog: SqlCatalog) -> None:
    put_objects((place / "store").as_uri(), objects_of(sample_log(rounds=3)))
    rows = pa.table({"id": [1]})
    catalog.create_namespace("shop")
    catalog.create_table("shop.other", schema=rows.schema).append(rows)
    ended = sync(place, "--table", "shop.other")
    assert ended.code == 6 and "has the columns id" in ended.stderr


def test_a_table_of_bytes_does_not_become_one_of_structs(place: Path, catalog: SqlCatalog) -> None:
    put_objects((place / "store").as_uri(), objects_of(sample_log(rounds=3)))
    assert sync(place).code == 0
    (place / "order.avsc").write_text(json.dumps(SCHEMA))
    ended = sync(place, "--schema", str(place / "order.avsc"))
    assert ended.code == 6 and "values of the table default.orders are bytes" in ended.stderr


def test_a_table_whose_files_cannot_be_written_is_one_sentence(place: Path, catalog: SqlCatalog) -> None:
    put_objects((place / "store").as_uri(), objects_of(sample_log(rounds=3)))
    (place / "warehouse").write_text("a file where the directory would be")
    ended = sync(place)
    assert ended.code == 3 and "Traceback" not in ended.stderr, ended


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--registry", "http://localhost:1"), 2),
        (("--schema", "missing.avsc"), 5),
        (("--catalog-option", "uri"), 2),
        (("--topic-id", "AAAAAAAAAAAAAAAAAAAAAA"), 5),
        (("--catalog-option", "type=unknown"), 1),
        (("--catalog-option", "uri=sqlite:////no/such/folder/catalog.db"), 1),
        (("--every", "0s"), 2),
    ],
)
def test_a_mistake_is_one_sentence_and_its_exit_code(place: Path, arguments: tuple[str, ...], code: int) -> None:
    put_objects((place / "store").as_uri(), objects_of(sample_log(rounds=2)))
    ended = sync(place, *arguments)
    assert ended.code == code, ended
    assert ended.stderr.startswith("error: ") and "Traceback" not in ended.stderr


def test_a_schema_that_no_column_can_hold_is_refused() -> None:
    recursive = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    union = {"type": "record", "name": "One", "fields": [{"name": "either", "type": ["int", "string"]}]}
    for schema in (recursive, union, "string"):
        with pytest.raises(InvalidPipeline):
            arrow_type(json.dumps(schema))
