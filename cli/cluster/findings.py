"""The findings of the `trioka doctor` commands, as rows of a table."""

from typing import Final, NamedTuple

from ..terminal.output import Column

OK, WARNING, FAILED = "ok", "warning", "failed"

COLUMNS: Final = (
    Column("CHECK", "check"),
    Column("STATUS", "status"),
    Column("FOUND", "found"),
    Column("NEXT", "next"),
)


class Finding(NamedTuple):
    """`next` is the next command or action."""

    check: str
    status: str
    found: str
    next: str | None = None
