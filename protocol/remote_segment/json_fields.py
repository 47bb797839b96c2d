"""Reads fields of JSON objects strictly: each has one type, limits, and is there once; none is left over."""

import json
from collections.abc import Sequence
from typing import Final

from ..errors import ProtocolError

MAX_TEXT: Final = 1024


class InvalidManifest(ProtocolError):
    """A manifest that is damaged or contradicts itself."""


class UnsupportedManifest(ProtocolError):
    """A manifest of a segment that trioka does not read: transformed by the plugin, or written by a later version."""


class Fields:
    """The fields of one object. Each reader takes its field out; `end` refuses what was not taken."""

    __slots__ = ("_fields", "_path")

    def __init__(self, fields: dict[str, object], path: str) -> None:
        self._fields = fields
        self._path = path

    def has(self, name: str) -> bool:
        return name in self._fields

    def names(self) -> Sequence[str]:
        return tuple(self._fields)

    def end(self) -> None:
        if self._fields:
            raise UnsupportedManifest(f"{self._path}{next(iter(self._fields))!r} is not a field that this reader knows")

    def text(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise self._invalid(name, value, f"text of up to {MAX_TEXT} characters")
        return value

    def texts(self, name: str) -> list[str]:
        value = self._take(name)
        texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(texts) != len(value):
            raise self._invalid(name, value, "a list of texts")
        return texts

    def boolean(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            raise self._invalid(name, value, "true or false")
        return value

    def optional_boolean(self, name: str) -> bool | None:
        return self.boolean(name) if name in self._fields else None

    def integer(self, name: str, low: int, high: int) -> int:
        value = self._take(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._invalid(name, value, f"a number from {low} to {high}")
        return value

    def nullable_integer(self, name: str, low: int, high: int) -> int | None:
        if name in self._fields and self._fields[name] is None:
            del self._fields[name]
            return None
        return self.integer(name, low, high)

    def fields(self, name: str) -> "Fields":
        value = self._take(name)
        if not isinstance(value, dict):
            raise self._invalid(name, value, "an object")
        return Fields(dict(value), f"{self._path}{name}.")

    def nullable_fields(self, name: str) -> "Fields | None":
        if name in self._fields and self._fields[name] is None:
            del self._fields[name]
            return None
        return self.fields(name)

    def optional_fields(self, name: str) -> "Fields | None":
        return self.fields(name) if name in self._fields else None

    def _take(self, name: str) -> object:
        if name not in self._fields:
            raise InvalidManifest(f"{self._path}{name} is missing")
        return self._fields.pop(name)

    def _invalid(self, name: str, value: object, expected: str) -> InvalidManifest:
        return InvalidManifest(f"{self._path}{name} is {str(value)[:80]!r}, not {expected}")


def parse_object(data: bytes) -> Fields:
    """The object that `data` is. InvalidManifest for anything else; the caller has limited its size."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except InvalidManifest:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidManifest(f"the manifest is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidManifest("the manifest is not a JSON object")
    return Fields(value, "")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidManifest("the manifest has a field twice")
    return fields


def _refuse_constant(name: str) -> object:
    raise InvalidManifest(f"the manifest has the number {name}")
