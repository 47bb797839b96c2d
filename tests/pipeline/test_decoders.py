"""Avro and Protobuf values, decoded as Spark's workers do it, without Spark."""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Proto
from mutants.plant import Rule, assert_noticed, within

from trioka.pipeline.declaration.model import Avro
from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.formats import avro, protobuf
from trioka.pipeline.installation.cache import Unreachable
from trioka.protocol.schema_framing import Undecodable

OLD: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEW: dict[str, Any] = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}

SCHEMAS = {7: OLD, 8: NEW}


def written(schema: dict[str, Any], record: dict[str, Any], id: int | None = None) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, schema, record)
    return (b"" if id is None else b"\0" + id.to_bytes(4)) + target.getvalue()


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requested.append(self.path)  # type: ignore[attr-defined]
        number = 8 if self.path.endswith("versions/latest") else int(self.path.rpartition("/")[2])
        known = SCHEMAS.get(number)
        body = json.dumps({"schema": json.dumps(known)}).encode()
        self.send_response(500 if number == 500 else 200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    server.requested = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def decoder(registry: ThreadingHTTPServer) -> avro.AvroDecoder:
    url = f"http://127.0.0.1:{registry.server_port}"
    declared = Avro(schema=None, registry=url, subject="orders-value", writers={}, is_framed=True)
    reader = avro.reader_schema(declared)
    return avro.AvroDecoder(reader=reader, is_framed=True, registry=url, writers={})


def test_each_record_is_read_by_the_schema_of_its_id_which_is_asked_for_once(registry: ThreadingHTTPServer) -> None:
    decode = decoder(registry)
    for _ in range(3):
        assert decode(written(OLD, {"id": 1}, 7)) == {"id": 1, "note": None}
        assert decode(written(NEW, {"id": 2, "note": "x"}, 8)) == {"id": 2, "note": "x"}
        with pytest.raises(Undecodable, match="no Avro schema with the id 9"):
            decode(written(OLD, {"id": 1}, 9))
    requested = registry.requested  # type: ignore[attr-defined]
    assert requested == ["/subjects/orders-value/versions/latest", "/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/9"]


def test_a_registry_that_fails_is_not_the_records_fault(registry: ThreadingHTTPServer) -> None:
    decode = decoder(registry)
    with pytest.raises(Unreachable, match="answered 500"):
        decode(written(OLD, {"id": 1}, 500))


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1" + bytes(9), written(OLD, {"id": 1}), bytes(5)])
def test_bytes_that_are_no_framed_record_are_undecodable(value: bytes) -> None:
    decode = avro.AvroDecoder(reader=json.dumps(OLD), is_framed=True, registry=None, writers={})
    with pytest.raises(Undecodable):
        decode(value)


def test_every_cut_of_a_record_is_undecodable_and_so_is_more() -> None:
    value = written(NEW, {"id": 300, "note": "some text"}, 1)
    decode = avro.AvroDecoder(reader=json.dumps(NEW), is_framed=True, registry=None, writers={})
    assert decode(value) == {"id": 300, "note": "some text"}
    for wrong in (*(value[:end] for end in range(len(value))), value + b"\0"):
        with pytest.raises(Undecodable):
            decode(wrong)


def test_an_avro_schema_becomes_the_columns_of_a_table() -> None:
    schema = {
        **OLD,
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            },
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
            {"name": "again", "type": "Kind"},
            {"name": "lines", "type": {"type": "array", "items": {**OLD, "name": "Line"}}},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
        ],
    }
    assert avro.to_ddl(json.dumps(schema)) == (
        "`at` TIMESTAMP, `price` DECIMAL(9,2), `kind` STRING, `again` STRING, `lines` ARRAY<STRUCT<`id` BIGINT>>, "
        "`tags` MAP<STRING, INT>"
    )


@pytest.mark.parametrize(
    "field", [{"name": "x", "type": ["int", "string"]}, {"name": "x", "type": ["null", "Order"]}, {"name": "x"}]
)
def test_an_avro_schema_without_columns_is_the_users_matter(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidPipeline, match=r"decode\.schema_file"):
        avro.to_ddl(json.dumps({**OLD, "fields": [field]}))


def descriptor() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind, label) in enumerate(
        [("id", Proto.TYPE_UINT64, 1), ("tags", Proto.TYPE_STRING, 3), ("paid", Proto.TYPE_BOOL, 1)], 1
    ):
        order.field.add(name=name, number=number, type=kind, label=label)
    order.field.add(name="line", number=4, type=Proto.TYPE_MESSAGE, label=1, type_name=".shop.Line")
    file.message_type.add(name="Line").field.add(name="sku", number=1, type=Proto.TYPE_STRING, label=1)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def test_a_protobuf_message_becomes_the_columns_of_a_table() -> None:
    made = protobuf.message_class(descriptor(), "shop.Order")
    ddl = "`id` DECIMAL(20,0), `tags` ARRAY<STRING>, `paid` BOOLEAN, `line` STRUCT<`sku` STRING>"
    assert protobuf.to_ddl(made.DESCRIPTOR) == ddl


def test_protobuf_fields_have_their_values_defaults_or_nothing() -> None:
    made: Any = protobuf.message_class(descriptor(), "shop.Order")
    decode = protobuf.ProtobufDecoder(descriptor=descriptor(), message="shop.Order", is_framed=False)
    assert decode(made(id=2**64 - 1, tags=["a"]).SerializeToString()) == {
        "id": 2**64 - 1,
        "tags": ["a"],
        "paid": False,
        "line": None,
    }
    framed = protobuf.ProtobufDecoder(descriptor=descriptor(), message="shop.Order", is_framed=True)
    assert framed(b"\0\0\0\0\1\0" + made(id=3).SerializeToString())["id"] == 3
    assert framed(b"\0\0\0\0\1\2\0" + made(id=3).SerializeToString())["id"] == 3


@pytest.mark.parametrize("value", [b"\xff", b"\x08", b"\x12\x05ab"])
def test_bytes_that_are_no_message_are_undecodable(value: bytes) -> None:
    decode = protobuf.ProtobufDecoder(descriptor=descriptor(), message="shop.Order", is_framed=False)
    with pytest.raises(Undecodable):
        decode(value)


@pytest.mark.parametrize(("content", "name"), [(b"\xff", "shop.Order"), (descriptor(), "shop.Odrer")])
def test_a_wrong_descriptor_or_message_is_the_users_matter(content: bytes, name: str) -> None:
    with pytest.raises(InvalidPipeline, match="decode"):
        protobuf.message_class(content, name)


# -- planted mistakes --------------------------------------------------------------------------------------------------


def a_record_that_does_not_decode_stops_nothing(module: ModuleType) -> None:
    """Whatever is wrong with the bytes, or with the schema that they name, makes a dead letter by `Undecodable`."""
    decode = module.AvroDecoder(reader=json.dumps(NEW), is_framed=True, registry=None, writers={1: json.dumps(OLD)})
    value = written(OLD, {"id": 300}, 1)
    decode(value)
    for wrong in (b"", value[:-1], value + b"\0", written(NEW, {"id": 300, "note": None}, 2)):
        with pytest.raises(Undecodable):
            decode(wrong)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "registered_schema", lambda _: '{"type": "recordd"}')
        decode = module.AvroDecoder(reader=json.dumps(NEW), is_framed=True, registry="http://there", writers={})
        with pytest.raises(Undecodable):
            decode(value)


def an_added_field_is_null_in_what_was_written_before(module: ModuleType) -> None:
    writers = {1: json.dumps(OLD), 2: json.dumps(NEW)}
    decode = module.AvroDecoder(reader=json.dumps(NEW), is_framed=True, registry=None, writers=writers)
    assert decode(written(OLD, {"id": 1}, 1)) == {"id": 1, "note": None}
    assert decode(written(NEW, {"id": 2, "note": "x"}, 2)) == {"id": 2, "note": "x"}


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (
            within(
                "AvroDecoder.__call__", "except Exception as error:  # whatever fastavro stumbles over is in the bytes"
            ),
            "except KeyError as error:  # fastavro stumbles over is in the bytes",
            a_record_that_does_not_decode_stops_nothing,
        ),
        ("if source.tell() != len(value):", "if False:", a_record_that_does_not_decode_stops_nothing),
        ("            if self._given:\n", "            if False:\n", a_record_that_does_not_decode_stops_nothing),
        ("None if text is None else _or_none(text)", "parsed(text)", a_record_that_does_not_decode_stops_nothing),
        ("source, writer, self._reader", "source, writer, writer", an_added_field_is_null_in_what_was_written_before),
        ("writer = self._writer(id)", "pass", an_added_field_is_null_in_what_was_written_before),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(avro, right, wrong, rule)
