"""JSON Schema, of the drafts 4 to 2020-12; a schema without `$schema` is one of draft 7.

The library jsonschema says whether a schema is one; `json_diff.py` decides which schemas read what others accepted. A
`$ref` must lead to a place of the same schema or of a reference: nothing is loaded from elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for

from ..errors import InvalidSchema
from .json_diff import Comparison, Document, Node
from .parsed import MAX_MESSAGES, Dependency, ParsedSchema, dump_json, load_json

# Keywords whose values are schemas, lists of schemas, or schemas by name.
ONE: Final = (
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
LIST: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
BY_NAME: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")


class JsonSchema(ParsedSchema):
    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        root = load_json(text)
        _check(root)
        documents: dict[str, Document] = {}
        for each in dependencies:
            documents[each.name] = SchemaDocument(load_json(each.text), documents)
        self.document = SchemaDocument(root, documents)
        for ref in self.document.references():
            if self.document.resolve(ref) is None:
                raise InvalidSchema(
                    f"The schema refers to '{ref[:200]}', which is neither in it nor in its references."
                )
        try:
            self.text = self.identity = dump_json(root)
        except ValueError as error:
            raise InvalidSchema(f"The schema is not valid JSON: {error}") from None
        self.root = root

    def normalized(self) -> str:
        return dump_json(_sorted(self.root))

    def unreadable(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, JsonSchema)
        comparison = Comparison()
        return comparison.differences(self.document.node, writer.document.node, "#")[:MAX_MESSAGES]


def _check(root: Any) -> None:
    if not isinstance(root, dict | bool):
        raise InvalidSchema("The schema is not a valid JSON Schema: it must be an object, or true or false.")
    dialect = root.get("$schema") if isinstance(root, dict) else None
    if dialect is not None and not isinstance(dialect, str):
        raise InvalidSchema("The schema is not a valid JSON Schema: $schema must be a string.")
    try:
        validator_for(root, default=Draft7Validator).check_schema(root)
    except SchemaError as error:
        place = "/".join(str(each) for each in error.absolute_path)
        raise InvalidSchema(f"The schema is not a valid JSON Schema: at #/{place}: {error.message[:500]}") from None


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


class SchemaDocument(Document):
    """A schema with the places that a `$ref` in it may name."""

    def __init__(self, root: Any, others: Mapping[str, Document]) -> None:
        self.node = Node(root, self)
        self._others = dict(others)
        self._root = root
        self._base = _identifier(root)
        self._places: dict[str, Any] = {}
        for schema in _schemas(root):
            identifier = _identifier(schema)
            if identifier:
                self._places.setdefault(urljoin(self._base, identifier), schema)
            anchor = schema.get("$anchor")
            if isinstance(anchor, str):
                self._places.setdefault(f"#{anchor}", schema)

    def references(self) -> Iterator[str]:
        for schema in _schemas(self._root):
            if isinstance(schema.get("$ref"), str):
                yield schema["$ref"]

    def resolve(self, ref: str) -> Node | None:
        address, fragment = urldefrag(ref)
        if not address or address == self._base:
            return self._at(self._root, fragment)
        absolute = urljoin(self._base, address)
        for name in (ref, address, absolute):
            if name in self._others:
                return self._others[name].resolve(f"#{fragment}")
            if name in self._places:
                return self._at(self._places[name], "" if name == ref else fragment)
        return None

    def _at(self, schema: Any, fragment: str) -> Node | None:
        """The place that a JSON pointer, or an anchor, names."""
        if fragment and not fragment.startswith("/"):
            found = self._places.get(f"#{fragment}", self._places.get(urljoin(self._base, f"#{fragment}")))
            return None if found is None else Node(found, self)
        for part in fragment.split("/")[1:]:
            step = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and step in schema:
                schema = schema[step]
            elif isinstance(schema, list) and step.isdecimal() and int(step) < len(schema):
                schema = schema[int(step)]
            else:
                return None
        return Node(schema, self) if isinstance(schema, dict | bool) else None


def _identifier(schema: Any) -> str:
    found = schema.get("$id", schema.get("id", "")) if isinstance(schema, dict) else ""
    return found if isinstance(found, str) else ""


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and all in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in ONE:
        yield from _schemas(schema.get(keyword))
    for keyword in LIST:
        for each in schema[keyword] if isinstance(schema.get(keyword), list) else ():
            yield from _schemas(each)
    for keyword in BY_NAME:
        for each in schema[keyword].values() if isinstance(schema.get(keyword), dict) else ():
            yield from _schemas(each)
