"""How a log moves from one log directory to another while it is read and written.

A copy is made where the log shall be, under the name `<topic>-<partition>.<32 hex digits>-future`, filled from the log
as a follower would be, and takes its place when nearly nothing is missing:

    worker thread   `begin`       an empty log in the target
                    `take`        piece by piece, until the rest is small
                    `settle`      the copy is durable, and the target's checkpoints say how far
    event loop      `take_place`  the rest is copied, the copy gets the partition's name (one rename), and is used from
                                  then on. Nothing waits, so nobody sees a log that is neither of the two
    worker thread   `settle`      the copy is durable under its name
                    `retire`      the former log becomes `-delete`

**A crash loses nothing**, at any step. Before the rename is durable there is the former log, whole. Afterwards there
may be two: a record that was promised before the copy took its place is durable in the former log, or in both; one that
was promised later is durable in the copy, with everything before it, because a sync after a rename includes the name
(segments.py). And the former log is not touched before the copy is durable. So of two the longer has everything that
was promised (`the_longer`). A copy that has not got its name is worth nothing after a crash.

A log that is cut while it is copied (a follower's may be) parts ways with its copy; the epochs tell (I8), and the copy
is begun anew. So it is when retention overtakes it.
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


class Step(Enum):
    APPEND = auto()  # these records
    BEGIN_ANEW = auto()  # at this offset
    SKIP = auto()  # to this offset: compaction can leave a log that ends behind its last record
    BEGIN_EPOCH = auto()  # which has no record yet, but is known to have begun (I10)


class Piece(NamedTuple):
    """What comes next."""

    step: Step
    offset: int  # up to which the copy has everything then
    records: FileRange | None = None
    epoch: int = -1

    @property
    def size(self) -> int:
        return 0 if self.records is None else self.records.size


class Future:
    """A copy on its way in. Made by `begin`."""

    def __init__(self, source: LogDirectory, target: LogDirectory, current: Log, log: Log) -> None:
        self.source = source
        self.target = target
        self.current = current
        self.log = log
        self._topic_id = source.topic_ids.get(current.name)

    @classmethod
    def begin(
        cls, source: LogDirectory, target: LogDirectory, current: Log, unique: str, *, start_offset: int, now_ms: int
    ) -> "Future":
        """`start_offset` is what `start_of` says. Blocks."""
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

    def next_piece(self, max_bytes: int = PIECE_BYTES) -> Piece | None:
        """None if nothing is missing. KafkaError if the log cannot be read."""
        current, end = self.current, self.log.log_end_offset
        if end < current.log_start_offset or self._has_parted():
            return Piece(Step.BEGIN_ANEW, start_of(current))
        if end == current.log_end_offset:
            begun = self._epoch_without_a_record
            return None if begun is None else Piece(Step.BEGIN_EPOCH, end, epoch=begun)
        read = current.read(end, max_bytes)
        if read.records is None:
            return Piece(Step.SKIP, current.log_end_offset)
        return Piece(Step.APPEND, read.next_offset, read.records)

    def _has_parted(self) -> bool:
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
    def is_near(self) -> bool:
        """Whether one small piece of records, or nothing, is missing, and the copy can take the log's place."""
        piece = self.next_piece()
        if piece is None:
            return True
        is_last = piece.step is Step.APPEND and piece.offset == self.current.log_end_offset
        return is_last and self._epoch_without_a_record is None

    def take_place(self, *, now_ms: int) -> Log:
        """From here on the copy is the log. `is_near` was true, and nobody has waited since."""
        current, log = self.current, self.log
        piece = self.next_piece()
        if piece is not None:
            self.take(piece, now_ms=now_ms)
        assert log.log_end_offset == current.log_end_offset, f"{log} is no copy of {current}"
        log.config = current.config
        log.producers.adopt(current.producers)
        log.advance_high_watermark(current.high_watermark)
        log.delete_records_before(current.log_start_offset)
        self.target.promote_future(log.name, self._topic_id)
        self.source.give_way(log.name)
        return log

    # In a worker thread, which has the copy --------------------------------------------------------------------------

    def take(self, piece: Piece, *, now_ms: int) -> None:
        """Append a piece. Blocks."""
        match piece.step:
            case Step.APPEND:
                assert piece.records is not None
                self.log.append_as_follower(piece.records.read(), now_ms=now_ms)
            case Step.BEGIN_ANEW:
                self.log.truncate_fully_and_start_at(piece.offset, now_ms=now_ms)
            case Step.SKIP:
                self._skip_to(piece.offset, now_ms)
            case Step.BEGIN_EPOCH:
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
        """The former log goes: the copy has taken its place and is settled. Blocks."""
        self.source.retire(self.log.name, unique, now_ms=now_ms)

    def drop(self) -> None:
        """The copy goes: it is not wanted any more. Blocks."""
        self.target.drop_future(self.log.name)


def start_of(current: Log) -> int:
    """Where a copy begins: with the batch that holds the log's start."""
    return min(current.read(current.log_start_offset, 1).start_offset, current.log_start_offset)


def the_longer(copies: Sequence[LogDirectory], name: TopicPartition) -> LogDirectory:
    """Of directories that all have a log of this name, after a crash, the one that shall keep it."""
    kept = max(copies, key=lambda each: (each.logs[name].epochs.latest_epoch, each.logs[name].log_end_offset))
    log = kept.logs[name]
    for other in (each.logs[name] for each in copies if each is not kept):
        # Where the log starts was noted with the one that was in use.
        log.advance_high_watermark(other.high_watermark)
        log.delete_records_before(min(other.log_start_offset, log.high_watermark))
    return kept
