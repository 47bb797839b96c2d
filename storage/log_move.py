"""How a log moves from one log directory to another while it is read and written.

A copy is made in the target directory, under the name `<topic>-<partition>.<32 hex digits>-future`, filled from the log
as a follower would be, and takes its place when nearly nothing is missing:

    worker thread   `begin`       an empty log in the target
                    `take`        piece by piece, until the rest is small
                    `settle`      the copy is durable, and the target's checkpoints say how far
    event loop      `promote`  the rest is copied, the copy gets the partition's name (one rename), and is used from
                                  then on. Nothing waits, so no reader sees a log that is neither of the two
    worker thread   `settle`      the copy is durable under its name
                    `retire`      the former log becomes `-delete`

**A crash loses nothing**, at any step. Before the rename is durable there is the former log, whole. Afterwards there
may be two: a record that was acknowledged before the copy took its place is durable in the former log, or in both; one
that was acknowledged later is durable in the copy, with everything before it, because a sync after a rename includes
the name (segments.py). And the former log is not changed before the copy is durable. So of two logs the longer has all
acknowledged records (`longer_copy`). A copy that has not got its name is dropped after a crash.

If a log is cut while it is copied (a follower's may be), it diverges from its copy; the epochs show that (I8), and the
copy starts again. The same happens when retention overtakes it.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from .directory import LogDirectory
from .file_pool import FileRange
from .layout import TopicPartition
from .log import Log

PIECE_BYTES: Final = 1024 * 1024
"""Copied at once. The last piece is copied by the event loop, which takes it half a millisecond."""


class CopyStep(Enum):
    APPEND = auto()  # these records
    RESTART = auto()  # at this offset
    SKIP = auto()  # to this offset: compaction can leave a log that ends behind its last record
    BEGIN_EPOCH = auto()  # which has no record yet, but is known to have begun (I10)


class CopyPiece(NamedTuple):
    """The next piece of a copy."""

    step: CopyStep
    offset: int  # up to which the copy has everything then
    records: FileRange | None = None
    epoch: int = -1

    @property
    def size(self) -> int:
        return 0 if self.records is None else self.records.size


class FutureLog:
    """A copy in progress. Made by `begin`."""

    def __init__(self, source: LogDirectory, target: LogDirectory, current: Log, log: Log) -> None:
        self.source = source
        self.target = target
        self.current = current
        self.log = log
        self._topic_id = source.topic_ids.get(current.name)

    @classmethod
    def begin(
        cls, source: LogDirectory, target: LogDirectory, current: Log, unique: str, *, start_offset: int, now_ms: int
    ) -> "FutureLog":
        """`start_offset` is the result of `start_of`. Blocks."""
        name = current.name
        log = target.begin_future(
            name,
            current.config,
            unique,
            start_offset=start_offset,
            topic_id=source.topic_ids.get(name),
            now_ms=now_ms,
        )
        return cls(source, target, current, log)

    @property
    def lag(self) -> int:
        """How many offsets are missing."""
        return self.current.log_end_offset - self.log.log_end_offset

    # In the event loop, which has the current log --------------------------------------------------------------------

    def next_copy_step(self, max_bytes: int = PIECE_BYTES) -> CopyPiece | None:
        """None if nothing is missing. KafkaError if the log cannot be read."""
        current, end = self.current, self.log.log_end_offset
        if end < current.local_log_start_offset or self._has_diverged():
            return CopyPiece(CopyStep.RESTART, start_of(current))
        if end == current.log_end_offset:
            begun = self._epoch_without_a_record
            return None if begun is None else CopyPiece(CopyStep.BEGIN_EPOCH, end, epoch=begun)
        read = current.read(end, max_bytes)
        if read.records is None:
            return CopyPiece(CopyStep.SKIP, current.log_end_offset)
        return CopyPiece(CopyStep.APPEND, read.next_offset, read.records)

    def _has_diverged(self) -> bool:
        epoch, end = self.log.epochs.latest_epoch, self.log.log_end_offset
        if end > self.current.log_end_offset:
            return True
        if epoch < 0:
            return False
        known, known_end = self.current.epochs.end_offset_for(epoch, self.current.log_end_offset)
        return known != epoch or known_end < end

    @property
    def _epoch_without_a_record(self) -> int | None:
        current, latest = self.current, self.current.epochs.latest_epoch
        if latest <= self.log.epochs.latest_epoch or current.epochs.start_offset_of(latest) < current.log_end_offset:
            return None
        return latest

    @property
    def is_nearly_caught_up(self) -> bool:
        """Whether at most one small piece of records is missing, so that the copy can replace the log."""
        piece = self.next_copy_step()
        if piece is None:
            return True
        is_last = piece.step is CopyStep.APPEND and piece.offset == self.current.log_end_offset
        return is_last and self._epoch_without_a_record is None

    def promote(self, *, now_ms: int) -> Log:
        """From here on the copy is the log. `is_nearly_caught_up` was true, without an await since."""
        current, log = self.current, self.log
        piece = self.next_copy_step()
        if piece is not None:
            self.take(piece, now_ms=now_ms)
        assert log.log_end_offset == current.log_end_offset, f"{log} is no copy of {current}"
        log.config = current.config
        log.producers.adopt(current.producers)
        log.advance_high_watermark(current.high_watermark)
        if current.has_remote_part:
            log.log_start_offset = current.log_start_offset
            log.epochs.replace(current.epochs.entries)
        log.delete_records_before(current.log_start_offset)
        self.target.promote_future(log.name, self._topic_id)
        self.source.detach_replaced(log.name)
        return log

    # In a worker thread, which has the copy --------------------------------------------------------------------------

    def take(self, piece: CopyPiece, *, now_ms: int) -> None:
        """Append a piece. Blocks."""
        match piece.step:
            case CopyStep.APPEND:
                assert piece.records is not None
                self.log.append_as_follower(piece.records.read(), now_ms=now_ms)
            case CopyStep.RESTART:
                self.log.truncate_fully_and_start_at(piece.offset, now_ms=now_ms)
            case CopyStep.SKIP:
                self._skip_to(piece.offset, now_ms)
            case CopyStep.BEGIN_EPOCH:
                self.log.begin_epoch(piece.epoch)

    def _skip_to(self, offset: int, now_ms: int) -> None:
        """Everything before the gap becomes durable first, so that no crash can take the gap for a lost write."""
        log = self.log
        log.roll(now_ms=now_ms)
        log.sync()
        log.begin_at(offset)
        log.producers.end_offset = offset
        log.segments.begin_after_gap(offset, now_ms=now_ms)

    def settle(self) -> None:
        """Durable, and noted. Blocks; once the copy has taken its place, others may use it meanwhile."""
        self.log.sync()
        self.target.checkpoint()

    def retire(self, unique: str, *, now_ms: int) -> None:
        """Removes the former log, after the copy has replaced it and is settled. Blocks."""
        self.source.retire(self.log.name, unique, now_ms=now_ms)

    def drop(self) -> None:
        """Removes the copy, which is no longer needed. Blocks."""
        self.target.drop_future(self.log.name)


def start_of(current: Log) -> int:
    """Where a copy begins: with the batch that holds the log's local start."""
    return min(current.read(current.local_log_start_offset, 1).start_offset, current.local_log_start_offset)


def longer_copy(copies: Sequence[LogDirectory], name: TopicPartition) -> LogDirectory:
    """The directory that keeps its log, of all that have a log of this name after a crash."""
    kept = max(copies, key=lambda each: (each.logs[name].epochs.latest_epoch, each.logs[name].log_end_offset))
    log = kept.logs[name]
    for other in (each.logs[name] for each in copies if each is not kept):
        # The log start was written to the checkpoint of the log that was in use.
        log.advance_high_watermark(other.high_watermark)
        if other.has_remote_part:
            log.log_start_offset = min(log.log_start_offset, other.log_start_offset)
        log.delete_records_before(min(other.log_start_offset, log.high_watermark))
    return kept
