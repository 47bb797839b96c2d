"""A failed command: for users, what happened, why, and the next command; for scripts, an exit code.

    error: topic 'ordres' does not exist on localhost:9092        [TRK-1003 UNKNOWN_TOPIC_OR_PARTITION]
      did you mean: orders?   create it: trioka topics create ordres   more: trioka explain TRK-1003

A code of Kafka's protocol is TRK-1000 plus its number, so TRK-1003 is Kafka's error 3. Errors before a broker answers
have codes from TRK-2001 on; `cli/problems.py` lists them. The start of `trioka dev` imports this file, so it imports
nothing itself.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

KAFKA_CODES_FROM: Final = 1000
LABEL_COLUMN: Final = 88  # column of the code, if the sentence is short enough


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    UNAUTHORISED = 4
    NOT_FOUND = 5
    EXISTS = 6
    PARTLY = 7
    UNHEALTHY = 10
    INTERRUPTED = 130


class Failure(Exception):
    """One sentence for the user, with the exit code for scripts."""

    def __init__(
        self, what: str, *, exit_code: int = Exit.FAILED, code: str = "", name: str = "", hints: Sequence[str] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.exit_code = int(exit_code)
        self.code = code
        self.name = name
        self.hints = tuple(hints)

    def __str__(self) -> str:
        """Both lines, without a line end."""
        first = f"error: {self.what}"
        hints = list(self.hints)
        if self.code:
            label = f"{self.code} {self.name}".strip()
            first = f"{first:<{LABEL_COLUMN}}[{label}]" if len(first) < LABEL_COLUMN else f"{first}  [{label}]"
            hints.append(f"more: trioka explain {self.code}")
        return "\n".join([first, f"  {'   '.join(hints)}"] if hints else [first])


class CannotStart(Failure):
    """A broker that cannot start."""


def did_you_mean(word: str, known: Iterable[str]) -> list[str]:
    """A hint with similar names, or an empty string."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return [f"did you mean: {', '.join(near)}?"] if near else []
