"""Whether JSON follows a JSON Schema, decided in bounded time.

The library jsonschema matches patterns with Python's `re`, which takes exponential time for some of them and holds the
interpreter meanwhile, so that one value could stop the gateway. Here re2 matches patterns, in linear time. References
that multiply (each of thirty schemas refers twice to the next one) end at a time limit.

The library picks the class of a validator by `$schema` again wherever a schema has one, and would leave these keywords:
so a `$schema` counts at the root only.
"""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import re2
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import Draft7Validator, extend, validator_for
from referencing import Registry
from referencing.jsonschema import DRAFT7

from ..registry.service import SchemaContent

LIMIT_S: Final = 2.0  # of the validation of one value
_limit: Final = threading.local()


class UnsupportedSchema(Exception):
    """A schema that cannot be validated against here. The message is a clause."""


class TooSlow(Exception):
    """A value took more than `LIMIT_S`."""


def validator_of(content: SchemaContent) -> Any:
    """A validator for `first_error`. Raises UnsupportedSchema."""
    schema = json.loads(content.text)
    base: Any = validator_for(schema, default=Draft7Validator)
    known: Any = Registry()
    roots = [schema]
    for each in content.dependencies:
        root = json.loads(each.text)
        roots.append(_without_dialect(root))
        known = known.with_resource(each.name, DRAFT7.create_resource(roots[-1]))
    roots[0] = _without_dialect(schema)
    _check(roots)
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "$ref": _timed(base.VALIDATORS["$ref"]),
    }
    return extend(base, keywords)(roots[0], registry=known)


def first_error(validator: Any, value: Any) -> ValidationError | None:
    """Raises TooSlow, and what the library raises for references without a target."""
    _limit.deadline = time.monotonic() + LIMIT_S
    found: ValidationError | None = best_match(validator.iter_errors(value))
    return found


def _without_dialect(root: Any) -> Any:
    return {name: each for name, each in root.items() if name != "$schema"} if isinstance(root, dict) else root


def _check(roots: list[Any]) -> None:
    names: set[str] = set()
    left = list(roots)
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if isinstance(each.get("$schema"), str):
                raise UnsupportedSchema("$schema is not at the root")
            names.update(each)
            left += each.values()
        elif isinstance(each, list):
            left += each
    if {"unevaluatedProperties", "patternProperties"} <= names:
        raise UnsupportedSchema("unevaluatedProperties and patternProperties are not supported together")


def _matches(pattern: str, text: str) -> bool:
    try:
        return re2.search(pattern, text) is not None
    except re2.error:
        raise UnsupportedSchema(f"the pattern '{pattern[:100]}' is not one of RE2") from None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, each in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, each, path=name, schema_path=pattern)


def _additional_properties(validator: Any, additional: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in known or any(_matches(pattern, name) for pattern in patterns):
            continue
        if additional is False:
            yield ValidationError(f"the property {name!r} is not allowed")
        else:
            yield from validator.descend(value, additional, path=name)


def _timed(original: Any) -> Any:
    def follow(validator: Any, ref: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if time.monotonic() > _limit.deadline:
            raise TooSlow(f"a value takes more than {LIMIT_S:g} s")
        yield from original(validator, ref, instance, schema) or ()

    return follow
