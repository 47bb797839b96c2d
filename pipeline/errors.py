"""Errors of a pipeline by origin: the user's input (exit code 2), the environment (3), or Spark (1).

Every message consists of whole sentences that name the key, the file or the address; none is a traceback.
"""

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
