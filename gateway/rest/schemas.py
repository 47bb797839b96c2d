"""Keys and values with a schema: the id in front of the bytes, and the bytes as the schema's format writes them.

A request brings a schema's text, which is registered under the subject `<topic>-key` or `<topic>-value`, or the id of a
registered one. The registry is the one of this process. All functions block.
"""

import io
import json
from functools import lru_cache
from typing import Any, Final, NamedTuple

import fastavro
import jsonschema
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from trioka.protocol.schema_framing import Undecodable, framed, message_path

from ..registry.errors import RegistryError
from ..registry.formats.protobuf import ProtobufSchema
from ..registry.register import SchemaRequest
from ..registry.service import RegistryService, SchemaContent
from .errors import BAD_RECORDS, NO_SCHEMA, WRONG_FORMAT, RestError
from .formats import WITH_SCHEMA

FIRST_MESSAGE: Final = b"\0"  # the path to the first message of a Protobuf file
CODECS: Final = 1000


class Codec(NamedTuple):
    """A schema that values are written by."""

    id: int
    content: SchemaContent


class SchemaCodecs:
    def __init__(self, registry: RegistryService | None) -> None:
        self._registry = registry

    @property
    def _service(self) -> RegistryService:
        if self._registry is None:
            raise RestError(501, "Formats with a schema need the registry of this gateway: start it with --registry.")
        return self._registry

    def codec(self, subject: str, form: str, text: object, number: object) -> Codec:
        """The schema that a request names for its keys or values."""
        wanted = WITH_SCHEMA[form]
        if number is not None:
            if not isinstance(number, int) or isinstance(number, bool):
                raise RestError(422, "The id of a schema must be a whole number.")
            found = self._content(number)
            if found.schema_type != wanted:
                raise RestError(422, f"Schema {number} has the type {found.schema_type}, and not {wanted}.")
            return Codec(number, found)
        if not isinstance(text, str):
            what = "key" if subject.endswith("-key") else "value"
            raise RestError(42201 if what == "key" else 42202, f"A {what} needs {what}_schema or {what}_schema_id.")
        made = self._service.register_request(subject, SchemaRequest(text, wanted))
        return Codec(made, self._content(made))

    def _content(self, number: int) -> SchemaContent:
        try:
            return self._service.content_of_id(number)
        except RegistryError as error:
            if error.status == 404:
                raise RestError(NO_SCHEMA, f"There is no schema with the id {number}.") from None
            raise

    def encode(self, codec: Codec, value: Any) -> bytes | None:
        if value is None:
            return None
        return b"\0" + codec.id.to_bytes(4) + _ENCODE[codec.content.schema_type](codec.content, value)

    def decode(self, data: bytes | None, form: str, where: str) -> Any:
        if data is None:
            return None
        try:
            schema_id, rest = framed(data)
        except Undecodable:
            raise RestError(WRONG_FORMAT, f"The record {where} does not begin with the id of a schema.") from None
        content = self._content(schema_id)
        if content.schema_type != WITH_SCHEMA[form]:
            raise RestError(WRONG_FORMAT, f"The record {where} has a schema of the type {content.schema_type}.")
        try:
            return _DECODE[content.schema_type](content, rest)
        except RestError:
            raise
        except Exception as error:  # of the libraries, for damaged data
            raise RestError(WRONG_FORMAT, f"The record {where} does not follow its schema: {error}") from None


# -- Avro --------------------------------------------------------------------------------------------------------------


@lru_cache(CODECS)
def _avro(content: SchemaContent) -> Any:
    names: dict[str, Any] = {}
    for each in content.dependencies:
        fastavro.parse_schema(json.loads(each.text), named_schemas=names)
    return fastavro.parse_schema(json.loads(content.text), named_schemas=names)


def _encode_avro(content: SchemaContent, value: Any) -> bytes:
    schema = _avro(content)
    try:
        (decoded,) = fastavro.json_reader(io.StringIO(json.dumps(value)), schema)
        target = io.BytesIO()
        fastavro.schemaless_writer(target, schema, decoded, strict=True)
    except Exception as error:  # of many kinds
        raise RestError(
            BAD_RECORDS, f"A value does not follow its Avro schema: {type(error).__name__}: {error}"
        ) from None
    return target.getvalue()


def _decode_avro(content: SchemaContent, data: bytes) -> Any:
    schema = _avro(content)
    target = io.StringIO()
    fastavro.json_writer(target, schema, [fastavro.schemaless_reader(io.BytesIO(data), schema, None)])
    return json.loads(target.getvalue())


# -- Protobuf ----------------------------------------------------------------------------------------------------------


@lru_cache(CODECS)
def _messages(content: SchemaContent) -> list[Descriptor]:
    """The messages of the file, in its order."""
    schema = ProtobufSchema(content.text, content.dependencies)
    pool = DescriptorPool()
    for each in schema.files:
        pool.Add(each)
    main = FileDescriptorProto()
    main.CopyFrom(schema.descriptor)
    pool.Add(main)
    return list(pool.FindFileByName(main.name).message_types_by_name.values())


def _encode_protobuf(content: SchemaContent, value: Any) -> bytes:
    messages = _messages(content)
    if not messages:
        raise RestError(BAD_RECORDS, "The Protobuf schema has no message.")
    try:
        message: Message = GetMessageClass(messages[0])()
        json_format.ParseDict(value, message)
        return FIRST_MESSAGE + bytes(message.SerializeToString())
    except Exception as error:  # ParseError, and what values of other types raise within
        raise RestError(BAD_RECORDS, f"A value does not follow its Protobuf schema: {error}") from None


def _decode_protobuf(content: SchemaContent, data: bytes) -> Any:
    path, rest = message_path(data)
    found = _messages(content)[path[0]]
    for index in path[1:]:
        found = found.nested_types[index]
    message = GetMessageClass(found).FromString(rest)
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


# -- JSON Schema -------------------------------------------------------------------------------------------------------


@lru_cache(CODECS)
def _validator(content: SchemaContent) -> Any:
    schema = json.loads(content.text)
    known: Any = Registry()
    for each in content.dependencies:
        known = known.with_resource(each.name, DRAFT7.create_resource(json.loads(each.text)))
    kind: Any = validator_for(schema, default=Draft7Validator)
    return kind(schema, registry=known)


def _encode_json(content: SchemaContent, value: Any) -> bytes:
    try:
        error = jsonschema.exceptions.best_match(_validator(content).iter_errors(value))
    except (Unresolvable, RecursionError) as failure:
        raise RestError(BAD_RECORDS, f"A value cannot be compared with its JSON Schema: {failure}") from None
    if error is not None:
        place = "/".join(str(each) for each in error.absolute_path)
        raise RestError(BAD_RECORDS, f"A value does not follow its JSON Schema, at /{place}: {error.message[:500]}")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _decode_json(content: SchemaContent, data: bytes) -> Any:
    return json.loads(data)


_ENCODE: Final = {"AVRO": _encode_avro, "PROTOBUF": _encode_protobuf, "JSON": _encode_json}
_DECODE: Final = {"AVRO": _decode_avro, "PROTOBUF": _decode_protobuf, "JSON": _decode_json}
