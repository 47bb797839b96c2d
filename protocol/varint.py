"""The signed varints of a record: zigzag, seven bits a byte, the lowest first.

    value      zigzag      bytes
        0           0      00
       -1           1      01
        1           2      02
       63         126      7e
      -64         127      7f
       64         128      80 01
     2³¹-1      2³²-2      fe ff ff ff 0f                          five bytes are the most for an int32
     -2⁶³       2⁶⁴-1      ff ff ff ff ff ff ff ff ff 01           ten for an int64

A varint longer than that is refused, as in Kafka. So is one whose last byte carries bits that the type has no room for;
Kafka drops those silently, no client writes them, and two readers could decode different numbers. Padding
(`80 00` for nought) is legal and read.

The unsigned varints of the request and response bodies have another format, in primitives.py.
"""

from typing import Final

from .errors import InvalidRecord
from .primitives import ONE_BYTE

MAX_INT32_BYTES: Final = 5
MAX_INT64_BYTES: Final = 10


def varint(value: int) -> bytes:
    """An int32 or an int64: on the wire they are the same."""
    if -64 <= value < 64:
        return ONE_BYTE[(value << 1) ^ (value >> 63)]
    assert -(1 << 63) <= value < 1 << 63, value
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def int64(value: int) -> int:
    """`value` as Java's long would hold it. Hostile timestamps overflow, and must come back as they were."""
    if -(1 << 63) <= value < 1 << 63:
        return value
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """An int32, and the position behind it. IndexError where the data ends too early."""
    low = data[position]
    if low < 0x80:
        return (low >> 1) ^ -(low & 1), position + 1
    high = data[position + 1]
    if high < 0x80:
        return (high << 6 | low >> 1 & 0x3F) ^ -(low & 1), position + 2
    return _read(data, position, MAX_INT32_BYTES, 32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """An int64, and the position behind it. IndexError where the data ends too early."""
    low = data[position]
    if low < 0x80:
        return (low >> 1) ^ -(low & 1), position + 1
    high = data[position + 1]
    if high < 0x80:
        return (high << 6 | low >> 1 & 0x3F) ^ -(low & 1), position + 2
    return _read(data, position, MAX_INT64_BYTES, 64)


def _read(data: bytes, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    zigzag = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> bits:
                raise InvalidRecord(f"the varint before byte {position} does not fit into {bits} bits")
            return (zigzag >> 1) ^ -(zigzag & 1), position
    raise InvalidRecord(f"the varint before byte {position} is longer than {max_bytes} bytes")
