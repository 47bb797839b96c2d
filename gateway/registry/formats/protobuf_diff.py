"""Which changes of a Protobuf schema keep data readable.

Fields are known by their number on the wire, so names do not matter. A reader must still have every message that was
written, no field may change to a type with another form on the wire, and a oneof must not begin to hide fields that
were independent. A difference is named as in Confluent's registry.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

# Types of one group have the same form on the wire, and a value that fits both is read as it was written.
WIRE_GROUPS: Final = (
    (Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_BOOL, Field.TYPE_ENUM),
    (Field.TYPE_SINT32, Field.TYPE_SINT64),
    (Field.TYPE_STRING, Field.TYPE_BYTES),
    (Field.TYPE_FIXED32, Field.TYPE_SFIXED32),
    (Field.TYPE_FIXED64, Field.TYPE_SFIXED64),
)
NAMED: Final = (Field.TYPE_MESSAGE, Field.TYPE_GROUP, Field.TYPE_ENUM)
LENGTH_DELIMITED: Final = (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE)


class Types:
    """Messages of a file and its imports, by their full name, such as .shop.Order."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self._messages: dict[str, DescriptorProto] = {}
        self._packages: dict[str, str] = {}
        for file in files:
            package = f".{file.package}" if file.package else ""
            self._add(package, package, file.message_type)

    def _add(self, package: str, prefix: str, messages: Iterable[DescriptorProto]) -> None:
        for message in messages:
            name = f"{prefix}.{message.name}"
            self._messages[name], self._packages[name] = message, package
            self._add(package, name, message.nested_type)

    def message(self, name: str) -> DescriptorProto | None:
        return self._messages.get(name)

    def local(self, name: str) -> str:
        """The name without its package: an imported message may move to another one."""
        return name.removeprefix(self._packages.get(name, ""))


def differences(
    written: FileDescriptorProto, written_types: Types, reading: FileDescriptorProto, reading_types: Types
) -> list[str]:
    """What keeps a reader of `reading` from reading data of `written`, as sentences that begin with a name."""
    if written.package != reading.package:
        return [f"PACKAGE_CHANGED at /: from '{written.package}' to '{reading.package}'"]
    prefix = f".{written.package}" if written.package else ""
    comparison = _Comparison(written_types, reading_types)
    return list(comparison.messages(prefix, written.message_type, reading.message_type))


class _Comparison:
    def __init__(self, written: Types, reading: Types) -> None:
        self._written, self._reading = written, reading
        self._compared: set[str] = set()

    def messages(
        self, prefix: str, written: Iterable[DescriptorProto], reading: Iterable[DescriptorProto]
    ) -> Iterator[str]:
        by_name = {each.name: each for each in reading}
        for old in written:
            name = f"{prefix}.{old.name}"
            new = by_name.get(old.name)
            if new is None:
                if not old.options.map_entry:
                    yield f"MESSAGE_REMOVED at {_path(name)}"
            else:
                yield from self.message(name, old, new)

    def message(self, name: str, old: DescriptorProto, new: DescriptorProto) -> Iterator[str]:
        if name in self._compared:
            return
        self._compared.add(name)
        before, after = _by_number(old), _by_number(new)
        for number, field in sorted(before.items()):
            place = f"{_path(name)}/{number}"
            if number in after:
                yield from self._field(place, field, after[number])
            elif field.label == Field.LABEL_REQUIRED:
                yield f"REQUIRED_FIELD_REMOVED at {place}: {field.name}"
            elif (oneof := _oneof(old, field)) is not None and _has_oneof(old, oneof, new):
                yield f"ONEOF_FIELD_REMOVED at {place}: {field.name}"
        for number, field in sorted(after.items()):
            is_new = number not in before or before[number].label != Field.LABEL_REQUIRED
            if is_new and field.label == Field.LABEL_REQUIRED:
                yield f"REQUIRED_FIELD_ADDED at {_path(name)}/{number}: {field.name}"
        yield from _oneof_differences(name, old, new)
        yield from self.messages(name, old.nested_type, new.nested_type)

    def _field(self, place: str, old: Field, new: Field) -> Iterator[str]:
        if _wire_group(old) != _wire_group(new):
            is_scalar = old.type not in NAMED and new.type not in NAMED
            yield f"{'FIELD_SCALAR_KIND_CHANGED' if is_scalar else 'FIELD_KIND_CHANGED'} at {place}: {old.name}"
            return
        is_repeated = old.label == Field.LABEL_REPEATED
        if is_repeated != (new.label == Field.LABEL_REPEATED) and old.type not in LENGTH_DELIMITED:
            yield f"FIELD_NUMERIC_LABEL_CHANGED at {place}: {old.name}"
        if old.type != new.type or old.type not in (Field.TYPE_MESSAGE, Field.TYPE_GROUP):
            return
        before, after = self._written.message(old.type_name), self._reading.message(new.type_name)
        is_map = before is not None and after is not None and before.options.map_entry and after.options.map_entry
        if not is_map and self._written.local(old.type_name) != self._reading.local(new.type_name):
            yield f"FIELD_NAMED_TYPE_CHANGED at {place}: from {old.type_name[1:]} to {new.type_name[1:]}"
        elif before is not None and after is not None:
            yield from self.message(old.type_name, before, after)


def _oneof_differences(name: str, old: DescriptorProto, new: DescriptorProto) -> Iterator[str]:
    """Fields that exclude each other now and did not before: of two that were written, one would be lost.

    A oneof may be renamed, and one that was independent may become the first of a oneof.
    """
    before = _by_number(old)
    origins: dict[str, list[tuple[str | None, int]]] = {}
    for field in new.field:
        oneof, earlier = _oneof(new, field), before.get(field.number)
        if oneof is not None and earlier is not None:
            origin = _oneof(old, earlier)
            origins.setdefault(oneof, []).append((origin, 0 if origin is not None else field.number))
    for oneof, found in origins.items():
        if len(set(found)) > 1:
            is_independent = all(origin is None for origin, _ in found)
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if is_independent else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield f"{kind} at {_path(name)}/{oneof}"


def _has_oneof(old: DescriptorProto, oneof: str, new: DescriptorProto) -> bool:
    """Whether a oneof still exists, under its name or another one."""
    after = _by_number(new)
    members = (each.number for each in old.field if _oneof(old, each) == oneof)
    still = (after[number] for number in members if number in after)
    return oneof in {_oneof(new, each) for each in new.field} or any(_oneof(new, each) is not None for each in still)


def _by_number(message: DescriptorProto) -> Mapping[int, Field]:
    return {each.number: each for each in message.field}


def _oneof(message: DescriptorProto, field: Field) -> str | None:
    """The name of the oneof; a proto3 `optional` has one that nobody wrote."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _wire_group(field: Field) -> int:
    for index, group in enumerate(WIRE_GROUPS):
        if field.type in group:
            return -index - 1
    return int(field.type)


def _path(name: str) -> str:
    return "#" + name.replace(".", "/")
