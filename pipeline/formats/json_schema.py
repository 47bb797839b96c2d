"""A JSON Schema as the fields of a Spark schema: `decode.format = "json"` with a registry.

    {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}   →   `id` BIGINT NOT NULL

What has no single type becomes VARIANT. The schema gives columns and which of them must be there; its other rules, such
as `minimum`, are not checked: write them as rules of `[validate]`.
"""

import json
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidPipeline

MAX_DEPTH = 32
SCALARS = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}
ANYTHING = "VARIANT"
KEY = "decode.registry"


def to_ddl(text: str) -> str:
    """The fields of the schema; `InvalidPipeline` if it is not one of an object."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise InvalidPipeline(f"{KEY}: the schema is not JSON: {error}.") from None
    found = _Translation(schema)
    top = found.resolved(schema, 0)
    if not isinstance(top, Mapping) or not isinstance(top.get("properties"), Mapping) or not top["properties"]:
        raise InvalidPipeline(f"{KEY}: must be a JSON Schema of an object with properties.")
    return found.fields(top, 0, needed=_texts(top.get("required")))


class _Translation:
    def __init__(self, root: Any) -> None:
        self._root = root

    def fields(self, schema: Mapping[str, Any], depth: int, *, needed: frozenset[str] = frozenset()) -> str:
        separator = " " if depth == 0 else ": "
        found = []
        for name, kind in schema["properties"].items():
            if "`" in name:
                raise InvalidPipeline(f"{KEY}: the property '{name}' cannot be the name of a column.")
            found.append(f"`{name}`{separator}{self.type(kind, depth + 1)}{' NOT NULL' if name in needed else ''}")
        return ", ".join(found)

    def type(self, schema: Any, depth: int) -> str:
        schema = self.resolved(schema, depth)
        if not isinstance(schema, Mapping):
            return ANYTHING
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [one for one in kind if one != "null"]
            kind = kinds[0] if len(kinds) == 1 else None
        if kind == "string":
            return FORMATS.get(str(schema.get("format")), SCALARS[kind])
        if kind == "array":
            return f"ARRAY<{self.type(schema['items'], depth + 1)}>" if "items" in schema else f"ARRAY<{ANYTHING}>"
        if kind == "object" and schema.get("properties"):
            return f"STRUCT<{self.fields(schema, depth)}>"
        if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
            return f"MAP<STRING, {self.type(schema['additionalProperties'], depth + 1)}>"
        return SCALARS.get(str(kind), ANYTHING)

    def resolved(self, schema: Any, depth: int) -> Any:
        """The schema behind references, and that beside `null`."""
        for _ in range(MAX_DEPTH - depth):
            if not isinstance(schema, Mapping):
                return schema
            choices = [one for key in ("oneOf", "anyOf", "allOf") for one in schema.get(key, ())]
            choices = [one for one in choices if one != {"type": "null"}]
            if "$ref" in schema:
                schema = self._target(str(schema["$ref"]))
            elif len(choices) == 1 and "type" not in schema:
                schema = choices[0]
            else:
                return schema
        raise InvalidPipeline(f"{KEY}: the schema is nested deeper than {MAX_DEPTH} levels, or holds itself.")

    def _target(self, reference: str) -> Any:
        found = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is None or not reference.startswith("#"):
            raise InvalidPipeline(f"{KEY}: the reference {reference} does not point into the schema.")
        return found


def _texts(given: Any) -> frozenset[str]:
    return frozenset(map(str, given)) if isinstance(given, list) else frozenset()
