"""What the value of a config key may be: read from a person's text, and shown as Kafka shows it.

A key says its type once, `Long(min=-1)`, and with that everything is said: how text becomes a value, which values are
refused and in which words, how a value is printed in DescribeConfigs, and which number stands for the type on the wire.

Texts are read as Java reads them, because they come from files and clients that were written for Java: blanks around
a value do not count, `+5` is five, `TRUE` is true, `1e-1` and `0.5f` are doubles, a list is cut at its commas and
says nothing twice. Two things that Java takes are refused: `NaN`, which is no ratio that anything here could be
compared with, and hexadecimal doubles, which nobody meant.
"""

import math
import re
from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

# Looks at one string, or one element of a list, and says what is wrong with it: "must …", or nothing.
Check: TypeAlias = Callable[[str], str | None]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

_BLANKS: Final = "".join(map(chr, range(33)))  # what Java's trim() takes away

# Patterns are compiled when the first value needs them (and then kept, by `re` itself): most starts need one or two,
# and compiling all of them would be most of the time that importing the configuration takes.
_COMMA: Final = r"\s*,\s*"
_INTEGER: Final = r"[+-]?[0-9]+"
_DOUBLE: Final = r"[+-]?(Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)"


class ValueType(Generic[T_co]):
    """A type of values. `number` is its id in DescribeConfigs, `name` is Kafka's word for it."""

    __slots__ = ()

    number: ClassVar[int]
    name: ClassVar[str]
    sensitive: ClassVar[bool] = False

    def parse(self, text: str) -> T_co:
        """The value that a text stands for. The ValueError of a text that stands for none says what it "must" be."""
        raise NotImplementedError

    def show(self, value: object) -> str:
        """The value as Kafka prints it; `parse` reads it back."""
        return str(value)

    def valid(self) -> str:
        """The values that are allowed, in a few words for the reference page; empty if all are."""
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
    """Any text, or one of a few words; `fold` says that capitals do not matter in them."""

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
    """The name of a Java class. Here it is a word like any other: there is nothing that could load it."""

    __slots__ = ()
    number = 8
    name = "class"


class Secret:
    """A value that no log, no error and no DescribeConfigs shows."""

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
    """A whole number of `bits` bits between `min` and `max`, or one of `also`."""

    __slots__ = ("also", "max", "min")
    bits: ClassVar[int]

    def __init__(self, *, min: int | None = None, max: int | None = None, also: tuple[int, ...] = ()) -> None:
        self.min = min
        self.max = max
        self.also = also

    def parse(self, text: str) -> int:
        stripped = text.strip(_BLANKS)
        # No number of 64 bits has more digits; int() is slow with thousands of them.
        if not re.fullmatch(_INTEGER, stripped) or len(stripped.lstrip("+-0")) > 19:
            raise ValueError(f"must be a whole number of {self.bits} bits")
        value = int(stripped)
        if not -(1 << self.bits - 1) <= value < 1 << self.bits - 1:
            raise ValueError(f"must be a whole number of {self.bits} bits")
        if value in self.also:
            return value
        otherwise = f" or {self.also[0]}" if self.also else ""
        if self.min is not None and value < self.min:
            raise ValueError(f"must be at least {self.min}{otherwise}")
        if self.max is not None and value > self.max:
            raise ValueError(f"must be at most {self.max}{otherwise}")
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
    """Strings between commas. What is said twice counts once; nothing between two commas is an error."""

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
                raise ValueError("must have something between any two commas")
            if self.one_of and element not in self.one_of:
                raise ValueError(f"must only name {', '.join(self.one_of)}")
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
    """A double as Java prints it: always with a point, and with an exponent outside of 0.001 to 10,000,000."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value!r}"  # Python changes to exponents later, below 0.0001 and above 10,000,000,000,000,000
    digits, exponent = _scientific(value)
    return f"{digits}E{exponent}"


def _scientific(value: float) -> tuple[str, int]:
    """The digits of Python's repr, which are the fewest that read back, with the point behind the first of them."""
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
