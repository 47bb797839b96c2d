"""One table of a TOML file, read key by key, with every problem collected instead of the first one raised.

A `Section` returns validated values and records their problems; in place of an invalid value it returns a valid
default, so that reading continues and finds the next problem too. `unread` reports unknown keys. Problems contain the
key's full path and, if the file's text is available, its line.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

INTERVAL = re.compile(r"\s*[1-9]\d{0,8}\s+(millisecond|second|minute|hour|day|week)s?\s*", re.I)
NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Problems:
    """The problems, in the order in which they were found."""

    def __init__(self, text: str = "") -> None:
        self.found: list[str] = []
        self._lines = _lines_of_keys(text)

    def add(self, key: str, sentence: str) -> None:
        line = self._lines.get(key) or self._lines.get(key.rpartition(".")[0])
        self.found.append(f"line {line}: {key}: {sentence}" if line else f"{key}: {sentence}")


def _lines_of_keys(text: str) -> dict[str, int]:
    """The line of each `key = …` and `[section]`. Keys inside of inline tables have the line of their table."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line):
            section = re.sub(r"[\"'\s]", "", header[1])
            found.setdefault(section, number)
        elif key := re.match(r"""\s*("[^"]*"|'[^']*'|[\w.-]+)\s*=""", line):
            name = key[1].strip("\"'")
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


class Section:
    """`values` is the table, `path` its name in the file (empty at the top)."""

    def __init__(self, values: object, path: str, problems: Problems) -> None:
        self.path = path
        self.problems = problems
        self.is_there = values is not None
        self._is_no_table = values is not None and not isinstance(values, Mapping)
        if self._is_no_table:
            problems.add(path, f"must be a table, not {_kind(values)}.")
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        self._read: set[str] = set()

    def add(self, key: str, sentence: str) -> None:
        if self._is_no_table:  # already reported, and the section has no keys to check
            return
        self.problems.add(f"{self.path}.{key}" if self.path and key else key or self.path, sentence)

    def raw(self, key: str) -> Any:
        self._read.add(key)
        return self.values.get(key)

    def section(self, key: str) -> "Section":
        return Section(self.raw(key), f"{self.path}.{key}" if self.path else key, self.problems)

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.add(key, f"must be a text that is not empty, not {_kind(value)}.")
        return None

    def needed_text(self, key: str, example: str) -> str:
        value = self.text(key)
        if value is None and self.values.get(key) is None:
            self.add(key, f"is missing; for example {key} = {example}.")
        return value or "?"

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.raw(key)
        if value is None:
            return ()
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list) and value and all(isinstance(one, str) and one for one in value):
            return tuple(dict.fromkeys(value))
        self.add(key, f"must be a list of texts, not {_kind(value)}.")
        return ()

    def number(self, key: str) -> int | None:
        value = self.raw(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            return value
        self.add(key, f"must be a whole number above zero, not {value!r}.")
        return None

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str | None:
        """One of the choices; None, with a problem recorded, if the value is another or missing without a default."""
        known = list(choices)
        value = self.raw(key)
        if value is None and default is not None:
            return default
        if value in known:
            return str(value)
        message = "is missing" if value is None else f"cannot be {value!r}"
        self.add(key, f"{message}; choose one of {', '.join(known)}{_meant(value, known) or '.'}")
        return None

    def interval(self, key: str, default: str | None = None) -> str | None:
        value = self.text(key) if key in self.values else default
        self._read.add(key)
        if value is not None and not INTERVAL.fullmatch(value):
            self.add(key, f"'{value}' is no length of time; write it as '10 seconds', '5 minutes', '1 hour'.")
            return default
        return value

    def topic(self, key: str) -> str:
        value = self.needed_text(key, '"orders"')
        if value != "?":
            self.check_topic(key, value)
        return value

    def check_topic(self, key: str, name: str) -> None:
        if not NAME.fullmatch(name) or name in (".", ".."):
            self.add(key, f"'{name}' cannot be a topic's name: letters, digits, '.', '_' and '-', at most 249.")

    def table_of_texts(self, key: str) -> dict[str, str]:
        inner = self.section(key)
        found = {}
        for name in inner.values:
            value = inner.raw(name)
            if isinstance(value, bool):
                value = str(value).lower()
            if isinstance(value, str | int | float):
                found[name] = str(value)
            else:
                inner.add(name, f"must be a text, not {_kind(value)}.")
        return found

    def unread(self, known: Iterable[str] = ()) -> None:
        """Report every key that was not read. `known` are keys that are valid elsewhere."""
        names = [*self._read, *known]
        for key in self.values:
            if key not in self._read:
                self.add(key, f"is not known here{_meant(key, names) or '.'}")


def _meant(word: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _kind(value: object) -> str:
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    if value == "":
        return "an empty one"
    return names.get(type(value), type(value).__name__)
