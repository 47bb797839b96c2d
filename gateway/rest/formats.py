"""Keys and values of records in requests and responses: the formats of the dialect, by their content types.

    binary       application/vnd.kafka.binary.v2+json       base64 of the bytes
    json         application/vnd.kafka.json.v2+json         any JSON; the bytes are its compact text
    avro         application/vnd.kafka.avro.v2+json         Avro's JSON, behind the id of a schema (`schemas.py`)
    protobuf     application/vnd.kafka.protobuf.v2+json     Protobuf's JSON, likewise
    jsonschema   application/vnd.kafka.jsonschema.v2+json   JSON that a schema accepts, likewise

A null is a record's null: no key, or a tombstone.
"""

import base64
import binascii
import json
import re
from typing import Any, Final

from .errors import WRONG_FORMAT, RestError

BINARY, JSON, AVRO, PROTOBUF, JSON_SCHEMA = "binary", "json", "avro", "protobuf", "jsonschema"
FORMATS: Final = (BINARY, JSON, AVRO, PROTOBUF, JSON_SCHEMA)
WITH_SCHEMA: Final = {AVRO: "AVRO", PROTOBUF: "PROTOBUF", JSON_SCHEMA: "JSON"}
V2_JSON: Final = "application/vnd.kafka.v2+json"
PLAIN: Final = ("application/json", "application/octet-stream", "*/*", "application/*", "text/plain",
                "application/x-www-form-urlencoded", V2_JSON, "application/vnd.kafka+json")  # fmt: skip
_EMBEDDED: Final = re.compile(r"application/vnd\.kafka\.(binary|json|avro|protobuf|jsonschema)(?:\.v2)?\+json")


def content_type(form: str) -> str:
    return f"application/vnd.kafka.{form}.v2+json"


def format_of(header: str | None, *, default: str | None) -> str:
    """The format that a Content-Type or an Accept header names. Raises RestError with 415."""
    if not header:
        names: list[str] = []
    else:
        names = [each.partition(";")[0].strip().lower() for each in header.split(",")]
    for name in names:
        found = _EMBEDDED.fullmatch(name)
        if found is not None:
            return found[1]
    if default is not None and (not names or any(name in PLAIN for name in names)):
        return default
    wanted = ", ".join(content_type(each) for each in FORMATS)
    raise RestError(415, f"The media type '{(header or '')[:100]}' is not supported here; use one of {wanted}.")


def to_bytes(value: Any, form: str) -> bytes | None:
    """The bytes of a key or value in one of the formats without schema. Raises RestError."""
    if value is None:
        return None
    if form == JSON:
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            raise RestError(422, "A key or value is no JSON that can be written in UTF-8.") from None
    if not isinstance(value, str):
        raise RestError(422, "A key or value of the binary format must be a string of base64, or null.")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RestError(422, "A key or value of the binary format is not valid base64.") from None


def from_bytes(data: bytes | None, form: str, where: str) -> Any:
    """What a response shows. `where` names the record for an error."""
    if data is None:
        return None
    if form == BINARY:
        return base64.b64encode(data).decode()
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise RestError(WRONG_FORMAT, f"The record {where} is not JSON; read it in the format {BINARY}.") from None
