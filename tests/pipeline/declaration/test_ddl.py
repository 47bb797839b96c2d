"""Schemas as Spark writes them, read without Spark."""

import pytest

from trioka.pipeline.declaration.ddl import InvalidSchema, parse


def test_fields_have_names_types_and_needs() -> None:
    fields = parse(
        "id BIGINT NOT NULL, `a b`: STRUCT<x: INT, y: ARRAY<DECIMAL(10,2)>> COMMENT 'it\\'s', m MAP<STRING, DATE>"
    )
    assert [(one.name, one.is_required) for one in fields] == [("id", True), ("a b", False), ("m", False)]
    assert fields[1].type == "STRUCT<x: INT, y: ARRAY<DECIMAL(10,2)>>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a field's name comes first"),
        ("id", "a type is expected after 'id'"),
        ("id BIGNT", "'bignt' is not a type"),
        ("id INT,", "a field's name is expected"),
        ("id INT name STRING", "a comma or the end"),
        ("id ARRAY<INT", "'>' is expected"),
        ("id MAP<INT>", "',' is expected"),
        ("id DECIMAL(x)", "a number is expected"),
        ("id INT NOT", "NULL is expected"),
        ("id INT, ID STRING", "twice"),
        ("id " + "ARRAY<" * 100, "deeper"),
    ],
)
def test_a_wrong_schema_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema, match=said):
        parse(text)
