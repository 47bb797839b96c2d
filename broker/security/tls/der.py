"""Reads DER, the binary form of certificates: as much as names, dates and alternative names need.

    30 0d            tag 0x30 (SEQUENCE), length 13
       31 0b         tag 0x31 (SET), length 11
          ...

The length is one byte below 128, or 0x80 + the number of length bytes that follow. Input may be hostile: every length
is checked against the bytes that are there, and nothing recurses.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
OCTET_STRING: Final = 0x04
MAX_LENGTH_BYTES: Final = 4
MAX_OBJECT_IDENTIFIER_BYTES: Final = 64


class InvalidDer(ValueError):
    """The bytes are not DER, or not what was expected. The message starts with a verb."""


class Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes  # with tag and length


def read_element(data: bytes, at: int = 0) -> tuple[Element, int]:
    """The element that begins at a position, and the position behind it."""
    if len(data) < at + 2:
        raise InvalidDer("ends in the middle of an element")
    tag, length, start = data[at], data[at + 1], at + 2
    if tag & 0x1F == 0x1F:
        raise InvalidDer("has a tag of several bytes")
    if length >= 0x80:
        count = length - 0x80
        if not 1 <= count <= MAX_LENGTH_BYTES or len(data) < start + count:
            raise InvalidDer("has an invalid length")
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + length
    if len(data) < end:
        raise InvalidDer("ends in the middle of an element")
    return Element(tag, data[start:end], data[at:end]), end


def elements(data: bytes) -> Iterator[Element]:
    """The elements that stand one behind the other."""
    at = 0
    while at < len(data):
        element, at = read_element(data, at)
        yield element


def only_element(data: bytes, tag: int) -> bytes:
    """The content of the one element that the bytes are."""
    element, end = read_element(data)
    if element.tag != tag or end != len(data):
        raise InvalidDer(f"is not a single element with tag {tag:#04x}")
    return element.content


def dotted(identifier: bytes) -> str:
    """The text of an object identifier, such as 2.5.4.3."""
    if not identifier or identifier[-1] & 0x80 or len(identifier) > MAX_OBJECT_IDENTIFIER_BYTES:
        raise InvalidDer("has an invalid object identifier")
    numbers: list[int] = []
    value = 0
    for byte in identifier:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
