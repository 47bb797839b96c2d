"""Avro values as values of an Arrow column: the type of the reader's schema, and a decoder.

    record → struct · array → list · map → map · enum, uuid → string · fixed → binary · decimal → decimal128
    timestamp-millis, -micros → timestamp with UTC · local-timestamp-… → timestamp · date → date

A union is null and one other type. The decoders of pipelines do the decoding (`trioka.pipeline.formats.avro`).
"""

import json
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from trioka.archive.table_sync import Undecodable
from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.formats.avro import MAX_DEPTH, AvroDecoder, parsed
from trioka.protocol.schema_framing import Undecodable as NotFollowingTheSchema

PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL: Final = {
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "uuid": pa.string(),
}


class AvroColumn:
    """The `ValueDecoder` of a table whose values are Avro."""

    def __init__(self, reader: str, *, is_framed: bool, registry: str | None) -> None:
        self._decode = AvroDecoder(reader=reader, is_framed=is_framed, registry=registry, writers={})
        self.type = arrow_type(reader)

    def __call__(self, value: bytes) -> Any:
        try:
            return _plain(self._decode(value))
        except NotFollowingTheSchema as error:
            raise Undecodable(str(error)) from error


def arrow_type(schema: str) -> Any:
    """The column of an Avro record. InvalidPipeline for a schema that is none, or that no column can hold."""
    found = parsed(schema, "--schema")
    if not isinstance(found, dict) or found.get("type") != "record":
        raise InvalidPipeline("--schema: must be an Avro schema whose type is record.")
    return _Translation().type(json.loads(schema), 0)


class _Translation:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def type(self, schema: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise InvalidPipeline(f"--schema: is nested deeper than {MAX_DEPTH} levels.")
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            if len(others) != 1:
                raise InvalidPipeline(f"--schema: a union of {len(others)} types has no column; null and one other do.")
            return self.type(others[0], depth)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema]
            if self._named.get(schema.rpartition(".")[2]) is None:
                raise InvalidPipeline(f"--schema: '{schema}' holds itself, or is not defined before it is used.")
            return self._named[schema.rpartition(".")[2]]
        kind, logical = schema["type"], schema.get("logicalType")
        if logical in LOGICAL:
            return LOGICAL[logical]
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        translate: Callable[[Any, int], Any] | None = {
            "record": self._record,
            "array": lambda one, depth: pa.list_(self.type(one["items"], depth + 1)),
            "map": lambda one, depth: pa.map_(pa.string(), self.type(one["values"], depth + 1)),
            "enum": lambda one, _: self._name(one, pa.string()),
            "fixed": lambda one, _: self._name(one, pa.binary()),
        }.get(kind if isinstance(kind, str) else "")
        return self.type(kind, depth) if translate is None else translate(schema, depth)

    def _record(self, record: Any, depth: int) -> Any:
        self._named[record["name"].rpartition(".")[2]] = None  # a record inside of itself is a cycle
        fields = [pa.field(one["name"], self.type(one["type"], depth + 1)) for one in record["fields"]]
        return self._name(record, pa.struct(fields))

    def _name(self, schema: Any, made: Any) -> Any:
        self._named[schema["name"].rpartition(".")[2]] = made
        return made


def _plain(value: Any) -> Any:
    """What Arrow takes: uuids as text, maps of maps as they are."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, UUID) else value
