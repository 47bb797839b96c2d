"""How often clients were answered with which error, by API.

Most answers hold an error code somewhere: at the top, or for each topic, partition or group. Where, is looked up once
for each kind of answer, so that one without a list costs a third of a microsecond. Produces and Fetches are not looked
through: whoever refuses one of their partitions says so.
"""

from functools import cache
from typing import NamedTuple

from trioka.protocol.errors import NONE
from trioka.protocol.schema import Encoded, Struct


class _Places(NamedTuple):
    """Where an answer has error codes: at its own top, or in the elements of its lists."""

    is_here: bool
    lists: tuple[tuple[str, "_Places"], ...]


class ErrorCounts:
    def __init__(self) -> None:
        self.by_api: dict[tuple[int, int], int] = {}  # by the API's key and the error's code

    def add(self, key: int, code: int) -> None:
        self.by_api[key, code] = self.by_api.get((key, code), 0) + 1

    def look(self, key: int, answer: object) -> None:
        """Counts every error that an answer tells of. What is encoded already, whole or in part, tells of none."""
        if isinstance(answer, Struct):
            self._look(key, answer, _places(type(answer)))

    def _look(self, key: int, answer: Struct, places: _Places) -> None:
        if places.is_here and answer.error_code != NONE:  # type: ignore[attr-defined]
            self.add(key, answer.error_code)  # type: ignore[attr-defined]
        for name, inside in places.lists:
            for each in getattr(answer, name) or ():
                if type(each) is not Encoded:
                    self._look(key, each, inside)


@cache
def _places(kind: type[Struct]) -> _Places:
    """One entry for each kind of answer, of which there are a few hundred."""
    found = []
    for field in kind.__fields__:
        if field.struct is not None and field.is_array:
            places = _places(field.struct)
            if places.is_here or places.lists:
                found.append((field.name, places))
    return _Places(any(field.name == "error_code" for field in kind.__fields__), tuple(found))
