"""Avro values: the reader's schema as Spark's, and a decoder that follows the schema ids of the writers.

Spark's own `from_avro` uses one writer's schema, fixed when the query starts. A topic has one schema per schema id in
its records, and new ones appear while the stream runs, for example when a field is added. So fastavro decodes in
Spark's Python workers: each worker fetches the schema of an id on first use, and caches it.

A record that cannot be decoded is a dead letter. If a registry does not answer, the batch fails and is retried.
"""

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from trioka.protocol.schema_framing import Undecodable, framed

from ..declaration.model import Avro
from ..errors import InvalidPipeline
from .registered import answer, newest

# More schemas than this in one worker suggest a hostile topic; the worker then clears its cache.
SCHEMAS_KEPT = 1000
MAX_DEPTH = 32

PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
LOGICAL = {
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "date": "DATE",
    "uuid": "STRING",
}


def reader_schema(declared: Avro) -> str:
    """The schema that records are read with: the file's, otherwise the newest of the subject."""
    if declared.schema is not None:
        return declared.schema
    assert declared.registry is not None and declared.subject is not None, "the declaration was checked"
    return newest(declared.registry, declared.subject, "AVRO").text


def registered_schema(url: str) -> str | None:
    """The schema in a registry's response; None if the registry reports that there is none."""
    found = answer(url)
    return str(found["schema"]) if found is not None and found.get("schemaType", "AVRO") == "AVRO" else None


def parsed(schema: str, key: str = "decode.schema_file") -> Any:
    """The schema as fastavro parses it; `InvalidPipeline` if it is invalid."""
    try:
        return fastavro.parse_schema(json.loads(schema))
    except Exception as error:  # fastavro raises its own, KeyError, TypeError …, all for an invalid schema
        raise InvalidPipeline(f"{key}: is not an Avro schema: {error}.") from None


def to_ddl(schema: str) -> str:
    """An Avro record as the fields of a Spark schema."""
    found = parsed(schema)
    if not isinstance(found, dict) or found.get("type") != "record":
        raise InvalidPipeline("decode.schema_file: must be an Avro schema whose type is record.")
    return _Translation().fields(found, 0)


class _Translation:
    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def fields(self, record: Any, depth: int) -> str:
        self.named[record["name"]] = None  # a record type inside of itself is a cycle
        found = ", ".join(f"`{one['name']}` {self.type(one['type'], depth + 1)}" for one in record["fields"])
        self.named[record["name"]] = record
        return found

    def type(self, schema: Any, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise InvalidPipeline(f"decode.schema_file: is nested deeper than {MAX_DEPTH} levels.")
        if isinstance(schema, list):
            return self.union(schema, depth)
        if isinstance(schema, str):
            return self.name(schema, depth)
        kind, logical = schema["type"], schema.get("logicalType")
        if logical in LOGICAL:
            return LOGICAL[logical]
        if logical == "decimal":
            return f"DECIMAL({schema['precision']},{schema.get('scale', 0)})"
        if kind == "record":
            return f"STRUCT<{self.fields(schema, depth)}>"
        if kind == "array":
            return f"ARRAY<{self.type(schema['items'], depth + 1)}>"
        if kind == "map":
            return f"MAP<STRING, {self.type(schema['values'], depth + 1)}>"
        if kind in ("enum", "fixed"):
            self.named[schema["name"]] = schema
        return self.type(kind, depth) if kind not in PRIMITIVES else PRIMITIVES[kind]

    def name(self, name: str, depth: int) -> str:
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        if self.named.get(name) is None:
            raise InvalidPipeline(f"decode.schema_file: '{name}' holds itself, which a table cannot.")
        return self.type(self.named[name], depth)

    def union(self, schema: list[Any], depth: int) -> str:
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise InvalidPipeline(
                f"decode.schema_file: a union of {len(others)} types has no column; null and one other do."
            )
        return self.type(others[0], depth)


def _or_none(schema: str) -> Any:
    """None for an invalid schema in a registry: records that use it are dead letters, others are decoded."""
    try:
        return parsed(schema)
    except InvalidPipeline:
        return None


class AvroDecoder:
    """Decodes bytes to a dictionary. It is sent to the workers, where it looks up the writers' schemas."""

    def __init__(self, *, reader: str, is_framed: bool, registry: str | None, writers: Mapping[int, str]) -> None:
        self._reader = parsed(reader)
        self._is_framed = is_framed
        self._registry = registry
        self._given = {id: parsed(text, f"decode.writers.{id}") for id, text in writers.items()}
        self._kept: dict[int, Any] = {}

    def __call__(self, value: bytes) -> dict[str, Any]:
        writer: Any = self._reader
        if self._is_framed:
            id, value = framed(value)
            writer = self._writer(id)
        source = io.BytesIO(value)
        try:
            found: Any = fastavro.schemaless_reader(source, writer, self._reader)
        except Exception as error:  # whatever fastavro stumbles over is in the bytes
            raise Undecodable(
                f"the value does not follow its Avro schema: {str(error) or type(error).__name__}"
            ) from None
        if source.tell() != len(value):
            raise Undecodable(f"{len(value) - source.tell()} bytes follow the Avro record")
        return dict(found)

    def _writer(self, id: int) -> Any:
        if id in self._given:
            return self._given[id]
        if self._registry is None:
            if self._given:
                raise Undecodable(f"schema id {id} is not among the writers that were declared")
            return self._reader  # one schema file and no registry: every id refers to it
        if id not in self._kept:
            if len(self._kept) >= SCHEMAS_KEPT:
                self._kept.clear()
            text = registered_schema(f"{self._registry.rstrip('/')}/schemas/ids/{id}")
            self._kept[id] = None if text is None else _or_none(text)
        if self._kept[id] is None:
            raise Undecodable(f"the registry has no Avro schema with the id {id}")
        return self._kept[id]
