"""Protobuf values by their descriptor: the message as Spark's schema, and a decoder.

The descriptor is what `protoc --include_imports --descriptor_set_out` writes: a FileDescriptorSet. It is sent to
Spark's Python workers as bytes, and each builds its classes from it once. Spark's own `from_protobuf` would need a jar
that no repository has for Spark 4.

A field that can be absent (`optional`, a message, one of a `oneof`) is null when absent; any other field then has its
default.
"""

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from trioka.protocol.schema_framing import Undecodable, framed, without_message_path

from ..errors import InvalidPipeline

MAX_DEPTH = 32
TIMESTAMP = "google.protobuf.Timestamp"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SCALARS = {
    FieldDescriptor.TYPE_BOOL: "BOOLEAN",
    FieldDescriptor.TYPE_INT32: "INT",
    FieldDescriptor.TYPE_SINT32: "INT",
    FieldDescriptor.TYPE_SFIXED32: "INT",
    FieldDescriptor.TYPE_UINT32: "BIGINT",
    FieldDescriptor.TYPE_FIXED32: "BIGINT",
    FieldDescriptor.TYPE_INT64: "BIGINT",
    FieldDescriptor.TYPE_SINT64: "BIGINT",
    FieldDescriptor.TYPE_SFIXED64: "BIGINT",
    FieldDescriptor.TYPE_UINT64: "DECIMAL(20,0)",
    FieldDescriptor.TYPE_FIXED64: "DECIMAL(20,0)",
    FieldDescriptor.TYPE_FLOAT: "FLOAT",
    FieldDescriptor.TYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.TYPE_STRING: "STRING",
    FieldDescriptor.TYPE_BYTES: "BINARY",
    FieldDescriptor.TYPE_ENUM: "STRING",
}


@functools.lru_cache(maxsize=16)
def message_class(descriptor: bytes, name: str) -> type[Message]:
    """The class of a message; `InvalidPipeline` describes an error in the descriptor or the name."""
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptor)
        for file in files.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(name)
    except DecodeError:
        raise InvalidPipeline("decode.descriptor: is not a FileDescriptorSet, as protoc writes it.") from None
    except (KeyError, TypeError) as error:
        names = [f"{file.package}.{one.name}".strip(".") for file in files.file for one in file.message_type]
        if name in names:
            raise InvalidPipeline(
                f"decode.descriptor: an import is missing; use --include_imports ({error})."
            ) from None
        raise InvalidPipeline(f"decode.message: there is no '{name}', but {', '.join(names) or 'nothing'}.") from None
    made: type[Message] = message_factory.GetMessageClass(found)
    return made


def first_message(descriptor: bytes) -> str:
    """The first message of the last file, which is the schema itself: those that it imports come before it."""
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor)
    file = files.file[-1]
    if not file.message_type:
        raise InvalidPipeline("decode.registry: the Protobuf schema has no message.")
    return f"{file.package}.{file.message_type[0].name}".strip(".")


def to_ddl(message: Descriptor, depth: int = 0) -> str:
    """A message as the fields of a Spark schema."""
    if depth > MAX_DEPTH:
        raise InvalidPipeline(f"decode.message: '{message.full_name}' holds itself, which a table cannot.")
    return ", ".join(f"`{field.name}` {_type(field, depth + 1)}" for field in message.fields)


def _type(field: FieldDescriptor, depth: int) -> str:
    if _is_map(field):
        key, value = field.message_type.fields
        return f"MAP<{_single(key, depth)}, {_single(value, depth)}>"
    return f"ARRAY<{_single(field, depth)}>" if field.is_repeated else _single(field, depth)


def _single(field: FieldDescriptor, depth: int) -> str:
    if field.message_type is None:
        return SCALARS[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return "TIMESTAMP"
    return f"STRUCT<{to_ddl(field.message_type, depth)}>"


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


class ProtobufDecoder:
    """Decodes bytes to a dictionary. The worker builds the classes, because they cannot be pickled."""

    def __init__(self, *, descriptor: bytes, message: str, is_framed: bool) -> None:
        self._descriptor = descriptor
        self._message = message
        self._is_framed = is_framed

    def __call__(self, value: bytes) -> dict[str, Any]:
        made = message_class(self._descriptor, self._message)()
        if self._is_framed:
            value = without_message_path(framed(value)[1])
        try:
            made.ParseFromString(value)
        except DecodeError as error:
            raise Undecodable(f"the value is not a {self._message}: {error}") from None
        return _plain(made)


def _plain(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        single = _converter(field)
        if _is_map(field):
            of_value = _converter(field.message_type.fields[1])
            found[field.name] = {key: of_value(one) for key, one in value.items()}
        elif field.is_repeated:
            found[field.name] = [single(one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = single(value)
    return found


def _converter(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return _datetime
        return _plain
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    return _decimal if SCALARS[field.type].startswith("DECIMAL") else _same


def _same(value: Any) -> Any:
    return value


def _decimal(value: int) -> Decimal:
    return Decimal(value)


def _datetime(value: Any) -> datetime:
    return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
