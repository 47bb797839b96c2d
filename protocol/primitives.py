"""The types that messages are made of: what they are in Python, and what they are on the wire.

A declaration is written `acks: Int16`. To Python and to the type checker that is an `int`; the annotation carries the
`WireType`, from which `codec.py` writes the code that reads and writes it.

    int8 … int64, uint16, uint32, float64    big endian
    boolean      one byte, 0 or not 0
    uuid         sixteen bytes, and sixteen bytes in Python too: they are compared, hashed and passed on, and only
                 people want to see them otherwise (`uuid_text`)
    string       UTF-8 behind its length: int16, or in flexible versions an unsigned varint of length + 1
    bytes        the same behind an int32, or an unsigned varint of length + 1
    records      as bytes, but never copied: decoded into a view of the frame, encoded by reference
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Final, Protocol, TypeAlias

from .errors import ProtocolError
from .lazy_dataclass import frozen

Buffer: TypeAlias = bytes | bytearray | memoryview


class FileRange(Protocol):
    """Record bytes in a file. The encoder needs only their number; the connection sends them."""

    def __len__(self) -> int: ...


RecordBytes: TypeAlias = Buffer | FileRange


@frozen
class WireType:
    name: str  # as Kafka's specifications call it
    format: str = ""  # of the struct module, when the width is fixed
    size: int = 0
    zero: object = None  # the default value


Int8 = Annotated[int, WireType(name="int8", format="b", size=1, zero=0)]
Int16 = Annotated[int, WireType(name="int16", format="h", size=2, zero=0)]
Uint16 = Annotated[int, WireType(name="uint16", format="H", size=2, zero=0)]
Int32 = Annotated[int, WireType(name="int32", format="i", size=4, zero=0)]
Uint32 = Annotated[int, WireType(name="uint32", format="I", size=4, zero=0)]
Int64 = Annotated[int, WireType(name="int64", format="q", size=8, zero=0)]
Float64 = Annotated[float, WireType(name="float64", format="d", size=8, zero=0.0)]
Boolean = Annotated[bool, WireType(name="bool", format="?", size=1, zero=False)]

NULL_UUID: Final = bytes(16)
Uuid = Annotated[bytes, WireType(name="uuid", format="16s", size=16, zero=NULL_UUID)]

MAX_STRING_BYTES: Final = 0x7FFF  # in flexible versions too, where the length would have room for more
String = Annotated[str, WireType(name="string", zero="")]
Bytes = Annotated[bytes, WireType(name="bytes", zero=b"")]
Records = Annotated[RecordBytes, WireType(name="records", zero=b"")]


def uuid_text(uuid: bytes) -> str:
    """A uuid as Kafka prints it: base64 for URLs, without padding."""
    assert len(uuid) == 16
    return urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    try:
        uuid = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    except ValueError:
        uuid = b""
    if len(uuid) != 16:
        raise ProtocolError(f"{text!r} is not a uuid in base64 (22 characters)")
    return uuid


# Unsigned varints: seven bits a byte, the lowest first, the high bit says that more follow. The protocol uses them
# for lengths and tags, all of which fit into 31 bits.

MAX_VARINT_BYTES: Final = 5


# What nearly all varints are, these and those of records (varint.py): lengths of names, counts, small differences.
ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))


def uvarint(value: int) -> bytes:
    assert 0 <= value < 1 << 32, value
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_prefix(number: int, is_flexible: bool) -> bytes:
    """The length of an array or a string as a prefix on the wire; null is encoded elsewhere."""
    return uvarint(number + 1) if is_flexible else number.to_bytes(4)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value, and the position behind it. IndexError where the buffer ends too early."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError(
                f"a varint at byte {position - MAX_VARINT_BYTES} is longer than {MAX_VARINT_BYTES} bytes"
            )
    if value > 0x7FFFFFFF:
        raise ProtocolError(f"a varint before byte {position} is {value}, which is above 2³¹-1")
    return value, position
