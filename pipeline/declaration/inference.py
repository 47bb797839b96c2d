"""Infers a schema from sample records in JSON: the start of `trioka pipeline new`.

A field that every sample has is NOT NULL. Numbers with a fraction are DOUBLE, texts that all read as times are
TIMESTAMP. Samples that contradict each other make a STRING.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

MAX_DEPTH = 8
MAX_FIELDS = 500


class NotJson(Exception):
    """Too few of the samples are JSON objects; one clause."""


def infer(values: Sequence[bytes | None]) -> str:
    """The schema of the samples as DDL, one field in a line."""
    records = [found for value in values if isinstance(found := _parsed(value), dict)]
    if not records:
        raise NotJson("no sample is a JSON object")
    if len(records) * 2 < len(values):
        raise NotJson(f"only {len(records)} of {len(values)} samples are JSON objects")
    return ",\n".join(_fields(records, 0, separator=" "))


def _parsed(value: bytes | None) -> Any:
    try:
        return None if value is None else json.loads(value)
    except ValueError:
        return None


def _fields(records: Sequence[dict[str, Any]], depth: int, *, separator: str) -> list[str]:
    names: dict[str, None] = {}
    for record in records:
        names |= dict.fromkeys(record)
    found = []
    for name in list(names)[:MAX_FIELDS]:
        values = [record[name] for record in records if record.get(name) is not None]
        quoted = name if name.isidentifier() and name.isascii() else f"`{name}`"
        needed = " NOT NULL" if depth == 0 and len(values) == len(records) else ""
        found.append(f"{quoted}{separator}{_type(values, depth)}{needed}")
    return found


def _type(values: Sequence[Any], depth: int) -> str:
    kinds = {_kind(value) for value in values}
    if kinds <= {"BIGINT", "DOUBLE"} and kinds:
        return "DOUBLE" if "DOUBLE" in kinds else "BIGINT"
    if len(kinds) != 1 or kinds == {"NUMERAL"} or depth >= MAX_DEPTH:
        return "STRING"
    (kind,) = kinds
    if kind == "STRING" and all(_is_time(value) for value in values):
        return "TIMESTAMP"
    if kind == "ARRAY":
        return f"ARRAY<{_type([one for value in values for one in value if one is not None], depth + 1)}>"
    if kind == "STRUCT":
        inner = _fields(values, depth + 1, separator=": ")
        return f"STRUCT<{', '.join(inner)}>" if inner else "STRING"
    return kind


def _kind(value: Any) -> str:
    kinds: Iterable[tuple[type, str]] = (
        (bool, "BOOLEAN"),
        (int, "BIGINT"),
        (float, "DOUBLE"),
        (str, "STRING"),
        (list, "ARRAY"),
        (dict, "STRUCT"),
    )
    kind = next(name for one, name in kinds if isinstance(value, one))
    return "NUMERAL" if kind == "BIGINT" and not -(1 << 63) <= value < 1 << 63 else kind


def _is_time(text: str) -> bool:
    if len(text) < len("2026-11-16T08") or text[4:5] != "-":
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
