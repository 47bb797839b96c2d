"""Output of a command: data to standard output, messages to standard error. The only module of this package that
prints.

A table is for users: capitals, two blanks between the columns, no borders. On a terminal rich draws it with its width
and colours; a pipe gets plain lines with raw numbers, whose units are in the titles, and rich is not loaded. The other
formats are for programs: json and yaml contain all fields, csv the columns, name one name per line.
"""

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from .time_parsing import show_bytes, show_duration

USUAL_WIDTH: Final = 80
FORMATS: Final = ("table", "wide", "json", "yaml", "csv", "name")

Row: TypeAlias = Mapping[str, Any]

# Words that are highlighted on a terminal.
COLOURS: Final = {
    "ok": "green",
    "HEALTHY": "green",
    "lagging": "yellow",
    "warning": "yellow",
    "stuck": "red",
    "failed": "red",
    "lost": "red",
    "damaged": "red",
    "UNHEALTHY": "red",
}


class Column(NamedTuple):
    """`kind` is the display of a number: "bytes", "ms" (a length of time) or unchanged."""

    title: str
    key: str
    kind: str = ""
    wide: bool = False


def is_terminal() -> bool:
    return sys.stdout.isatty()


def is_interactive() -> bool:
    """Whether a user can answer a prompt."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def write_stdout(text: str) -> None:
    """One or more lines of data."""
    sys.stdout.write(f"{text}\n")


def write_stdout_bytes(data: bytes) -> None:
    """Data without an added line end."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def flush() -> None:
    sys.stdout.flush()


def write_stderr(text: str) -> None:
    end_status()
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def is_stderr_terminal() -> bool:
    return sys.stderr.isatty()


def clear_terminal() -> None:
    """Before a table that replaces the last one. Into a pipe an empty line separates the two."""
    write_stdout("" if not is_terminal() else "\x1b[H\x1b[2J\x1b[A")


class _Status:
    """Whether the terminal's last line is a status line, which the next one replaces."""

    is_there = False


def status(text: str) -> None:
    """Show the progress of long work: one line of a terminal, cut to its width, which the next one replaces."""
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        width = USUAL_WIDTH
    sys.stderr.write(f"\r\x1b[K{text[: width - 1]}")
    sys.stderr.flush()
    _Status.is_there = True


def end_status() -> None:
    if _Status.is_there:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _Status.is_there = False


def discard_stdout() -> None:
    """Discard further output after the reader of standard output has gone; Python's last flush then does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(rows: Iterable[Row], columns: Sequence[Column], how: str, *, name: str = "name") -> None:
    """Print rows in one of the `FORMATS`. `name` is the key that `-o name` prints."""
    found = list(rows)
    if how == "json":
        write_stdout(json.dumps(found, indent=2, ensure_ascii=False))
    elif how == "yaml":
        write_stdout("\n".join(_yaml(found, "")) if found else "[]")
    elif how == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(column.key for column in columns)
        writer.writerows([_text(row.get(column.key), "", empty="") for column in columns] for row in found)
        write_stdout(out.getvalue().rstrip("\n"))
    elif how == "name":
        for each in dict.fromkeys(_text(row.get(name), "") for row in found):
            write_stdout(each)
    else:
        _table(found, [column for column in columns if how == "wide" or not column.wide], is_wide=how == "wide")


def _table(rows: list[Row], columns: Sequence[Column], *, is_wide: bool) -> None:
    if is_terminal():
        _draw(rows, columns, is_wide=is_wide)
        return
    lines = [[f"{column.title}({column.kind})" if column.kind else column.title for column in columns]]
    lines += [[_text(row.get(column.key), "") for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        write_stdout("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _draw(rows: list[Row], columns: Sequence[Column], *, is_wide: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="" if os.environ.get("NO_COLOR") else "bold"
    )
    texts = [[_text(row.get(column.key), column.kind) for column in columns] for row in rows]
    needed = 0
    for number, column in enumerate(columns):
        cells = [column.title, *(each[number] for each in texts)]
        needed += 2 + max(len(word) for cell in cells for word in ([cell] if is_wide else cell.split(" ")))
        table.add_column(column.title, no_wrap=is_wide or not any(" " in cell for cell in cells), overflow="fold")
    for each in texts:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in each))
    console = Console(highlight=False)
    if needed > console.width:  # the terminal breaks the lines; no word is cut
        console.width = needed
    console.print(table, soft_wrap=is_wide)


def _text(value: Any, kind: str, *, empty: str = "-") -> str:
    if value is None or value == "":
        return empty
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={each}" for key, each in value.items()) or empty
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value) or empty
    if isinstance(value, float):
        return f"{value:.1f}"
    if kind == "bytes":
        return show_bytes(int(value))
    if kind == "ms":
        return show_duration(int(value))
    return str(value)


def _yaml(value: Any, indent: str) -> Iterable[str]:
    """Lines of YAML. Scalars are written as in JSON, which YAML reads as they are."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(each, Mapping | list | tuple) and each:
                yield f"{indent}{_scalar(key)}:"
                yield from _yaml(each, f"{indent}  ")
            else:
                yield f"{indent}{_scalar(key)}: {json.dumps(each, ensure_ascii=False)}"
    else:
        for each in value:
            if isinstance(each, Mapping | list | tuple) and each:
                first, *rest = _yaml(each, f"{indent}  ")
                yield f"{indent}- {first.removeprefix(f'{indent}  ')}"
                yield from rest
            else:
                yield f"{indent}- {json.dumps(each, ensure_ascii=False)}"


def _scalar(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").replace(".", "").isalpha() else json.dumps(key)
