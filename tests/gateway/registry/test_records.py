"""The records of `_schemas`: the bytes are those of Confluent's registry."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.gateway.registry import records
from trioka.gateway.registry.records import BadRecord, Reference, StoredSchema, decode_key, decode_schema

AVRO = StoredSchema(subject="orders-value", version=1, id=7, text='"string"')
PROTO = StoredSchema(
    subject="orders-value",
    version=2,
    id=8,
    text='syntax = "proto3";',
    schema_type="PROTOBUF",
    references=(Reference("a.proto", "a", 3),),
    is_deleted=True,
)


@pytest.fixture
def module() -> ModuleType:
    return records


def test_a_schema_is_written_with_confluents_fields_in_confluents_order(module: ModuleType) -> None:
    assert module.schema_record(AVRO) == (
        b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
        b'{"subject":"orders-value","version":1,"id":7,"schemaType":"AVRO","schema":"\\"string\\"","deleted":false}',
    )


def test_references_stand_between_the_type_and_the_text(module: ModuleType) -> None:
    assert module.schema_record(PROTO).value == (
        b'{"subject":"orders-value","version":2,"id":8,"schemaType":"PROTOBUF","references":[{"name":"a.proto",'
        b'"subject":"a","version":3}],"schema":"syntax = \\"proto3\\";","deleted":true}'
    )


def test_levels_and_modes_of_all_subjects_have_no_subject(module: ModuleType) -> None:
    assert module.config_record(None, {"compatibilityLevel": "FULL"}) == (
        b'{"keytype":"CONFIG","magic":0}',
        b'{"compatibilityLevel":"FULL"}',
    )
    assert module.mode_record("a", "READONLY") == (
        b'{"keytype":"MODE","subject":"a","magic":0}',
        b'{"subject":"a","mode":"READONLY"}',
    )


def test_deletions_and_contexts_have_confluents_keys(module: ModuleType) -> None:
    assert module.delete_subject_record("a", 3) == (
        b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
        b'{"subject":"a","version":3}',
    )
    assert module.clear_subject_record("a") == (
        b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}',
        b'{"subject":"a"}',
    )
    assert module.context_record(".x") == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}',
        b'{"tenant":"default","context":".x"}',
    )


@pytest.mark.parametrize("schema", [AVRO, PROTO])
def test_what_is_written_is_read(schema: StoredSchema) -> None:
    record = records.schema_record(schema)
    assert record.value is not None
    assert decode_schema(record.value) == schema
    assert decode_key(record.key) == ("SCHEMA", schema.subject, schema.version)


def test_fields_of_newer_registries_are_kept_and_positions_are_not() -> None:
    found = decode_schema(
        b'{"subject":"a","version":1,"id":1,"md5":"eA==","ruleSet":{"x":1},"schema":"s","deleted":false,"new":2,"ts":5}'
    )
    assert found.schema_type == "AVRO"  # left out by older registries
    assert records.schema_record(found).value == (
        b'{"subject":"a","version":1,"id":1,"md5":"eA==","schemaType":"AVRO","ruleSet":{"x":1},"schema":"s",'
        b'"deleted":false,"new":2}'
    )


def test_a_subject_of_null_is_the_one_of_all_subjects() -> None:
    assert decode_key(b'{"keytype":"CONFIG","subject":null,"magic":0}') == ("CONFIG", None, 0)


def test_the_guid_counts_text_and_references() -> None:
    assert records.guid_of(AVRO) == records.guid_of(StoredSchema(subject="b", version=9, id=1, text='"string"'))
    assert records.guid_of(PROTO) != records.guid_of(
        StoredSchema(subject="a", version=1, id=1, text=PROTO.text, schema_type="PROTOBUF")
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{",
        b'{"keytype":"SCHEMA"}',
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":2}',
        b'{"keytype":"SCHEMA","subject":"a","version":0,"magic":1}',
        b'{"keytype":"SCHEMA","subject":"a","version":"1","magic":1}',
        b'{"keytype":"CONFIG","subject":5}',
        b"[" * 100_000,
    ],
)
def test_a_key_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_key(data)


@pytest.mark.parametrize("missing", [b'"subject":"a",', b'"version":1,', b'"id":1,', b',"schema":"s"'])
def test_a_value_without_a_needed_field_is_refused(missing: bytes) -> None:
    whole = b'{"subject":"a","version":1,"id":1,"deleted":false,"schema":"s"}'
    decode_schema(whole)
    with pytest.raises(BadRecord):
        decode_schema(whole.replace(missing, b""))


MISTAKES = [
    (
        '{"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1}',
        '{"keytype": SCHEMA, "subject": subject, "magic": 1, "version": version}',
        test_a_schema_is_written_with_confluents_fields_in_confluents_order,
    ),
    (
        "{} if subject is None else {'subject': subject}",
        "{'subject': subject}",
        test_levels_and_modes_of_all_subjects_have_no_subject,
    ),
    (
        'separators=(",", ":"), ensure_ascii=False',
        "ensure_ascii=False",
        test_deletions_and_contexts_have_confluents_keys,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(records, right, wrong, rule)
