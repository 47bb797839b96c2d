"""Avro. The library of the Avro project parses schemas and decides whether one reads what another wrote."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from ..errors import InvalidSchema
from .parsed import MAX_MESSAGES, Dependency, ParsedSchema, dump_json, load_json

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED: Final = ("record", "error", "enum", "fixed")
# In the order of Avro's own output; other attributes of a named type follow, then its aliases.
ATTRIBUTES: Final = {
    "record": ("doc", "fields"),
    "error": ("doc", "fields"),
    "enum": ("doc", "symbols", "default"),
    "fixed": ("doc", "size"),
    "array": ("items",),
    "map": ("values",),
}
FIELD: Final = ("name", "type", "doc", "default", "order", "aliases")
WITHOUT_MEANING: Final = ("doc", "aliases")


class AvroSchema(ParsedSchema):
    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        names = Names()
        try:
            for each in dependencies:
                make_avsc_object(load_json(each.text), names)
            found = load_json(text)
            self.schema: Schema = make_avsc_object(found, names)
            self.text = self.identity = dump_json(canonical(found, ""))
        except AvroException as error:
            raise InvalidSchema(f"The schema is not a valid Avro schema: {error}") from None
        except (TypeError, AttributeError, KeyError, ValueError) as error:  # of a text whose parts have other types
            raise InvalidSchema(f"The schema is not a valid Avro schema: {type(error).__name__}: {error}") from None

    def normalized(self) -> str:
        return dump_json(canonical(json.loads(self.text), "", is_sorted=True))

    def unreadable(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, AvroSchema)
        result = ReaderWriterCompatibilityChecker().get_compatibility(self.schema, writer.schema)
        if result.compatibility == SchemaCompatibilityType.compatible:
            return []
        places, kinds = sorted(result.locations), [each.name.upper() for each in result.incompatibilities]
        found = [f"{', '.join(sorted(set(kinds)))} at {', '.join(places) or '/'}"] if kinds else []
        return [*found, *sorted(result.messages)][:MAX_MESSAGES] or ["INCOMPATIBLE at /"]


def canonical(schema: Any, namespace: str, *, is_sorted: bool = False) -> Any:
    """The schema as Avro's own library writes it: attributes in its order, no space, no repeated namespaces.

    `is_sorted` also sorts the attributes that Avro does not know.
    """
    if isinstance(schema, str):
        return schema.removeprefix(f"{namespace}.") if _is_direct(schema, namespace) else schema
    if isinstance(schema, Sequence):
        return [canonical(each, namespace, is_sorted=is_sorted) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kind = schema["type"]
    if not isinstance(kind, str):
        return canonical(kind, namespace, is_sorted=is_sorted)
    if kind not in ATTRIBUTES:
        extra = _others(schema, ("type",), is_sorted)
        return {"type": kind, **extra} if extra else canonical(kind, namespace)
    return _canonical_type(schema, kind, namespace, is_sorted)


def _is_direct(name: str, namespace: str) -> bool:
    return bool(namespace) and name.rpartition(".")[0] == namespace and name.rpartition(".")[2] not in PRIMITIVES


def _canonical_type(schema: Mapping[str, Any], kind: str, namespace: str, is_sorted: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"type": kind}
    if kind in NAMED:
        full = str(schema["name"])
        inside, _, name = full.rpartition(".")
        inside = inside if "." in full else str(schema.get("namespace", namespace) or "")
        made["name"] = name
        if inside != namespace:
            made["namespace"] = inside
        namespace = inside
    for attribute in ATTRIBUTES[kind]:
        if attribute not in schema:
            continue
        value = schema[attribute]
        if attribute == "fields":
            value = [_canonical_field(each, namespace, is_sorted) for each in value]
        elif attribute in ("items", "values"):
            value = canonical(value, namespace, is_sorted=is_sorted)
        made[attribute] = value
    made |= _others(schema, ("type", "name", "namespace", "aliases", *ATTRIBUTES[kind]), is_sorted)
    if schema.get("aliases"):
        made["aliases"] = schema["aliases"]
    return made


def _canonical_field(field: Mapping[str, Any], namespace: str, is_sorted: bool) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for attribute in FIELD:
        if attribute not in field or (attribute == "order" and field["order"] == "ascending"):
            continue
        value = field[attribute]
        made[attribute] = canonical(value, namespace, is_sorted=is_sorted) if attribute == "type" else value
    return made | _others(field, FIELD, is_sorted)


def _others(schema: Mapping[str, Any], known: Sequence[str], is_sorted: bool) -> dict[str, Any]:
    names = [each for each in schema if each not in known]
    return {each: schema[each] for each in (sorted(names) if is_sorted else names)}
