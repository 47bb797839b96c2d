"""Rows that come later than the watermark allows. Spark drops them in silence; here they are counted and said.

Spark counts what its stateful steps drop. Before a window is looked up, the rows of one batch, window and group have
become one row in each of Spark's tasks: so of records that are aggregated the count is the least there were.

The count is kept in the checkpoint, by batch, so that a start after a stop goes on with it.
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
    """Of the rows of one pipeline. Looked at now and then, and once at the end."""

    def __init__(self, checkpoint: "Checkpoint", say: Callable[[str], None]) -> None:
        self._checkpoint = checkpoint
        self._say = say
        self._seen = ""
        self._batch = -1
        self._rows: int | None = None

    def look(self, query: "StreamingQuery") -> None:
        """Count what finished batches have dropped since the last look."""
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
        """The last look, and what there was in all."""
        if query is not None:
            self.look(query)
        if self._rows:
            self._say(f"In all, {late_sentence(self._rows)}")
