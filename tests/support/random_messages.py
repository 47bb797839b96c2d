"""Messages made up from a seed: every field of a version has a value, extremes more often than not."""

from random import Random
from typing import Any

from trioka.protocol.schema import Field, Message, Struct

INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
UNSIGNED = {"uint16": 16, "uint32": 32}
TEXTS = ("", "a", "orders", "käse", "日本", "\N{SNAKE}", "x" * 130, "a\x00b")
FLOATS = (0.0, -1.5, 1e300, 0.1)


def sample(message: type[Message], version: int, random: Random, longest: int = 3) -> Any:
    """One message. Fields that the version does not have are left at their defaults."""
    return _struct(message, version, random, longest)


def _struct(declared: type[Struct], version: int, random: Random, longest: int) -> Struct:
    struct = declared.with_defaults()
    for f in declared.__fields__:
        if version in f.versions and not (version in f.tagged and random.random() < 0.3):
            setattr(struct, f.name, _value(f, version, random, longest))
    return struct


def _value(f: Field, version: int, random: Random, longest: int) -> Any:
    if version in f.nullable and random.random() < 0.25:
        return None
    if f.is_array:
        return [_element(f, version, random, longest) for _ in range(random.randint(0, longest))]
    return _element(f, version, random, longest)


def _element(f: Field, version: int, random: Random, longest: int) -> Any:
    if f.struct is not None:
        return _struct(f.struct, version, random, longest)
    assert f.wire is not None
    kind = f.wire.name
    if kind in INTEGERS:
        most = (1 << INTEGERS[kind]) - 1
        return random.choice((0, 1, -1, most, -most - 1, random.randint(-most, most)))
    if kind in UNSIGNED:
        most = (1 << UNSIGNED[kind]) - 1
        return random.choice((0, 1, most, random.randint(0, most)))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice(FLOATS)
    if kind == "uuid":
        return random.randbytes(16)
    if kind == "string":
        return random.choice(TEXTS)
    return random.randbytes(random.choice((0, 1, 20, 127, 128, 300)))
