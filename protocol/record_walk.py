"""The walk over the records of a batch that a broker takes before it appends one: is every record readable?

`walk` follows the lengths of all records and makes none of them. It is what decides between a batch that every reader
can read and one that stops them all, so its rules are those of the careful decoder (record.py), with one more: the
offset deltas of a batch from a client are 0, 1, 2 and so on.

    a record        its length fits into the batch; its attributes, deltas, key, value and headers fill it exactly
    a varint        at most five bytes for an int32 and ten for an int64, without bits beyond those
    a key, a value  a negative length is null; any other fits into the record
    a header        its key is not null
    the batch       holds as many records as its header declares, and no byte behind them

There are two walks with the same answers. `_record_walk.c` takes 12 ns for a record; it is compiled when the package is
installed where there is a C compiler (hatch_build.py). The one in Python, `walk_in_python`, takes 0.9 µs and serves
everywhere else. `IS_COMPILED` shows which one `walk` is. Neither reads outside of the range that it is given, for any
bytes. docs/decisions/0019-every-record-is-checked.md has the share of the walk in the cost of a Produce.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

from .errors import InvalidRecord
from .record import NO_TIMESTAMP, skip_headers
from .varint import int64, read_varint, read_varlong

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

NO_RECORD_HAS_A_TIMESTAMP: Final = 2**63 - 1

Walked: TypeAlias = tuple[int, int, int]
"""The oldest timestamp of all records that have one, or NO_RECORD_HAS_A_TIMESTAMP; the newest, or NO_TIMESTAMP if all
are below; how many records have no key."""


def walk_in_python(buffer: "ReadableBuffer", start: int, end: int, count: int, base_timestamp: int) -> Walked | None:
    """Walks over `count` records between `start` and `end` of the buffer; None if they cannot all be read there."""
    view = memoryview(buffer)
    if not 0 <= start <= end <= len(view):
        raise ValueError("the records do not lie within the buffer")
    try:
        return _walk(bytes(view[start:end]), count, base_timestamp)
    except (IndexError, InvalidRecord):
        return None


def _walk(data: bytes, count: int, base_timestamp: int) -> Walked | None:
    """Varints are spelled out where one or two bytes are enough, since a call costs as much as the rest of a record."""
    oldest, newest, without_key = NO_RECORD_HAS_A_TIMESTAMP, NO_TIMESTAMP, 0
    size, position = len(data), 0
    for index in range(count):  # a record that goes beyond the data is found by the next read, or at the end
        low = data[position]
        if low < 0x80:
            end = position + 1 + (low >> 1)
            position += 2  # behind the attributes
            if low & 1:
                return None
        else:
            length, position = read_varint(data, position)
            if length < 0:
                return None
            end = position + length
            position += 1
        low = data[position]
        position += 1
        delta = (low >> 1) ^ -(low & 1)
        if low >= 0x80:
            delta, position = read_varlong(data, position - 1)
        timestamp = base_timestamp + delta
        if not -1 <= timestamp < NO_RECORD_HAS_A_TIMESTAMP:
            timestamp = int64(timestamp)
        if timestamp > newest:
            newest = timestamp
        if timestamp < oldest and timestamp != NO_TIMESTAMP:
            oldest = timestamp
        low = data[position]
        position += 1
        delta = (low >> 1) ^ -(low & 1)
        if low >= 0x80:
            delta, position = read_varint(data, position - 1)
        if delta != index:
            return None
        low = data[position]
        position += 1
        length = (low >> 1) ^ -(low & 1)
        if low >= 0x80:
            length, position = read_varint(data, position - 1)
        if length < 0:
            without_key += 1
        else:
            position += length
        low = data[position]
        position += 1
        length = (low >> 1) ^ -(low & 1)
        if low >= 0x80:
            length, position = read_varint(data, position - 1)
        if length > 0:
            position += length
        position = position + 1 if data[position] == 0 else skip_headers(data, position, end)
        if position != end:
            return None
    return (oldest, newest, without_key) if position == size and count >= 0 else None


try:
    from ._record_walk import walk as walk
except ImportError:  # it was not compiled, or not for this Python
    walk = walk_in_python
IS_COMPILED: Final = walk is not walk_in_python
