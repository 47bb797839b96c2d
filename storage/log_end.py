"""Where a log ends, how much of it is durable and compacted, and how much its leader appended since it was opened.

**Two threads use these numbers.** The log's own thread appends and cuts; a worker thread syncs. All that they share is
here, under one `lock` (which `Segments` takes too, when it makes, renames or cuts files):

    log_end_offset       an append raises it without the lock, when its bytes are written; to lower it takes the lock
    recovery_point       everything before it is durable. A sync raises it, a cut lowers it, never beyond the log's end
    first_dirty_offset   everything before it is compacted. A cut lowers it, because new records follow there
    cuts                 how often the end was lowered

A sync takes a `SyncPoint` under the lock, works without it, and reports under the lock that it is done. If the log
was cut meanwhile, the end that it saw may be gone, or belong to other records, and the recovery point stays.

A cut lowers the numbers *before* it updates the checkpoints and changes a file. So a sync that begins meanwhile cannot
record the removed end as durable, and a checkpoint that is written meanwhile never covers what is about to be cut.

The counts are for metrics. Appends count batches and bytes; messages are counted by offsets. Changes of the log's end
other than its leader's appends (a copy from another leader, a cut) are subtracted by
`move_end`.
"""

from threading import Lock
from typing import NamedTuple


class AppendResult(NamedTuple):
    """The position of an appended batch. A `duplicate` was there before; its answer must wait for the high watermark
    too."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 under CreateTime
    log_start_offset: int
    duplicate: bool


class SyncPoint(NamedTuple):
    """The range that a sync makes durable: everything before `end_offset`, unless the log is cut again meanwhile."""

    end_offset: int
    cuts: int


class LogEnd:
    __slots__ = (
        "__weakref__",
        "_not_appended",
        "appended_batches",
        "appended_bytes",
        "cuts",
        "first_dirty_offset",
        "lock",
        "log_end_offset",
        "recovery_point",
        "touched",
    )

    def __init__(self, log_end_offset: int, recovery_point: int = 0) -> None:
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.first_dirty_offset: int | None = None  # None: no round of compaction has ended yet
        self.cuts = 0
        self.lock = Lock()
        self.touched = False  # since it was opened: a log that was not need not be synced when it is closed
        self.appended_batches = 0
        self.appended_bytes = 0
        self._not_appended = log_end_offset  # of the offsets before the end

    # Durability ------------------------------------------------------------------------------------------------------

    def sync_point(self) -> SyncPoint:
        """The range that a sync makes durable if it begins now. The caller holds the lock."""
        return SyncPoint(self.log_end_offset, self.cuts)

    def became_durable(self, point: SyncPoint) -> bool:
        """A sync has ended; false if the log was cut meanwhile. The caller has the lock."""
        if point.cuts != self.cuts:
            return False
        self.recovery_point = max(self.recovery_point, point.end_offset)
        return True

    def lower_end(self, offset: int) -> None:
        """The log is about to be cut there."""
        with self.lock:
            self.cuts += 1
            if offset < self.log_end_offset:
                self.move_end(offset)
            self.recovery_point = min(self.recovery_point, offset)
            if self.first_dirty_offset is not None:
                self.first_dirty_offset = min(self.first_dirty_offset, offset)

    def begin_at(self, offset: int) -> None:
        """The log continues at this offset, behind a gap or empty; everything before it is durable, or removed."""
        with self.lock:
            self.move_end(offset)
            self.recovery_point = offset

    # Counts ----------------------------------------------------------------------------------------------------------

    @property
    def appended_messages(self) -> int:
        return self.log_end_offset - self._not_appended

    def move_end(self, offset: int) -> None:
        """To this offset, and not because a leader has appended."""
        self._not_appended += offset - self.log_end_offset
        self.log_end_offset = offset

    def count_on(self, former: "LogEnd") -> None:
        """This log replaces another, and continues its counts of appends."""
        self.appended_batches, self.appended_bytes = former.appended_batches, former.appended_bytes
        self._not_appended = self.log_end_offset - former.appended_messages
