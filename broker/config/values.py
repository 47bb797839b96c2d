"""Types of configuration values: parsing, validation, formatting.

A key declares its type, such as `Long(min=-1)`. The type parses texts, rejects invalid values with a message, formats
values for DescribeConfigs, and has the type's number in the protocol.

Texts are parsed as Java does, because files and clients were written for Java: surrounding blanks are stripped, `+5` is
5, `TRUE` is true, `1e-1` and `0.5f` are doubles, and a list is split at commas, without duplicates. Two things that
Java accepts are rejected: `NaN`, which cannot be compared with limits, and hexadecimal doubles.
"""

import math
import re
from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

# Validates a string or an element of a list: returns a complaint that starts with "must", or None.
Check: TypeAlias = Callable[[str], str | None]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

_BLANKS: Final = "".join(map(chr, range(33)))  # the characters that Java's trim() strips

# `re` compiles patterns on first use and caches them. Most starts need one or two of them; compiling all of them at
# import would dominate the import time of the configuration.
_COMMA: Final = r"\s*,\s*"
_INTEGER: Final = r"[+-]?[0-9]+"
_DOUBLE: Final = r"[+-]?(Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)"


class ValueType(Generic[T_co]):
    """A type of values. `number` is its id in DescribeConfigs, `name` is Kafka's name for it."""

    __slots__ = ()

    number: ClassVar[int]
    name: ClassVar[str]
    sensitive: ClassVar[bool] = False

    def parse(self, text: str) -> T_co:
        """Parse a text. The message of the ValueError for an invalid text starts with "must"."""
        raise NotImplementedError

    def show(self, value: object) -> str:
        """Format a value as Kafka does; `parse` is the inverse."""
        return str(value)

    def valid(self) -> str:
        """A short description of the valid values for docs/CONFIG.md; empty if all are valid."""
        return ""


class Boolean(ValueType[bool]):
    __slots__ = ()
    number = 1
    name = "boolean"

    def parse(self, text: str) -> bool:
        word = text.strip(_BLANKS).lower()
        if word not in ("true", "false"):
            raise ValueError("must be true or false")
        return word == "true"

    def show(self, value: object) -> str:
        return "true" if value else "false"


class String(ValueType[str]):
    """Any text, or one of the texts `one_of`; `fold` ignores case."""

    __slots__ = ("check", "fold", "one_of")
    number = 2
    name = "string"

    def __init__(self, *, one_of: tuple[str, ...] = (), fold: bool = False, check: Check | None = None) -> None:
        self.one_of = one_of
        self.fold = fold
        self.check = check

    def parse(self, text: str) -> str:
        value = text.strip(_BLANKS)
        known = value in self.one_of or (self.fold and value.lower() in (word.lower() for word in self.one_of))
        if self.one_of and not known:
            raise ValueError(f"must be one of {', '.join(self.one_of)}")
        if self.check and (complaint := self.check(value)):
            raise ValueError(complaint)
        return value

    def valid(self) -> str:
        return ", ".join(self.one_of)


class Class(String):
    """The name of a Java class. It is never loaded."""

    __slots__ = ()
    number = 8
    name = "class"


class Secret:
    """A value that never appears in logs, errors or DescribeConfigs."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


class Password(ValueType[Secret]):
    __slots__ = ()
    number = 9
    name = "password"
    sensitive = True

    def parse(self, text: str) -> Secret:
        return Secret(text.strip(_BLANKS))


class Whole(ValueType[int]):
    """An integer of `bits` bits between `min` and `max`, or one of `also`."""

    __slots__ = ("also", "max", "min")
    bits: ClassVar[int]

    def __init__(self, *, min: int | None = None, max: int | None = None, also: tuple[int, ...] = ()) -> None:
        self.min = min
        self.max = max
        self.also = also

    def parse(self, text: str) -> int:
        stripped = text.strip(_BLANKS)
        # A 64-bit number has at most 19 digits; int() is slow with thousands of digits.
        if not re.fullmatch(_INTEGER, stripped) or len(stripped.lstrip("+-0")) > 19:
            raise ValueError(f"must be a {self.bits}-bit integer")
        value = int(stripped)
        if not -(1 << self.bits - 1) <= value < 1 << self.bits - 1:
            raise ValueError(f"must be a {self.bits}-bit integer")
        if value in self.also:
            return value
        alternative = f" or {self.also[0]}" if self.also else ""
        if self.min is not None and value < self.min:
            raise ValueError(f"must be at least {self.min}{alternative}")
        if self.max is not None and value > self.max:
            raise ValueError(f"must be at most {self.max}{alternative}")
        return value

    def valid(self) -> str:
        return _range(self.min, self.max) + "".join(f" or {value}" for value in self.also)


class Short(Whole):
    __slots__ = ()
    number = 4
    name = "short"
    bits = 16


class Int(Whole):
    __slots__ = ()
    number = 3
    name = "int"
    bits = 32


class Long(Whole):
    __slots__ = ()
    number = 5
    name = "long"
    bits = 64


class Double(ValueType[float]):
    __slots__ = ("max", "min")
    number = 6
    name = "double"

    def __init__(self, *, min: float | None = None, max: float | None = None) -> None:
        self.min = min
        self.max = max

    def parse(self, text: str) -> float:
        stripped = text.strip(_BLANKS)
        if not re.fullmatch(_DOUBLE, stripped):
            raise ValueError("must be a number")
        value = float(stripped if stripped.endswith("y") else stripped.rstrip("fFdD"))
        if self.min is not None and value < self.min:
            raise ValueError(f"must be at least {self.min:g}")
        if self.max is not None and value > self.max:
            raise ValueError(f"must be at most {self.max:g}")
        return value

    def show(self, value: object) -> str:
        assert isinstance(value, float)
        return java_double(value)

    def valid(self) -> str:
        return _range(self.min, self.max)


class List(ValueType[tuple[str, ...]]):
    """Comma-separated strings. Duplicates are dropped; an empty element is an error."""

    __slots__ = ("check", "empty", "one_of")
    number = 7
    name = "list"

    def __init__(self, *, one_of: tuple[str, ...] = (), empty: bool = True, check: Check | None = None) -> None:
        self.one_of = one_of
        self.empty = empty
        self.check = check

    def parse(self, text: str) -> tuple[str, ...]:
        stripped = text.strip(_BLANKS)
        elements = tuple(dict.fromkeys(re.split(_COMMA, stripped))) if stripped else ()
        if not elements and not self.empty:
            raise ValueError("must not be empty")
        for element in elements:
            if not element:
                raise ValueError("must not have empty elements")
            if self.one_of and element not in self.one_of:
                raise ValueError(f"must only contain {', '.join(self.one_of)}")
            if self.check and (complaint := self.check(element)):
                raise ValueError(complaint)
        return elements

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)

    def valid(self) -> str:
        return f"any of {', '.join(self.one_of)}" if self.one_of else "" if self.empty else "not empty"


def not_empty(text: str) -> str | None:
    return None if text else "must not be empty"


def java_double(value: float) -> str:
    """Format a double as Java does: always with a decimal point, with an exponent outside 0.001 to 10,000,000."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value!r}"  # Python uses exponents only below 1e-4 and from 1e16
    digits, exponent = _scientific(value)
    return f"{digits}E{exponent}"


def _scientific(value: float) -> tuple[str, int]:
    """Mantissa and exponent, with the shortest digits that round-trip (those of repr)."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    power = int(exponent or 0) + len(whole) - 1
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    digits = digits[leading:].rstrip("0") or "0"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}", power - leading


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "" if low is None and high is None else f"≤ {high:g}" if low is None else f"≥ {low}"
    return f"{low} to {high}"
