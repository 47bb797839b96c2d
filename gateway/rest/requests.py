"""Fields of a request's body and parameters of its address, checked."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from .errors import RestError

JsonObject: TypeAlias = Mapping[str, Any]
MAX_INT64: Final = 2**63 - 1
MAX_NAME_CHARS: Final = 249


def object_of(body: object) -> JsonObject:
    if not isinstance(body, dict):
        raise RestError(422, "The body must be a JSON object.")
    return body


def list_of(body: JsonObject, name: str, most: int) -> list[Any]:
    found = body.get(name)
    if not isinstance(found, list):
        raise RestError(422, f"The field '{name}' must be a list.")
    if len(found) > most:
        raise RestError(422, f"The field '{name}' has {len(found)} members; {most} are the most.")
    return found


def whole(value: object, name: str, least: int, most: int = MAX_INT64) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RestError(422, f"'{name}' must be a whole number from {least} to {most}.")
    return value


def whole_text(text: str, name: str, least: int, most: int = MAX_INT64) -> int:
    """The same, of a part of the address."""
    if not (text.isascii() and text.removeprefix("-").isdecimal()) or len(text) > 20:
        raise RestError(422, f"'{name}' must be a whole number from {least} to {most}.")
    return whole(int(text), name, least, most)


def name_of(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or len(value) > MAX_NAME_CHARS or not value.isprintable():
        raise RestError(422, f"The {what} must be a name of 1 to {MAX_NAME_CHARS} characters.")
    return value
