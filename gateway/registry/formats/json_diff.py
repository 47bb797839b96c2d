"""Which changes of a JSON Schema keep documents valid.

`differences(reader, writer)` is empty if every document that the writer's schema accepts is accepted by the reader's,
as far as that can be shown keyword by keyword; what cannot be shown is a difference. Names of differences are those of
Confluent's registry, and so are two of its concessions: a required property may be new if it has a default, and an
alternative may be added to `oneOf` although it might overlap with another.

    the reader's allOf       each part must accept the writer's schema
    the writer's oneOf, anyOf, list of types    each alternative must be accepted
    the reader's oneOf, anyOf                   one alternative must accept
    the writer's allOf       its parts together, or one of them, must be accepted
    otherwise                keyword by keyword
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import re2

MAX_COMPARISONS: Final = 20_000  # of two places; alternatives within alternatives multiply
ANNOTATIONS: Final = frozenset(
    ("$id", "id", "$schema", "$comment", "$anchor", "$defs", "definitions", "title", "description", "default",
     "examples", "deprecated", "readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType")
)  # fmt: skip
SUMS: Final = ("oneOf", "anyOf")
PROPERTIES: Final = ("additionalProperties", "unevaluatedProperties")
UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
# keyword: the type of the values that it concerns, the name of its differences, and whether a larger number allows more
BOUNDS: Final = {
    "maxLength": ("string", "MAX_LENGTH", True),
    "minLength": ("string", "MIN_LENGTH", False),
    "maximum": ("number", "MAXIMUM", True),
    "minimum": ("number", "MINIMUM", False),
    "exclusiveMaximum": ("number", "EXCLUSIVE_MAXIMUM", True),
    "exclusiveMinimum": ("number", "EXCLUSIVE_MINIMUM", False),
    "maxProperties": ("object", "MAX_PROPERTIES", True),
    "minProperties": ("object", "MIN_PROPERTIES", False),
    "maxItems": ("array", "MAX_ITEMS", True),
    "minItems": ("array", "MIN_ITEMS", False),
    "maxContains": ("array", "MAX_CONTAINS", True),
    "minContains": ("array", "MIN_CONTAINS", False),
}
TYPES: Final = ("object", "array", "string", "number", "boolean", "null")

Json: TypeAlias = Any


class Document:
    """Where a `$ref` leads."""

    node: "Node"

    def resolve(self, ref: str) -> "Node | None":
        raise NotImplementedError


class Node(NamedTuple):
    schema: Json
    document: Document

    def get(self, keyword: str, default: Json = None) -> Json:
        return self.schema.get(keyword, default) if isinstance(self.schema, dict) else default

    def child(self, schema: Json) -> "Node":
        return Node(schema, self.document)

    def children(self, keyword: str) -> "list[Node]":
        found = self.get(keyword)
        return [self.child(each) for each in found] if isinstance(found, list) else []

    def named(self, keyword: str) -> "dict[str, Node]":
        found = self.get(keyword)
        return {name: self.child(each) for name, each in found.items()} if isinstance(found, dict) else {}

    def without(self, *keywords: str) -> "Node":
        return self.child({name: each for name, each in self.schema.items() if name not in keywords})

    @property
    def accepts_all(self) -> bool:
        schema = self.schema
        return schema is True or (isinstance(schema, dict) and not schema.keys() - ANNOTATIONS)


class Comparison:
    """One comparison of two schemas."""

    def __init__(self) -> None:
        self._compared: set[tuple[int, int]] = set()
        self._count = 0

    def differences(self, reader: Node, writer: Node, path: str) -> list[str]:
        reader, writer = _followed(reader), _followed(writer)
        self._count += 1
        if self._count > MAX_COMPARISONS:
            return [f"TOO_COMPLEX at {path}: more than {MAX_COMPARISONS} places would have to be compared"]
        if reader.accepts_all or writer.schema is False or _is_same(reader, writer):
            return []
        if reader.schema is False:
            return [f"SCHEMA_REMOVED at {path}: nothing is accepted any more"]
        pair = id(reader.schema), id(writer.schema)
        is_original = isinstance(reader.schema, dict) and isinstance(writer.schema, dict)
        if is_original and pair in self._compared:
            return []  # within a recursion; its first round decides
        self._compared.add(pair)
        try:
            return self._compare(reader, writer.child({}) if writer.schema is True else writer, path)
        finally:
            self._compared.discard(pair)

    def _compare(self, reader: Node, writer: Node, path: str) -> list[str]:
        if reader.get("allOf"):
            parts = [*reader.children("allOf"), reader.without("allOf")]
            return self._each(parts, writer, path, "PRODUCT_TYPE_EXTENDED")
        alternatives = _alternatives(writer)
        if alternatives is not None:
            found = (self.differences(reader, each, path) for each in alternatives)
            return next((each for each in found if each), [])
        keyword = next((each for each in SUMS if reader.get(each)), None)
        if keyword is not None:
            rest = reader.without(keyword)
            if not any(not self.differences(each, writer, path) for each in reader.children(keyword)):
                return [f"SUM_TYPE_NARROWED at {path}: no alternative of {keyword} accepts what was accepted"]
            return self.differences(rest, writer, path)
        if writer.get("allOf"):
            found = (self.differences(reader, each, path) for each in _products(writer))
            return min(found, key=len)
        return self._keywords(reader, writer, path)

    def _each(self, parts: list[Node], writer: Node, path: str, name: str) -> list[str]:
        found = [each for part in parts for each in self.differences(part, writer, path)]
        return [f"{name} at {path}", *found] if found else []

    # -- keyword by keyword --------------------------------------------------------------------------------------------

    def _keywords(self, reader: Node, writer: Node, path: str) -> list[str]:
        found = list(_type_differences(reader, writer, path))
        if found:
            return found
        written = _types(writer)
        found += _value_differences(reader, writer, path)
        found += _bound_differences(reader, writer, written, path)
        if "object" in written:
            found += self._required(reader, writer, path)
            found += self._properties(reader, writer, path)
            found += self._dependencies(reader, writer, path)
            found += self._same_or_wider(reader, writer, path, "propertyNames")
        if "array" in written:
            found += self._items(reader, writer, path)
            found += self._same_or_wider(reader, writer, path, "contains")
        if reader.get("not") is not None:
            denied = writer.get("not")
            if denied is None or self.differences(writer.child(denied), reader.child(reader.get("not")), f"{path}/not"):
                found.append(f"NOT_TYPE_EXTENDED at {path}/not")
        for keyword in ("if", "then", "else", "$dynamicRef", "$recursiveRef"):
            if reader.get(keyword) is not None and reader.get(keyword) != writer.get(keyword):
                found.append(f"COMBINED_TYPE_CHANGED at {path}/{keyword}")
        return found

    def _same_or_wider(self, reader: Node, writer: Node, path: str, keyword: str) -> Iterator[str]:
        if reader.get(keyword) is not None:
            written = writer.child(writer.get(keyword, True))
            yield from self.differences(reader.child(reader.get(keyword)), written, f"{path}/{keyword}")

    def _required(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        written, properties = writer.get("required") or (), reader.named("properties")
        for name in _strings(reader.get("required")):
            has_default = name in properties and _followed(properties[name]).get("default") is not None
            if name not in written and not has_default:
                yield f"REQUIRED_ATTRIBUTE_ADDED at {path}/required/{name}"

    def _properties(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        readers, writers = reader.named("properties"), writer.named("properties")
        for name, each in readers.items():
            place = f"{path}/properties/{name}"
            written = writers.get(name) or _extra(writer, name)
            found = self.differences(each, written, place)
            if found and name not in writers:
                is_open = written.accepts_all
                kind = "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL" if is_open else NOT_COVERED
                found = [f"{kind} at {place}"]
            yield from found
        for name, each in writers.items():
            if name in readers:
                continue
            place = f"{path}/properties/{name}"
            extra = _extra(reader, name)
            if self.differences(extra, each, place):
                is_closed = extra.schema is False
                yield f"{'PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL' if is_closed else REMOVED_NOT_COVERED} at {place}"
        yield from self._open_properties(reader, writer, path)

    def _open_properties(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        """Properties that are known by a pattern, or not at all."""
        additional, written = _others(reader, PROPERTIES), _others(writer, PROPERTIES)
        readers, writers = reader.named("patternProperties"), writer.named("patternProperties")
        for pattern, each in readers.items():
            yield from self.differences(each, writers.get(pattern, written), f"{path}/patternProperties/{pattern}")
        for pattern, each in writers.items():
            if pattern not in readers:
                yield from self.differences(additional, each, f"{path}/patternProperties/{pattern}")
        if self.differences(additional, written, f"{path}/additionalProperties"):
            kind = "ADDITIONAL_PROPERTIES_REMOVED" if additional.schema is False else "ADDITIONAL_PROPERTIES_NARROWED"
            yield f"{kind} at {path}/additionalProperties"

    def _dependencies(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            written = writer.get(keyword) or {}
            for name, each in (reader.get(keyword) or {}).items():
                place = f"{path}/{keyword}/{name}"
                if name not in written:
                    yield f"DEPENDENCY_{'ARRAY' if isinstance(each, list) else 'SCHEMA'}_ADDED at {place}"
                elif isinstance(each, list):
                    if not isinstance(written[name], list) or set(each) - set(written[name]):
                        yield f"DEPENDENCY_ARRAY_CHANGED at {place}"
                elif isinstance(written[name], list):
                    yield f"DEPENDENCY_SCHEMA_ADDED at {place}"
                else:
                    yield from self.differences(reader.child(each), writer.child(written[name]), place)

    def _items(self, reader: Node, writer: Node, path: str) -> Iterator[str]:
        readers, reader_rest = _sequence(reader)
        writers, writer_rest = _sequence(writer)
        for index in range(max(len(readers), len(writers))):
            read = readers[index] if index < len(readers) else reader_rest
            written = writers[index] if index < len(writers) else writer_rest
            yield from self.differences(read, written, f"{path}/items/{index}")
        if writer_rest.accepts_all and reader_rest.schema is False:
            yield f"ADDITIONAL_ITEMS_REMOVED at {path}/items"
        else:
            yield from self.differences(reader_rest, writer_rest, f"{path}/items")


NOT_COVERED: Final = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
REMOVED_NOT_COVERED: Final = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"


def _followed(node: Node) -> Node:
    """The schema that a `$ref` names; other keywords beside it count as they do in the newest draft."""
    seen: set[int] = set()
    while isinstance(node.schema, dict) and isinstance(node.schema.get("$ref"), str) and id(node.schema) not in seen:
        seen.add(id(node.schema))
        target = node.document.resolve(node.schema["$ref"])
        if target is None:
            return node
        rest = {name: each for name, each in node.schema.items() if name != "$ref" and name not in ANNOTATIONS}
        if rest:
            return Node({"allOf": [target.schema, rest]}, target.document) if target.document is node.document else node
        node = target
    return node


def _is_same(reader: Node, writer: Node) -> bool:
    """Equal texts mean equal schemas, except with a `$ref`, whose target may have changed."""
    text = repr(reader.schema)  # 1 and true are equal in Python, and no such thing here
    return text == repr(writer.schema) and "Ref'" not in text and "$ref'" not in text


def _alternatives(writer: Node) -> list[Node] | None:
    """The schemas of which a document met one, if there are several."""
    for keyword in SUMS:
        if writer.get(keyword):
            rest = writer.without(keyword, *UNEVALUATED)  # alternatives evaluate properties, too
            has_rest = not rest.accepts_all
            return [
                writer.child({"allOf": [rest.schema, each.schema]}) if has_rest else each
                for each in writer.children(keyword)
            ]
    types = writer.get("type")
    if isinstance(types, list) and len(types) > 1:
        return [writer.child({**writer.schema, "type": each}) for each in types]
    return None


def _products(writer: Node) -> list[Node]:
    """Schemas that accept at least what an allOf accepts: its parts as one schema if possible, and each of them."""
    parts = [_followed(each) for each in (*writer.children("allOf"), writer.without("allOf", *UNEVALUATED))]
    merged: dict[str, Json] = {}
    for part in parts:
        if isinstance(part.schema, dict) and part.document is writer.document:
            for name, each in part.schema.items():
                merged[name] = {**merged[name], **each} if name == "properties" and name in merged else each
    usable = [part for part in parts if not part.accepts_all]
    return [writer.child(merged), *usable] if "allOf" not in merged else (usable or [writer.child({})])


def _extra(node: Node, name: str) -> Node:
    """What holds for a property that has no schema of its own."""
    found = [each for pattern, each in node.named("patternProperties").items() if _matches(pattern, name)]
    if len(found) > 1:
        return node.child({"allOf": [each.schema for each in found]})
    return found[0] if found else _others(node, PROPERTIES)


def _matches(pattern: str, name: str) -> bool:
    """By RE2, which no pattern can keep busy; one that it does not know matches nothing."""
    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def _sequence(node: Node) -> tuple[list[Node], Node]:
    """The schemas of the first items, and that of all others."""
    items = node.get("items", True)
    if node.get("prefixItems") is not None:
        return node.children("prefixItems"), _others(node, ("items", "unevaluatedItems"))
    if isinstance(items, list):
        return node.children("items"), _others(node, ("additionalItems", "unevaluatedItems"))
    return [], _others(node, ("items", "unevaluatedItems"))


def _others(node: Node, keywords: tuple[str, ...]) -> Node:
    """What holds for properties, or items, that no other keyword names. A reader has no combinations here any more, so
    what it leaves unevaluated is what it has not named.
    """
    return node.child(next((node.schema[each] for each in keywords if each in node.schema), True))


def _strings(found: Json) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


# -- differences of values ---------------------------------------------------------------------------------------------


def _types(node: Node) -> set[str]:
    """The types that are allowed; an integer is a number here."""
    found = node.get("type")
    if found is None:
        values = _values(node)
        return set(TYPES) if values is None else {_type_of(each) for each in values}
    names = found if isinstance(found, list) else [found]
    return {"number" if name == "integer" else str(name) for name in names}


def _type_of(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    kinds: tuple[tuple[type, str], ...] = ((str, "string"), (dict, "object"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "number")


def _type_differences(reader: Node, writer: Node, path: str) -> Iterator[str]:
    if reader.get("type") is None:
        return
    read, written = _types(reader), _types(writer)
    if written - read:
        yield f"{'TYPE_NARROWED' if read & written else 'TYPE_CHANGED'} at {path}: to {_shown(reader.get('type'))}"
    elif "number" in written and not _is_integer(writer) and _is_integer(reader):
        yield f"TYPE_NARROWED at {path}: to integer"


def _is_integer(node: Node) -> bool:
    found = node.get("type")
    names = found if isinstance(found, list) else [found]
    if "integer" in names and "number" not in names:
        return True
    values = _values(node)
    return values is not None and all(isinstance(each, int) for each in values if _type_of(each) == "number")


def _shown(types: Json) -> str:
    return ", ".join(types) if isinstance(types, list) else str(types)


def _values(node: Node) -> list[Json] | None:
    """The values of enum or const."""
    if isinstance(node.schema, dict) and "const" in node.schema:
        return [node.schema["const"]]
    found = node.get("enum")
    return found if isinstance(found, list) else None


def _value_differences(reader: Node, writer: Node, path: str) -> Iterator[str]:
    read, written = _values(reader), _values(writer)
    if read is None:
        return
    keyword = "const" if "const" in reader.schema else "enum"
    if written is None:
        yield f"ENUM_ARRAY_ADDED at {path}/{keyword}"
    elif any(all(_differ(one, other) for other in read) for one in written):
        narrowed = any(not _differ(one, other) for one in written for other in read)
        yield f"{'ENUM_ARRAY_NARROWED' if narrowed else 'ENUM_ARRAY_CHANGED'} at {path}/{keyword}"


def _differ(one: Json, other: Json) -> bool:
    return _type_of(one) != _type_of(other) or bool(one != other)


def _bound_differences(reader: Node, writer: Node, written: set[str], path: str) -> Iterator[str]:
    for keyword, (kind, name, is_upper) in BOUNDS.items():
        limit, earlier = reader.get(keyword), writer.get(keyword)
        if limit is None or kind not in written or limit == earlier:
            continue
        if earlier is None or isinstance(limit, bool) or isinstance(earlier, bool):
            if limit is not False and earlier is not True:  # booleans: draft 4
                yield f"{name}_ADDED at {path}/{keyword}"
        elif (limit < earlier) if is_upper else (limit > earlier):
            yield f"{name}_{'DECREASED' if is_upper else 'INCREASED'} at {path}/{keyword}"
    factor, earlier = reader.get("multipleOf"), writer.get("multipleOf")
    if factor is not None and "number" in written and factor != earlier:
        if earlier is None:
            yield f"MULTIPLE_OF_ADDED at {path}/multipleOf"
        elif earlier % factor:
            yield f"MULTIPLE_OF_CHANGED at {path}/multipleOf"
    pattern = reader.get("pattern")
    if pattern is not None and "string" in written and pattern != writer.get("pattern"):
        yield f"PATTERN_{'ADDED' if writer.get('pattern') is None else 'CHANGED'} at {path}/pattern"
    if reader.get("uniqueItems") is True and "array" in written and writer.get("uniqueItems") is not True:
        yield f"UNIQUE_ITEMS_ADDED at {path}/uniqueItems"
