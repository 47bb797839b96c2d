"""A schema from samples."""

import json

import pytest

from trioka.pipeline.declaration.ddl import parse
from trioka.pipeline.declaration.inference import NotJson, infer


def samples(*records: object) -> list[bytes | None]:
    return [json.dumps(record).encode() for record in records]


def test_fields_have_the_widest_type_of_the_samples_and_are_required_if_all_have_them() -> None:
    ddl = infer(
        samples(
            {"id": 1, "amount": 2, "at": "2026-11-16T08:00:00Z", "tags": ["a"], "who": {"name": "x"}, "odd": 1},
            {"id": 2, "amount": 2.5, "at": "2026-11-16T09:00:00Z", "tags": [], "note": None, "odd": "one", "ok": True},
        )
    )
    assert ddl.split(",\n") == [
        "id BIGINT NOT NULL",
        "amount DOUBLE NOT NULL",
        "at TIMESTAMP NOT NULL",
        "tags ARRAY<STRING> NOT NULL",
        "who STRUCT<name: STRING>",
        "odd STRING NOT NULL",
        "note STRING",
        "ok BOOLEAN",
    ]
    assert [field.name for field in parse(ddl)] == ["id", "amount", "at", "tags", "who", "odd", "note", "ok"]


def test_names_that_are_no_words_are_quoted_and_large_numbers_are_texts() -> None:
    assert infer(samples({"a b": 1 << 70, "c": []})) == "`a b` STRING NOT NULL,\nc ARRAY<STRING> NOT NULL"


@pytest.mark.parametrize(
    ("values", "clause"),
    [
        ([b"\x00", None], "no sample is a JSON object"),
        ([b'{"a": 1}', b"x", b"y"], "only 1 of 3 samples are JSON objects"),
    ],
)
def test_samples_that_are_not_json_are_refused(values: list[bytes | None], clause: str) -> None:
    with pytest.raises(NotJson, match=clause):
        infer(values)
