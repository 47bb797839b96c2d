"""The interface between raft.py and the replicated log. A broker keeps the log in files, a simulation in a list."""

from typing import Protocol

from .raft_messages import EpochAndOffset


class RaftLog(Protocol):
    """The log, as far as agreeing needs it."""

    @property
    def start(self) -> EpochAndOffset:
        """The start of the log, and the epoch of the record before it: those of the snapshot below it."""
        ...

    @property
    def end(self) -> EpochAndOffset: ...

    @property
    def durable_offset(self) -> int:
        """Everything before it would survive a loss of power."""
        ...

    @property
    def high_watermark(self) -> int: ...

    def end_of_epoch(self, epoch: int) -> EpochAndOffset:
        """The largest epoch in the log that is not above this one, and the end of its records."""
        ...
