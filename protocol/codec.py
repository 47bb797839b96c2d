"""Compiles declarations: one decoder and one encoder for each (message, version), on first use.

The code is written as source by `decoding.py` and `encoding.py` and is put into `linecache`, so that a traceback shows
it and a debugger steps through it. Each compiled function is flat: the loops over arrays are written out inside one
another, neighbouring fields of fixed width go through one `struct` call, and nothing is looked up by name. That makes
it a few times faster than walking the declaration for every message.

A malformed message is rare and may be expensive. So the fast function does not track which field it reads. When it
fails, a second function, compiled from the same declaration with a note of the field before every step, decodes the
message again and reports the field that is wrong.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from .decoding import MAX_ELEMENTS, write_decoder
from .encoding import write_encoder
from .errors import ProtocolError
from .primitives import Buffer, RecordBytes
from .schema import Message, PreEncoded, Struct

M = TypeVar("M", bound=Message)

# (buffer, position, remaining number of array elements) -> (message, position behind it)
Decoder: TypeAlias = Callable[[memoryview, int, int], tuple[Any, int]]
# (message, bytes so far) -> the pieces to send, of which the bytes so far are the first
Encoder: TypeAlias = Callable[[Any, bytearray], list[RecordBytes]]

_MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError, ProtocolError)
_UNENCODABLE: Final = (struct.error, AttributeError, TypeError, ValueError, ProtocolError)

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_part_encoders: dict[tuple[type[Struct], int], Encoder] = {}


def decoder(cls: type[Message], version: int) -> Decoder:
    """The compiled decoder. It raises `ProtocolError`, and no other error, for malformed bytes."""
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = _compile_decoder(cls, _known(cls, version))
    return found


def encoder(cls: type[Message], version: int) -> Encoder:
    """The compiled encoder. It raises `ProtocolError` for values that this version cannot represent."""
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = _compile_encoder(cls, _known(cls, version))
    return found


def decode(cls: type[M], version: int, data: Buffer, *, max_elements: int = MAX_ELEMENTS) -> M:
    """Reads one message that fills `data` to its end."""
    view = memoryview(data)
    message, end = decoder(cls, version)(view, 0, max_elements)
    if end != len(view):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(view) - end} bytes are left over after it")
    return message  # type: ignore[no-any-return]


def encode(message: Message, version: int) -> bytes:
    """Writes one message into one piece. Its records, if it has any, must be in memory."""
    pieces = encoder(type(message), version)(message, bytearray())
    return b"".join(pieces)  # type: ignore[arg-type]


def encode_part(cls: type[Message], version: int, part: Struct) -> PreEncoded:
    """Encodes one `part` of a list of such a message; the bytes may be put into the list in its place."""
    kind = type(part)
    found = _part_encoders.get((kind, version))
    if found is None:
        found = _part_encoders[kind, version] = _compile_encoder(cls, _known(cls, version), kind)
    pieces = found(part, bytearray())
    return PreEncoded(b"".join(pieces))  # type: ignore[arg-type]


def _known(cls: type[Message], version: int) -> int:
    if version not in cls.__versions__:
        raise ProtocolError(f"{cls.__name__} has versions {cls.__versions__}, not {version}")
    return version


def _compile_decoder(cls: type[Message], version: int) -> Decoder:
    fast: Decoder = write_decoder(cls, version)
    careful: list[Decoder] = []

    def decode_message(buffer: memoryview, position: int, max_elements: int) -> tuple[Any, int]:
        try:
            return fast(buffer, position, max_elements)
        except _MALFORMED as problem:
            cause = problem
        if not careful:
            careful.append(write_decoder(cls, version, diagnostic=True))
        careful[0](buffer, position, max_elements)
        raise AssertionError(
            f"{cls.__name__} v{version} failed to decode once and succeeded the second time"
        ) from cause

    return decode_message


def _compile_encoder(cls: type[Message], version: int, part: type[Struct] | None = None) -> Encoder:
    fast: Encoder = write_encoder(cls, version, part=part)
    careful: list[Encoder] = []

    def encode_message(message: Any, out: bytearray) -> list[RecordBytes]:
        before = len(out)
        try:
            return fast(message, out)
        except _UNENCODABLE as problem:
            cause = problem
        if not careful:
            careful.append(write_encoder(cls, version, part=part, diagnostic=True))
        del out[before:]
        careful[0](message, out)
        raise AssertionError(
            f"{cls.__name__} v{version} failed to encode once and succeeded the second time"
        ) from cause

    return encode_message
