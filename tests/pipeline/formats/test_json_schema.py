"""A JSON Schema as the columns of a table."""

import json
from typing import Any

import pytest

from trioka.pipeline.declaration.ddl import parse
from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.formats.json_schema import to_ddl


def ddl_of(properties: dict[str, Any], **rest: Any) -> str:
    return to_ddl(json.dumps({"type": "object", "properties": properties, **rest}))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": ["null", "number"]}, "DOUBLE"),
        ({"type": "string", "format": "date-time"}, "TIMESTAMP"),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "BOOLEAN"),
        ({"$ref": "#/$defs/name"}, "STRING"),
        ({"type": "array", "items": {"type": "integer"}}, "ARRAY<BIGINT>"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "STRUCT<`a`: STRING>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "MAP<STRING, DOUBLE>"),
        ({"type": ["integer", "string"]}, "VARIANT"),
        ({"type": "object"}, "VARIANT"),
        (True, "VARIANT"),
        ({"type": "array"}, "ARRAY<VARIANT>"),
    ],
)
def test_a_property_has_the_type_of_its_column(schema: Any, kind: str) -> None:
    found = ddl_of({"one": schema}, **{"$defs": {"name": {"type": "string"}}})
    assert found == f"`one` {kind}"
    parse(found)


def test_required_properties_are_not_null_at_the_top_only() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}
    found = ddl_of({"id": {"type": "integer"}, "a": inner}, required=["id"])
    assert found == "`id` BIGINT NOT NULL, `a` STRUCT<`b`: STRING>"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "the schema is not JSON"),
        ('{"type": "string"}', "must be a JSON Schema of an object"),
        ('{"type": "object", "properties": {"a": {"$ref": "other.json"}}}', "does not point into the schema"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}', "or holds itself"),
        (
            '{"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}}',
            "or holds itself",
        ),
        ('{"type": "object", "properties": {"a`b": {"type": "string"}}}', "cannot be the name of a column"),
    ],
)
def test_what_has_no_columns_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidPipeline, match=sentence):
        to_ddl(text)
