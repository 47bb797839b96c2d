"""The framing of a value with its schema id: a zero byte, four bytes of the id, then the data.

      0        1                                5
    +--------+--------------------------------+-------------------------------
    | 0x00   | schema id, big-endian          | data (Protobuf: message path first)
    +--------+--------------------------------+-------------------------------

Serializers for a schema registry write this format. Protobuf adds a path into the file's messages, as zigzag varints: a
count and that many indexes, or one zero byte for the first message, the usual case.
"""

HEADER_BYTES = 5
MAX_PATH = 16


class Undecodable(Exception):
    """A value that cannot be decoded; the message is the reason."""


def framed(value: bytes) -> tuple[int, bytes]:
    """The schema id, and the data after it."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        raise Undecodable("the value does not begin with a schema id: a zero byte and four more")
    return int.from_bytes(value[1:HEADER_BYTES]), value[HEADER_BYTES:]


def without_message_path(data: bytes) -> bytes:
    return message_path(data)[1]


def message_path(data: bytes) -> tuple[list[int], bytes]:
    """The indexes that lead to the message in its file, and the data after them."""
    count, at = _varint(data, 0)
    if not 0 <= count <= MAX_PATH:
        raise Undecodable("the path to the message is damaged")
    path = []
    for _ in range(count):
        index, at = _varint(data, at)
        path.append(index)
    return path or [0], data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise Undecodable("the path to the message is damaged")
