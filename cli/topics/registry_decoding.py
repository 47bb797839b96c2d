"""Decodes values and keys by the schemas of a registry, for `consume --decode registry`.

Each begins with a zero byte and the id of the schema that wrote it (`trioka.protocol.schema_framing`), whose type may
be Avro, Protobuf or JSON. A schema is requested once, with the schemas that it refers to. The registry sends Protobuf
as descriptors (`format=serialized`), so no protoc is needed here.
"""

import base64
import io
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from trioka.protocol.schema_framing import Undecodable, framed, message_path

from ..client.registry_client import RegistryClient, RegistryFailure
from ..terminal.failure import Failure

Decode: TypeAlias = Callable[[bytes], Any]
MAX_SCHEMAS: Final = 1000  # kept; a full cache is cleared
MAX_REFERENCES: Final = 1000
FORMAT: Final = "serialized"
KNOWN_PREFIX: Final = "google/protobuf/"
KNOWN: Final = frozenset(
    f"{KNOWN_PREFIX}{name}.proto"
    for name in ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
                 "type", "wrappers")
)  # fmt: skip


class RegistryDecoder:
    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._by_id: dict[int, Decode | str] = {}  # or why there is none

    def __call__(self, data: bytes) -> Any:
        number, rest = framed(data)
        if number not in self._by_id:
            if len(self._by_id) >= MAX_SCHEMAS:
                self._by_id.clear()
            self._by_id[number] = self._decoder(number)
        decode = self._by_id[number]
        if isinstance(decode, str):
            raise Undecodable(decode)
        return decode(rest)

    def _decoder(self, number: int) -> Decode | str:
        try:
            found = self._registry.get("schemas", "ids", str(number), format=FORMAT)
            kind = found.get("schemaType", "AVRO")
            if kind == "JSON":
                return _from_json
            references = self._references(found)
        except RegistryFailure as failure:
            return f"the schema with the id {number}: {failure.what}"
        try:
            if kind == "AVRO":
                return _avro(found["schema"], references)
            if kind == "PROTOBUF":
                return _protobuf(found["schema"], references)
        except ImportError as error:
            what = f"--decode registry needs '{error.name}', which is not installed"
            raise Failure(what, hints=["install it: pip install 'trioka[decode]'"]) from None
        except Exception as error:  # whatever the libraries raise for a schema that they do not take
            return f"the schema with the id {number} is none: {error}"
        return f"the schema with the id {number} has the unknown type {kind}"

    def _references(self, found: Any) -> list[tuple[str, str]]:
        """Names and texts of what a schema refers to, each after what it needs itself."""
        known: dict[str, str] = {}
        visited: set[tuple[str, int]] = set()

        def follow(schema: Any) -> None:
            for each in schema.get("references") or ():
                place = (each["subject"], each["version"])
                if place in visited or len(visited) > MAX_REFERENCES:
                    continue
                visited.add(place)
                path = ("subjects", place[0], "versions", str(place[1]))
                target = self._registry.get(*path, format=FORMAT, deleted="true")
                follow(target)
                known[each["name"]] = target["schema"]

        follow(found)
        return list(known.items())


def _from_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the value is no JSON: {error}") from None


def _avro(text: str, references: list[tuple[str, str]]) -> Decode:
    import fastavro

    names: dict[str, Any] = {}
    for _, each in references:
        fastavro.parse_schema(json.loads(each), named_schemas=names)
    schema = fastavro.parse_schema(json.loads(text), named_schemas=names)

    def decode(data: bytes) -> Any:
        try:
            return fastavro.schemaless_reader(io.BytesIO(data), schema, None)
        except Exception as error:  # fastavro raises many kinds for damaged data
            raise Undecodable(f"the value does not follow its schema: {type(error).__name__}: {error}") from None

    return decode


def _protobuf(text: str, references: list[tuple[str, str]]) -> Decode:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    name = ""
    for name, encoded in [*references, ("", text)]:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(encoded))
        file.name = name or "schema"
        for imported in file.dependency:
            if imported in KNOWN:
                _add_known(pool, imported)
        pool.Add(file)
    main = pool.FindFileByName("schema")
    in_file = list(main.message_types_by_name.values())

    def decode(data: bytes) -> Any:
        path, rest = message_path(data)
        try:
            found = in_file[path[0]]
            for index in path[1:]:
                found = found.nested_types[index]
            message = message_factory.GetMessageClass(found).FromString(rest)
        except (IndexError, DecodeError) as error:
            raise Undecodable(f"the value does not follow its schema: {error}") from None
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    return decode


def _add_known(pool: Any, name: str) -> None:
    """A file that protobuf itself brings, and all that it imports."""
    from google.protobuf import descriptor_pb2

    found = import_module(f"google.protobuf.{name.removeprefix(KNOWN_PREFIX).removesuffix('.proto')}_pb2").DESCRIPTOR
    for each in found.dependencies:
        _add_known(pool, each.name)
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    pool.Add(file)
