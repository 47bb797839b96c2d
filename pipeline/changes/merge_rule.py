"""The rule by which changes become rows, without Spark: what a table holds after any set of changes.

A change has a key, a sequence, and either columns or a deletion. The table is a function of the *set* of changes: their
order and their repetition do not matter. Of two changes with the same key and sequence, a deletion wins, and then the
larger text of the columns.

    type 1    the newest change of each key: its columns, or no row if it is a deletion
    type 2    one row for each change that is no deletion, from its sequence (`__START_AT`) to that of the next change
              of the key (`__END_AT`, null if there is none)

`merge.py` does the same in SQL, batch by batch: a table remembers the sequence of each row, and a second table
(`<table>__deletions`) that of each deletion, so that a late change cannot bring a deleted row back.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from trioka.protocol.lazy_dataclass import frozen


@frozen
class Change:
    """`columns` is None for a deletion. `text` decides between changes with the same key and sequence."""

    key: tuple[Any, ...]
    sequence: Any
    columns: Mapping[str, Any] | None
    text: str = ""

    @property
    def rank(self) -> tuple[Any, bool, str]:
        return self.sequence, self.columns is None, self.text


@frozen
class Version:
    """A row of a history. `end` is None for the version that holds now."""

    key: tuple[Any, ...]
    columns: Mapping[str, Any]
    start: Any
    end: Any


def current_rows(changes: Iterable[Change]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """The rows of type 1, by key."""
    newest: dict[tuple[Any, ...], Change] = {}
    for change in changes:
        known = newest.get(change.key)
        if known is None or change.rank > known.rank:
            newest[change.key] = change
    return {key: change.columns for key, change in newest.items() if change.columns is not None}


def history(changes: Iterable[Change]) -> list[Version]:
    """The rows of type 2, ordered by key and start."""
    by_place: dict[tuple[tuple[Any, ...], Any], Change] = {}
    for change in changes:
        place = (change.key, change.sequence)
        known = by_place.get(place)
        if known is None or change.rank > known.rank:
            by_place[place] = change
    ordered: dict[tuple[Any, ...], list[Change]] = {}
    for (key, _), change in sorted(by_place.items()):
        ordered.setdefault(key, []).append(change)
    found = []
    for key, ones in ordered.items():
        ends = [*(one.sequence for one in ones[1:]), None]
        for change, end in zip(ones, ends, strict=True):
            if change.columns is not None:
                found.append(Version(key=key, columns=change.columns, start=change.sequence, end=end))
    return found
