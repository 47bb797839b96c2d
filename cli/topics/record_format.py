"""A record as bytes for standard output: by a format of kcat's letters, as a line of JSON, or as it is.

%t topic   %p partition   %o offset   %T timestamp (ms)   %k key   %s value   %K %S their sizes   %h headers
%% is a percent sign; \\n \\t \\r \\\\ \\x41 are what they are in C
"""

import base64
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, Final

import click

from .decoding import SCHEMAS, Decoder

PLAIN_DECODERS: Final = ("auto", "json", "text", "hex", "base64")
DECODERS: Final = (*PLAIN_DECODERS, *SCHEMAS)
_TOKEN: Final = re.compile(r"%(.)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)", re.DOTALL)
ID_BYTES: Final = 4  # of a schema, after a zero byte
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return _text(data)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _auto(data: bytes) -> Any:
    """JSON objects and lists as such, text as text, and anything else in base64."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return text


_DECODE: Final[dict[str, Callable[[bytes], Any]]] = {
    "auto": _auto,
    "json": _json,
    "text": _text,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
}


def decode_bytes(how: str, data: bytes) -> Any:
    """A key or a value by one of the `PLAIN_DECODERS`, as something that JSON has."""
    return _DECODE[how](data)


def _plain(value: object) -> object:
    """Converts values of schemas that have no JSON equivalent."""
    if isinstance(value, bytes):
        return _auto(value)
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


class Printer:
    """`form` is "json", "raw", a format, or None for one value per line. With a `decoder`, values are decoded by their
    schema; keys are if the decoder does that and they begin with the id of one."""

    def __init__(self, form: str | None, decode: str, decoder: Decoder | None = None) -> None:
        self._decode = _DECODE[decode] if decoder is None else _auto
        if decoder is not None and decoder.decodes_keys:
            self._decode = lambda data: decoder(data) if data[:1] == b"\0" and len(data) > ID_BYTES else _auto(data)
        self._decode_value: Callable[[bytes], Any] = self._decode if decoder is None else decoder
        self._is_plain = decode in ("auto", "text")  # then values are written unchanged
        # What follows each value, if only unchanged values are printed: then no record needs to be decoded.
        line_ends = {None: b"\n", "%s\\n": b"\n", "raw": b"", "%s": b""}
        self.line_end = line_ends.get(form) if self._is_plain and decoder is None else None
        if form == "json":
            self.render: Callable[[Any], bytes] = self._as_json
        elif form == "raw":
            self.render = lambda record: record.value or b""
        else:
            pieces = _parse("%s\\n" if form is None else form, self._shown_key, self._shown_value)
            self.render = lambda record: b"".join([piece(record) for piece in pieces])

    def _shown_key(self, data: bytes | None) -> bytes:
        return self._shown(data, self._decode)

    def _shown_value(self, data: bytes | None) -> bytes:
        return self._shown(data, self._decode_value)

    def _shown(self, data: bytes | None, decode: Callable[[bytes], Any]) -> bytes:
        if data is None:
            return b""
        if self._is_plain:
            return data
        shown = decode(data)
        return (shown if isinstance(shown, str) else _dumped(shown)).encode()

    def _as_json(self, record: Any) -> bytes:
        result = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": None if record.key is None else self._decode(record.key),
            "value": None if record.value is None else self._decode_value(record.value),
            "headers": {key: None if value is None else _text(value) for key, value in record.headers},
        }
        return _dumped(result).encode() + b"\n"


def _parse(
    form: str, key: Callable[[bytes | None], bytes], value: Callable[[bytes | None], bytes]
) -> list[Callable[[Any], bytes]]:
    letters: dict[str, Callable[[Any], bytes]] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp,
        "k": lambda record: key(record.key),
        "s": lambda record: value(record.value),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        "h": lambda record: b",".join(name.encode() + b"=" + (data or b"") for name, data in record.headers),
        "%": lambda record: b"%",
    }
    pieces: list[Callable[[Any], bytes]] = []
    position = 0
    for token in _TOKEN.finditer(form):
        letter, escape, literal = token.groups()
        if token.start() != position or (letter is not None and letter not in letters):
            known = " ".join(f"%{each}" for each in letters)
            raise click.UsageError(f"-f knows {known}, and not '{form[position : position + 2]}'.")
        position = token.end()
        if letter is not None:
            pieces.append(letters[letter])
            continue
        if escape is not None:
            fixed = bytes([int(escape[1:], 16)]) if len(escape) == 3 else _ESCAPES.get(escape, escape.encode())
        else:
            fixed = literal.encode()
        pieces.append(lambda record, fixed=fixed: fixed)  # type: ignore[misc]
    if position != len(form):
        raise click.UsageError(f"-f ends in the middle of '{form[position:]}'.")
    return pieces
