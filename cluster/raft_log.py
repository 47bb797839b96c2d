"""What raft.py asks of the log that is agreed upon. A broker keeps it in files, a simulation in a list."""

from typing import Protocol

from .raft_messages import LogEnd


class RaftLog(Protocol):
    """The log, as far as agreeing needs it."""

    @property
    def start(self) -> LogEnd:
        """Where it begins, and the epoch of what was before: the snapshot it builds upon."""
        ...

    @property
    def end(self) -> LogEnd: ...

    @property
    def durable_offset(self) -> int:
        """Everything before it would survive a loss of power."""
        ...

    @property
    def high_watermark(self) -> int: ...

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """The largest epoch in the log that is no larger than this one, and where its records end."""
        ...
