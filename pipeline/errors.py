"""Errors of a pipeline by origin: the user's input (exit code 2), the environment (3), or Spark (1).

Every message consists of whole sentences that name the key, the file or the address; none is a traceback.
"""

import itertools
from collections.abc import Sequence


class PipelineFailed(Exception):
    """The stream stopped with an error that comes neither from the declaration nor from an unreachable resource."""

    exit_code = 1


class InvalidPipeline(PipelineFailed):
    """The user's input is invalid: one sentence for each problem."""

    exit_code = 2

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class ResourceUnreachable(PipelineFailed):
    """A resource cannot be reached or has no space: a broker, a registry, a Java, a disk."""

    exit_code = 3


def first_sentence(error: Exception) -> str:
    """The first paragraph of an error of Spark, which has the reason; a plan or a stack follows it."""
    explained = itertools.takewhile(lambda line: not line.startswith("\tat "), str(error).split(";\n")[0].splitlines())
    lines = [line.strip() for line in explained if line.strip()]
    text = " ".join(lines)
    for mark in (" SQLSTATE", " == SQL", " === "):
        text = text.split(mark)[0]
    return text.rstrip(".;") + "."
