"""Avro, Protobuf and JSON Schema: what is a schema, which are the same, and which read what others wrote."""

import json
from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.gateway.registry.errors import InvalidSchema
from trioka.gateway.registry.formats import avro, json_diff, protobuf_diff
from trioka.gateway.registry.formats.json_schema import JsonSchema
from trioka.gateway.registry.formats.parse import parse
from trioka.gateway.registry.formats.parsed import Dependency
from trioka.gateway.registry.formats.protobuf import ProtobufSchema

# -- Avro --------------------------------------------------------------------------------------------------------------


def test_avro_is_written_as_avros_own_library_writes_it() -> None:
    text = """{"fields": [{"type": {"type": "string"}, "name": "a", "order": "ascending"},
               {"name": "b", "type": ["null", "shop.Order"], "default": null, "doc": "why"}],
               "name": "shop.Order", "type": "record", "x": 1, "aliases": ["Old"]}"""
    assert parse("AVRO", text, ()).text == (
        '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"a","type":"string"},'
        '{"name":"b","type":["null","Order"],"doc":"why","default":null}],"x":1,"aliases":["Old"]}'
    )


def test_an_avro_schema_uses_the_types_of_its_references() -> None:
    order = Dependency("shop.Order", '{"type":"record","name":"shop.Order","fields":[{"name":"a","type":"int"}]}')
    text = '{"type":"array","items":"shop.Order"}'
    later = Dependency(order.name, order.text.replace('"int"', '"string"'))
    assert parse("AVRO", text, (order,)).unreadable(parse("AVRO", text, (order,))) == []
    assert parse("AVRO", text, (later,)).unreadable(parse("AVRO", text, (order,))) != []


@pytest.mark.parametrize(
    ("reader", "writer", "is_readable"),
    [
        ('"long"', '"int"', True),
        ('"int"', '"long"', False),
        ('["null","int"]', '"int"', True),
        ('"int"', '["null","int"]', False),
        ('{"type":"enum","name":"E","symbols":["A"]}', '{"type":"enum","name":"E","symbols":["A","B"]}', False),
        (
            '{"type":"enum","name":"E","symbols":["A"],"default":"A"}',
            '{"type":"enum","name":"E","symbols":["A","B"]}',
            True,
        ),
        ('{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"F","size":3}', False),
    ],
)
def test_avro_readers_and_writers(reader: str, writer: str, is_readable: bool) -> None:
    found = parse("AVRO", reader, ()).unreadable(parse("AVRO", writer, ()))
    assert (not found) == is_readable, found


# -- Protobuf ----------------------------------------------------------------------------------------------------------

PROTO = """syntax = "proto3";
package shop;  // a comment
import "google/protobuf/timestamp.proto";
option java_package = "org.shop";
message Order {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  map<string, Item> items = 3;
  oneof payment { string card = 4; int32 cash = 5; }
  optional int32 rank = 6 [deprecated = true];
  enum State { NEW = 0; PAID = 1; }
  State state = 7;
  message Item { repeated int64 parts = 1 [packed = false]; }
  reserved 9 to 11, 20 to max;
  reserved "old";
}
service Shop { rpc Send(Order) returns (stream Order); }
"""
PROTO2 = """syntax = "proto2";
message A {
  required string a = 1 [default = "x\\"y"];
  optional group G = 2 { optional int32 n = 1; }
  optional E e = 3 [default = B];
  extensions 100 to 199;
}
enum E { Z = 0; B = 5; }
extend A { optional int32 more = 150; }
"""


@pytest.mark.parametrize("text", [PROTO, PROTO2])
def test_a_printed_descriptor_compiles_to_itself(text: str) -> None:
    schema = parse("PROTOBUF", text, ())
    for again in (parse("PROTOBUF", schema.formatted("serialized"), ()), parse("PROTOBUF", schema.normalized(), ())):
        assert isinstance(again, ProtobufSchema)
        assert again.normalized() == schema.normalized()
    assert parse("PROTOBUF", schema.formatted("serialized"), ()).identity == schema.identity


def test_comments_and_spaces_do_not_make_another_protobuf_schema() -> None:
    assert (
        parse("PROTOBUF", PROTO.replace("// a comment", "").replace("  ", " "), ()).identity
        == parse("PROTOBUF", PROTO, ()).identity
    )
    assert (
        parse("PROTOBUF", PROTO.replace("cash = 5", "cash = 8"), ()).identity != parse("PROTOBUF", PROTO, ()).identity
    )


def test_an_options_name_that_only_the_text_knows_survives_normalisation() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/descriptor.proto";'
        'extend google.protobuf.FieldOptions { string mark = 50001; } message A { int32 a = 1 [(mark) = "x"]; }'
    )
    assert "(mark)" in parse("PROTOBUF", text, ()).normalized()


def test_a_protobuf_schema_imports_its_references_by_their_names() -> None:
    item = Dependency("shop/item.proto", 'syntax="proto3"; package shop; message Item { int32 n = 1; }')
    text = 'syntax="proto3"; import "shop/item.proto"; message Order { shop.Item item = 1; }'
    changed = Dependency(item.name, item.text.replace("int32", "string"))
    assert parse("PROTOBUF", text, (changed,)).unreadable(parse("PROTOBUF", text, (item,))) != []
    with pytest.raises(InvalidSchema, match=r"shop/item\.proto"):
        parse("PROTOBUF", text, ())


@pytest.mark.parametrize(
    "name", ["../a.proto", "/etc/a.proto", "a//b.proto", "", "a\\b", "a\0b", "x" * 300, "trioka-schema.proto/x"]
)
def test_a_reference_cannot_leave_the_folder_of_the_compiler(name: str) -> None:
    with pytest.raises(InvalidSchema):
        parse("PROTOBUF", 'syntax="proto3";', (Dependency(name, "x"),))


PROTO_CHANGES = [
    ("string a = 1;", "string b = 1;", None),
    ("string a = 1;", "", None),
    ("", "string a = 1;", None),
    ("string a = 1;", "bytes a = 1;", None),
    ("int32 a = 1;", "int64 a = 1;", None),
    ("int32 a = 1;", "sint32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("int32 a = 1;", "repeated int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED"),
    ("string a = 1;", "repeated string a = 1;", None),
    ("message N {} N a = 1;", "message N {} message M {} M a = 1;", "FIELD_NAMED_TYPE_CHANGED"),
    ("message N {} N a = 1;", "N a = 1; enum N { Z = 0; }", "FIELD_KIND_CHANGED"),
    ("message N {}", "", "MESSAGE_REMOVED"),
    ("map<string, int32> a = 1;", "map<string, string> a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
    ("int32 a = 1;", "oneof o { int32 a = 1; int32 b = 2; }", None),
    ("int32 a = 1; oneof o { int32 b = 2; }", "oneof o { int32 a = 1; int32 b = 2; }", "FIELD_MOVED_TO_EXISTING_ONEOF"),
    ("oneof o { int32 a = 1; int32 b = 2; }", "oneof p { int32 a = 1; int32 b = 2; }", None),
    ("oneof o { int32 a = 1; int32 b = 2; }", "oneof p { int32 a = 1; }", "ONEOF_FIELD_REMOVED"),
    ("enum E { Z = 0; A = 1; } E e = 1;", "enum E { Z = 0; } E e = 1;", None),
]


@pytest.mark.parametrize(("before", "after", "difference"), PROTO_CHANGES)
def test_protobuf_changes(before: str, after: str, difference: str | None) -> None:
    reader, writer = (parse("PROTOBUF", f'syntax="proto3"; message A {{ {each} }}', ()) for each in (after, before))
    found = reader.unreadable(writer)
    assert [each.partition(" ")[0] for each in found[:1]] == ([] if difference is None else [difference])


def test_required_fields_can_neither_come_nor_go() -> None:
    one, other = (
        parse("PROTOBUF", f'syntax="proto2"; message A {{ {each} }}', ()) for each in ("", "required int32 a = 1;")
    )
    assert [each.partition(" ")[0] for each in other.unreadable(one)] == ["REQUIRED_FIELD_ADDED"]
    assert [each.partition(" ")[0] for each in one.unreadable(other)] == ["REQUIRED_FIELD_REMOVED"]


# -- JSON Schema -------------------------------------------------------------------------------------------------------

OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED: dict[str, Any] = OPEN | {"additionalProperties": False}
MORE: dict[str, Any] = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
JSON_CHANGES: list[tuple[Any, Any, str | None]] = [
    (OPEN, {}, None),
    ({}, OPEN, "TYPE_NARROWED"),
    (OPEN, OPEN | MORE, "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (CLOSED, CLOSED | MORE, None),
    (CLOSED | MORE, CLOSED, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    (OPEN | MORE, OPEN, None),
    (OPEN, OPEN | {"required": ["a"]}, "REQUIRED_ATTRIBUTE_ADDED"),
    (OPEN, {"properties": {"a": {"type": "string", "default": ""}}, "required": ["a"]}, None),
    (OPEN | {"required": ["a"]}, OPEN, None),
    (OPEN, CLOSED, "ADDITIONAL_PROPERTIES_REMOVED"),
    ({"type": "integer"}, {"type": "number"}, None),
    ({"type": "number"}, {"type": "integer"}, "TYPE_NARROWED"),
    ({"type": "string"}, {"type": ["string", "null"]}, None),
    ({"type": ["string", "null"]}, {"type": "string"}, "TYPE_CHANGED"),
    ({"enum": [1, "a"]}, {"enum": [1, "a", None]}, None),
    ({"enum": [1, "a"]}, {"enum": [1]}, "ENUM_ARRAY_NARROWED"),
    ({"enum": [1]}, {"enum": [True]}, "ENUM_ARRAY_CHANGED"),
    ({"maxLength": 3}, {"maxLength": 2}, "MAX_LENGTH_DECREASED"),
    ({"minimum": 3}, {"minimum": 4}, "MINIMUM_INCREASED"),
    ({"type": "string"}, {"type": "string", "minimum": 4}, None),
    ({"multipleOf": 6}, {"multipleOf": 4}, "MULTIPLE_OF_CHANGED"),
    ({"type": "string"}, {"oneOf": [{"type": "number"}, {"type": "string"}]}, None),
    ({"oneOf": [{"type": "number"}, {"type": "string"}]}, {"oneOf": [{"type": "string"}]}, "SUM_TYPE_NARROWED"),
    ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"type": "string", "maxLength": 3}, None),
    ({"type": "string"}, {"allOf": [{"type": "string"}, {"maxLength": 3}]}, "PRODUCT_TYPE_EXTENDED"),
    ({"not": {"type": "number"}}, {"not": {"type": "integer"}}, None),
    ({"not": {"type": "integer"}}, {"not": {"type": "number"}}, "NOT_TYPE_EXTENDED"),
    ({"items": {"type": "string"}}, {"items": {"type": "number"}}, "TYPE_CHANGED"),
    (
        {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        {"properties": {"ab": {"type": "number"}}},
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}, {"type": "string"}, None),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}, {"type": "number"}, "TYPE_CHANGED"),
]


@pytest.mark.parametrize(("before", "after", "difference"), JSON_CHANGES)
def test_json_schema_changes(before: Any, after: Any, difference: str | None) -> None:
    check_json_change(json_diff, before, after, difference)


def check_json_change(module: ModuleType, before: Any, after: Any, difference: str | None) -> None:
    reader, writer = (JsonSchema(json.dumps(each), ()).document.node for each in (after, before))
    found = module.Comparison().differences(reader, writer, "#")
    assert [each.partition(" ")[0] for each in found[:1]] == ([] if difference is None else [difference])


def test_a_recursive_json_schema_is_compared_once() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}
    wider = {**tree, "properties": {"child": {"$ref": "#"}, "n": {"type": "number"}}}
    check_json_change(json_diff, tree, wider, None)
    check_json_change(json_diff, wider, tree, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")


def test_a_comparison_that_would_not_end_is_given_up() -> None:
    def nested(depth: int, most: int) -> Any:
        if not depth:
            return {"type": "string", "maxLength": most}
        inner = {"type": "object", "properties": {"x": nested(depth - 1, most)}}
        return {"oneOf": [nested(depth - 1, most), nested(depth - 1, most + 1), inner]}

    reader, writer = parse("JSON", json.dumps(nested(6, 3)), ()), parse("JSON", json.dumps(nested(6, 4)), ())
    assert reader.unreadable(writer) != []


def test_a_json_schema_names_places_of_its_references() -> None:
    text = '{"properties":{"a":{"$ref":"types.json#/definitions/id"}}}'
    types = Dependency("types.json", '{"definitions":{"id":{"type":"string"}}}')
    other = Dependency("types.json", types.text.replace("string", "number"))
    assert parse("JSON", text, (types,)).unreadable(parse("JSON", text, (other,))) != []
    assert parse("JSON", text, (types,)).unreadable(parse("JSON", text, (types,))) == []
    with pytest.raises(InvalidSchema, match=r"types\.json"):
        parse("JSON", text, ())


# -- bad input ---------------------------------------------------------------------------------------------------------

BAD = {
    "AVRO": [
        "",
        "{",
        '"foo"',
        "1",
        "null",
        '{"type":"record"}',
        '{"type":"array"}',
        '{"type":{"a":1}}',
        "[" * 500,
        '{"type":"enum","name":"E","symbols":[1,{}]}',
        '{"type":"record","name":"a","fields":5}',
        "NaN",
        '"a\0"',
        '{"type":"int","x":1e999}',
        '{"type":"record","name":"a","fields":[{"name":"a","type":"int"}]',
    ],
    "PROTOBUF": [
        "",
        "x",
        "message A {",
        'syntax="proto9";',
        "message A { B b = 1; }",
        "AAAA",
        "message A {" * 99,
        'syntax="proto3"; message A { int32 a = 0; }',
    ],
    "JSON": [
        "",
        "{",
        "[]",
        "1",
        '{"type":"foo"}',
        '{"$ref":"x"}',
        '{"$ref":"#/a"}',
        '{"properties":[]}',
        '{"$schema":1}',
        '{"a":1e999}',
        '{"multipleOf":0}',
        '{"$id":5}',
        '{"enum":1}',
    ],
    "XML": ["<a/>"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in BAD.items() for text in texts])
def test_what_is_no_schema_is_refused_with_a_sentence(kind: str, text: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(kind, text, ())
    assert caught.value.message.startswith(("The schema", "Invalid schema type"))
    assert len(caught.value.message) < 2000


GOOD = {
    "AVRO": '{"type":"record","name":"a.B","fields":[{"name":"x","type":["null",{"type":"map","values":"B"}]}]}',
    "PROTOBUF": PROTO2,
    "JSON": '{"$id":"a","properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"enum":[1,"a"]}}}',
}


@pytest.mark.parametrize("kind", GOOD)
def test_damaged_schemas_are_schemas_or_refused(kind: str) -> None:
    random, original = Random(5), parse(kind, GOOD[kind], ())
    for _ in range(300):
        text = list(GOOD[kind])
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(text))
            text[at : at + random.randint(0, 2)] = random.choice(
                ('"', "{", "}", "[", "]", ":", ",", "0", "-", "", "null", "é")
            )
        try:
            schema = parse(kind, "".join(text), ())
            schema.normalized()
            schema.unreadable(original)
            original.unreadable(schema)
        except InvalidSchema:
            continue


MISTAKES = [
    (
        json_diff,
        "name not in written and not has_default",
        "name not in written and has_default",
        {},
        {"required": ["a"]},
        "REQUIRED_ATTRIBUTE_ADDED",
    ),
    (
        json_diff,
        "(limit < earlier) if is_upper else (limit > earlier)",
        "limit < earlier",
        {"minimum": 3},
        {"minimum": 4},
        "MINIMUM_INCREASED",
    ),
    (
        json_diff,
        "return next((each for each in found if each), [])",
        "return min(found, key=len)",
        {"type": ["string", "null"]},
        {"type": "string"},
        "TYPE_CHANGED",
    ),
    (
        json_diff,
        "_type_of(one) != _type_of(other) or bool(one != other)",
        "bool(one != other)",
        {"enum": [1]},
        {"enum": [True]},
        "ENUM_ARRAY_CHANGED",
    ),
    (json_diff, "earlier % factor", "factor % earlier", {"multipleOf": 2}, {"multipleOf": 6}, "MULTIPLE_OF_CHANGED"),
]


@pytest.mark.parametrize(("module", "right", "wrong", "before", "after", "difference"), MISTAKES)
def test_a_planted_mistake_in_json_schema_is_noticed(
    module: ModuleType, right: str, wrong: str, before: Any, after: Any, difference: str
) -> None:
    assert_noticed(module, right, wrong, lambda copy: check_json_change(copy, before, after, difference))


def _protobuf_rules(module: ModuleType) -> None:
    for before, after, difference in PROTO_CHANGES:
        new, old = (ProtobufSchema(f'syntax="proto3"; message A {{ {each} }}', ()) for each in (after, before))
        found = module.differences(old.descriptor, old.types, new.descriptor, new.types)
        assert [each.partition(" ")[0] for each in found[:1]] == ([] if difference is None else [difference])


def _avro_is_canonical(module: ModuleType) -> None:
    text = '{"name":"a.B","type":"record","fields":[{"type":"a.B","name":"x","order":"ascending"}]}'
    assert module.AvroSchema(text, ()).text == (
        '{"type":"record","name":"B","namespace":"a","fields":[{"name":"x","type":"B"}]}'
    )


OTHER_MISTAKES = [
    (protobuf_diff, "len(set(found)) > 1", "len(set(found)) > 2", _protobuf_rules),
    (protobuf_diff, "_wire_group(old) != _wire_group(new)", "old.type != new.type", _protobuf_rules),
    (protobuf_diff, "if not old.options.map_entry:", "if False:", _protobuf_rules),
    (
        avro,
        'schema.removeprefix(f"{namespace}.") if _is_direct(schema, namespace) else schema',
        "schema",
        _avro_is_canonical,
    ),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), OTHER_MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)
