"""Prints a FileDescriptorProto as the text of a .proto file that protoc compiles to the same descriptor.

Options that descriptors know are printed, extensions of options are not: a descriptor has them by number only.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.message import Message

INDENT: Final = "  "
PROTO2, PROTO3, EDITIONS = "proto2", "proto3", "editions"
MAX_FIELD_NUMBER: Final = 536870911
Label = FieldDescriptorProto.Label
SCALARS: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}


def print_file(file: FileDescriptorProto, *, is_sorted: bool = False) -> str:
    """`is_sorted`: imports, options, messages and enums in the order of names, fields in that of numbers."""
    return "\n".join(_Printer(file, is_sorted).lines()) + "\n"


class _Printer:
    def __init__(self, file: FileDescriptorProto, is_sorted: bool) -> None:
        self._file = file
        self._is_sorted = is_sorted
        self._syntax = file.syntax or PROTO2

    def lines(self) -> Iterator[str]:
        file = self._file
        if self._syntax == EDITIONS:
            from google.protobuf.descriptor_pb2 import Edition

            yield f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{self._syntax}";'
        if file.package:
            yield f"package {file.package};"
        yield ""
        kinds = dict.fromkeys(file.public_dependency, "public ") | dict.fromkeys(file.weak_dependency, "weak ")
        imports = [f'import {kinds.get(index, "")}"{name}";' for index, name in enumerate(file.dependency)]
        yield from sorted(imports) if self._is_sorted else imports
        yield from (f"option {each};" for each in _options(file.options))
        yield from self._declarations(file.message_type, file.enum_type, file.extension, "")
        for service in self._by_name(file.service):
            yield from self._service(service)

    def _by_name(self, found: Iterable[Any]) -> Sequence[Any]:
        return sorted(found, key=lambda each: str(each.name)) if self._is_sorted else list(found)

    def _declarations(
        self, messages: Iterable[Any], enums: Iterable[Any], extensions: Iterable[FieldDescriptorProto], indent: str
    ) -> Iterator[str]:
        groups = {field.type_name for field in extensions if field.type == FieldDescriptorProto.TYPE_GROUP}
        for message in self._by_name(messages):
            if not message.options.map_entry and not any(each.endswith(f".{message.name}") for each in groups):
                yield from self._message(message, indent)
        for enum in self._by_name(enums):
            yield from self._enum(enum, indent)
        for field in extensions:
            yield f"{indent}extend {field.extendee} {{"
            yield from self._field(field, {}, indent + INDENT)
            yield f"{indent}}}"

    def _message(self, message: DescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}message {message.name} {{"
        yield from self._body(message, indent + INDENT)
        yield f"{indent}}}"

    def _body(self, message: DescriptorProto, inner: str) -> Iterator[str]:
        yield from (f"{inner}option {each};" for each in _options(message.options))
        nested = {each.name: each for each in message.nested_type}
        fields = sorted(message.field, key=lambda each: each.number) if self._is_sorted else list(message.field)
        printed: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, nested, inner)
            elif field.oneof_index not in printed:
                printed.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"{inner}oneof {oneof.name} {{"
                yield from (f"{inner}{INDENT}option {each};" for each in _options(oneof.options))
                for each in fields:
                    if each.HasField("oneof_index") and each.oneof_index == field.oneof_index:
                        yield from self._field(each, nested, inner + INDENT, is_labelled=False)
                yield f"{inner}}}"
        groups = {field.type_name.rpartition(".")[2] for field in fields if field.type == field.TYPE_GROUP}
        shown = [each for each in message.nested_type if each.name not in groups]
        yield from self._declarations(shown, message.enum_type, message.extension, inner)
        for span in message.extension_range:
            yield f"{inner}extensions {_span(span.start, span.end - 1, MAX_FIELD_NUMBER)};"
        yield from _reserved(message, inner, exclusive=1, most=MAX_FIELD_NUMBER, is_quoted=self._syntax != EDITIONS)

    def _field(
        self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto], indent: str, *, is_labelled: bool = True
    ) -> Iterator[str]:
        entry = nested.get(field.type_name.rpartition(".")[2])
        label = self._label(field) if is_labelled else ""
        if field.type == field.TYPE_MESSAGE and entry is not None and entry.options.map_entry:
            key, value = (self._type(each) for each in sorted(entry.field, key=lambda each: each.number))
            kind, label = f"map<{key}, {value}>", ""
        else:
            kind = self._type(field)
        options = [*_default(field), *_options(field.options)]
        if field.json_name and field.json_name != _json_name(field.name):
            options.append(f"json_name = {_quoted(field.json_name)}")
        shown = f" [{', '.join(options)}]" if options else ""
        if field.type == field.TYPE_GROUP and entry is not None:
            yield f"{indent}{label}group {entry.name} = {field.number}{shown} {{"
            yield from self._body(entry, indent + INDENT)
            yield f"{indent}}}"
            return
        yield f"{indent}{label}{kind} {field.name} = {field.number}{shown};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == field.LABEL_REPEATED:
            return "repeated "
        if field.label == field.LABEL_REQUIRED:
            return "required "
        return "optional " if field.proto3_optional or self._syntax == PROTO2 else ""

    def _type(self, field: FieldDescriptorProto) -> str:
        return SCALARS.get(field.type) or str(field.type_name)

    def _enum(self, enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
        inner = indent + INDENT
        yield f"{indent}enum {enum.name} {{"
        yield from (f"{inner}option {each};" for each in _options(enum.options))
        values = list(enum.value)
        if self._is_sorted:  # the first stays: it is the default
            values[1:] = sorted(values[1:], key=lambda each: each.number)
        for value in values:
            options = ", ".join(_options(value.options))
            yield f"{inner}{value.name} = {value.number}{f' [{options}]' if options else ''};"
        yield from _reserved(enum, inner, exclusive=0, most=2**31 - 1, is_quoted=self._syntax != EDITIONS)
        yield f"{indent}}}"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from (f"{INDENT}option {each};" for each in _options(service.options))
        for method in self._by_name(service.method):
            sent = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            received = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            options = [f"option {each};" for each in _options(method.options)]
            body = f" {{ {' '.join(options)} }}" if options else ";"
            yield f"{INDENT}rpc {method.name} ({sent}) returns ({received}){body}"
        yield "}"


def _options(options: Message) -> list[str]:
    """Options as `name = value`, in the order of their names."""
    found = []
    for field, value in options.ListFields():
        if field.name in ("map_entry", "uninterpreted_option"):
            continue
        for each in value if field.is_repeated else [value]:
            if field.message_type is not None:
                inner = ", ".join(_options(each)).replace(" = ", ": ")
                found.append(f"{field.name} = {{ {inner} }}")
            elif field.enum_type is not None:
                found.append(f"{field.name} = {field.enum_type.values_by_number[each].name}")
            else:
                found.append(f"{field.name} = {_literal(each)}")
    return sorted(found)


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else str(value)


def _default(field: FieldDescriptorProto) -> list[str]:
    if not field.HasField("default_value"):
        return []
    if field.type == field.TYPE_BYTES:  # escaped already
        return [f'default = "{field.default_value}"']
    is_text = field.type == field.TYPE_STRING
    return [f"default = {_quoted(field.default_value) if is_text else field.default_value}"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _span(first: int, last: int, most: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last >= most else last}"


def _reserved(found: Any, indent: str, *, exclusive: int, most: int, is_quoted: bool) -> Iterator[str]:
    spans = [_span(each.start, each.end - exclusive, most) for each in found.reserved_range]
    names = [_quoted(each) if is_quoted else each for each in found.reserved_name]
    for shown in (spans, names):
        if shown:
            yield f"{indent}reserved {', '.join(shown)};"


def _json_name(name: str) -> str:
    """protoc's own name of a field in JSON."""
    first, *rest = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in rest)
