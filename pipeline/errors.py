"""What may go wrong with a pipeline, by whose matter it is: the user's (exit code 2), the world's (3), or Spark's (1).

Every one of them is said in whole sentences that name the key, the file or the address, and none with a traceback.
"""

from collections.abc import Sequence


class PipelineFailed(Exception):
    """The stream stopped by an error that is neither in the declaration nor out of reach."""

    exit_code = 1


class WrongPipeline(PipelineFailed):
    """What the user gave is wrong; every problem that was found, one sentence each."""

    exit_code = 2

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class OutOfReach(PipelineFailed):
    """Something outside cannot be reached or has no room: a broker, a registry, a Java, a disk."""

    exit_code = 3
