"""What every format offers."""

import json
from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple

from ..errors import InvalidSchema

MAX_SCHEMA_CHARS: Final = 1_000_000  # a record of `_schemas` must fit Kafka's default limit for a message
MAX_NESTING: Final = 100  # levels of brackets in a schema's text: parsers of schemas are recursive
MAX_MESSAGES: Final = 100  # differences named in a response


class Dependency(NamedTuple):
    """A schema that another one refers to by this name."""

    name: str
    text: str


class ParsedSchema(ABC):
    """`text` is what is stored and returned; two schemas of a subject are the same if their `identity` is."""

    text: str
    identity: str

    @abstractmethod
    def normalized(self) -> str:
        """The text in the one spelling of all schemas with this meaning."""

    @abstractmethod
    def unreadable(self, writer: "ParsedSchema") -> list[str]:
        """Why this schema cannot read what `writer`, of the same format, wrote; an empty list if it can."""

    def formatted(self, form: str) -> str:
        """The text in a form that a client asked for; an unknown form is the stored text."""
        return self.text


def load_json(text: str) -> Any:
    """JSON without duplicates of meaning: no NaN, no nesting that a recursive parser does not survive."""
    checked_size(text)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"The schema is not valid JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def checked_size(text: str) -> None:
    """Refuse a text that would end a recursive parser. Brackets in strings count, which costs only absurd schemas."""
    depth = deepest = 0
    for character in text:
        if character in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}])":
            depth -= 1
    if deepest > MAX_NESTING:
        raise InvalidSchema(f"The schema is nested more than {MAX_NESTING} levels deep.")
    if not text.strip():
        raise InvalidSchema("The schema is empty.")
    if "\0" in text:
        raise InvalidSchema("The schema contains a null character.")


def dump_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
