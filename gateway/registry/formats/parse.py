"""Picks the format of a schema. The formats and their libraries are loaded when the first schema needs them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ..errors import InvalidSchema
from ..records import AVRO, JSON, PROTOBUF
from .parsed import Dependency, ParsedSchema

PARSED_SCHEMAS: Final = 1000  # kept for the next request


def parse(schema_type: str, text: str, dependencies: Sequence[Dependency]) -> ParsedSchema:
    """Raises InvalidSchema with a sentence. `dependencies` are in an order in which each follows those it needs."""
    return _parse(schema_type, text, tuple(dependencies))


@lru_cache(PARSED_SCHEMAS)
def _parse(schema_type: str, text: str, dependencies: tuple[Dependency, ...]) -> ParsedSchema:
    try:
        if schema_type == AVRO:
            from .avro import AvroSchema

            return AvroSchema(text, dependencies)
        if schema_type == PROTOBUF:
            from .protobuf import ProtobufSchema

            return ProtobufSchema(text, dependencies)
        if schema_type == JSON:
            from .json_schema import JsonSchema

            return JsonSchema(text, dependencies)
    except RecursionError:
        raise InvalidSchema("The schema is nested too deeply.") from None
    raise InvalidSchema(f"Invalid schema type '{schema_type[:50]}': it must be AVRO, PROTOBUF or JSON.")
