"""Counts rows that come later than the watermark allows, which Spark drops silently, and reports them.

Spark counts the rows that its stateful steps drop. Before the window lookup, each of Spark's tasks has merged the rows
of one batch, window and group to one row, so the count of aggregated records is a lower bound.

The count is kept in the checkpoint, by batch, so that it continues after a restart.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from .checkpoint import Checkpoint


def late_sentence(rows: int) -> str:
    which, were = ("row", "was") if rows == 1 else ("rows", "were")
    return f"{rows} {which} came later than the watermark allows and {were} dropped."


class LateRows:
    """The late rows of one pipeline, counted at intervals and once at the end."""

    def __init__(self, checkpoint: "Checkpoint", say: Callable[[str], None]) -> None:
        self._checkpoint = checkpoint
        self._say = say
        self._seen = ""
        self._batch = -1
        self._rows: int | None = None

    def look(self, query: "StreamingQuery") -> None:
        """Count the rows that finished batches dropped since the last call."""
        last = query.lastProgress
        if last is None or last.timestamp == self._seen:
            return
        self._seen = last.timestamp
        if self._rows is None:
            kept = self._checkpoint.late()
            self._batch, self._rows = kept.get("batch", -1), kept.get("rows", 0)
        for progress in query.recentProgress:
            dropped = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
            if dropped > 0 and progress.batchId > self._batch:
                self._batch, self._rows = progress.batchId, self._rows + dropped
                self._checkpoint.keep_late({"batch": self._batch, "rows": self._rows})
                self._say(f"records: batch {progress.batchId}: {late_sentence(dropped)}")

    def end(self, query: "StreamingQuery | None") -> None:
        """Count for the last time, and report the total."""
        if query is not None:
            self.look(query)
        if self._rows:
            self._say(f"In all, {late_sentence(self._rows)}")
