"""Counts the error codes in responses, by API.

Most responses contain error codes: at the top, or for each topic, partition or group. Their places are computed once
for each response type, so a response without a list takes a third of a microsecond. Produce and Fetch responses are not
searched: the code that rejects a partition counts the error.
"""

from functools import cache
from typing import NamedTuple

from trioka.protocol.errors import NONE
from trioka.protocol.schema import PreEncoded, Struct


class _ErrorFields(NamedTuple):
    """The places of error codes in a response: at the top, or in the elements of its lists."""

    is_here: bool
    lists: tuple[tuple[str, "_ErrorFields"], ...]


class ErrorCounts:
    def __init__(self) -> None:
        self.by_api: dict[tuple[int, int], int] = {}  # by API key and error code

    def add(self, key: int, code: int) -> None:
        self.by_api[key, code] = self.by_api.get((key, code), 0) + 1

    def count(self, key: int, answer: object) -> None:
        """Counts all errors in a response. Encoded parts of it contain none."""
        if isinstance(answer, Struct):
            self._count(key, answer, _error_fields(type(answer)))

    def _count(self, key: int, answer: Struct, places: _ErrorFields) -> None:
        if places.is_here and answer.error_code != NONE:  # type: ignore[attr-defined]
            self.add(key, answer.error_code)  # type: ignore[attr-defined]
        for name, inside in places.lists:
            for each in getattr(answer, name) or ():
                if type(each) is not PreEncoded:
                    self._count(key, each, inside)


@cache
def _error_fields(kind: type[Struct]) -> _ErrorFields:
    """One entry for each response type, of which there are a few hundred."""
    found = []
    for field in kind.__fields__:
        if field.struct is not None and field.is_array:
            places = _error_fields(field.struct)
            if places.is_here or places.lists:
                found.append((field.name, places))
    return _ErrorFields(any(field.name == "error_code" for field in kind.__fields__), tuple(found))
