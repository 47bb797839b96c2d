"""A partition's log: the records of one replica, in order, in segments.

    log start ── local log start ────────── last stable ──── high watermark ──────── log end
    │ (remote)   │ segment │ segment │ segment │ active segment                          │
                           └ recovery point: everything before it is synced

The two starts differ only if the topic is tiered and its oldest segments are only in the object store (tiered_log.py).

One thread uses a log. Methods that block say so. Only `sync` may run in a worker thread meanwhile (`GroupCommit`).

**Append** validates the batch (append_validation.py), checks its sequence numbers (producer_state.py), sets its offset
in place, writes it once, and then updates memory. After a failed write memory is unchanged and the log directory is
offline (failstop_disk.py) until a restart has checked what reached the disk (S4).

**Read** returns file ranges of whole batches (read_plan.py), each checked before it is first sent (S5). Damage that a
read finds goes to the quarantine (quarantine.py): the log serves the undamaged rest and appends go on (S6). The damaged
range is repaired from another replica (segment_repair.py). A wrong index is rebuilt at once.

**Delete** and truncate write the checkpoints first (segments.py), rename files to `.deleted`, and remove them in
`sweep` after file.delete.delay.ms.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NoReturn, TypeVar

from trioka.protocol.batch import CONTROL, BatchHeader, assign_offset
from trioka.protocol.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    RecordListTooLarge,
)

from .append_validation import AppendOrigin, BatchValidator, validate_replicated
from .batch_append import append_limits
from .batch_scan import MAX_RELATIVE_OFFSET, BadBatch
from .file_pool import FilePool
from .index import CorruptIndex
from .index_rebuild import (
    PRODUCER_EXPIRATION_MS,
    epochs_agree,
    epochs_of,
    rebuild_indexes,
    rebuild_txn_index,
    replay_into,
    restore_recent_batches,
    txn_index_agrees,
)
from .layout import LEADER_EPOCHS, Suffix, TopicPartition
from .leader_epochs import LeaderEpochCache
from .log_config import LogConfig
from .log_end import AppendResult, LogEnd
from .producer_state import ProducerState, WrittenBatch, marker_of
from .quarantine import Quarantine
from .read_plan import LogRead, ReadPlan, check_around_holes, plan, search_start
from .recovery import LoadedLog, RecoveryReport, ShutdownState, load
from .segment import Segment
from .segments import Segments
from .txn_index import AbortedTransaction

LOADING_FILES: Final = 8  # of the pool that a log has while it is loaded

Answer = TypeVar("Answer")


class Log(LogEnd):
    __slots__ = (
        "_config",
        "_epochs_checked",
        "_indexed_bytes",
        "_random",
        "_validator",
        "append_limits",
        "closed",
        "epochs",
        "files",
        "high_watermark",
        "is_compacting",
        "keep",
        "local_log_start_offset",
        "log_start_offset",
        "name",
        "producers",
        "quarantine",
        "report",
        "segments",
    )

    def __init__(
        self,
        files: FilePool,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        keep: "Callable[[Log], None] | None" = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(loaded.log_end_offset, loaded.recovery_point)
        self.files = files
        self.name = name
        self.config = config
        self.keep = keep  # writes this log's entries in the checkpoints at once
        self.segments = Segments(files, directory, loaded.segments, self.lock)
        self.log_start_offset = loaded.log_start_offset
        self.local_log_start_offset = self.high_watermark = loaded.local_log_start_offset
        self.epochs: LeaderEpochCache = loaded.epochs
        self.producers: ProducerState = loaded.producers
        self.report: RecoveryReport | None = loaded.report if loaded.report.has_findings else None
        self.quarantine = Quarantine(files.disk, directory, loaded.report.damages)
        self.closed = self.is_compacting = False
        self._random = random
        self._epochs_checked = False
        self.producers.on_high_watermark_moved(self.high_watermark)

    @classmethod
    def open(
        cls,
        files: FilePool,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        stopped: ShutdownState,
        *,
        now_ms: int,
        keep: "Callable[[Log], None] | None" = None,
        random: Random | None = None,
    ) -> "Log":
        """The log in a directory, which exists, and may be empty. Blocks; may run in a worker thread."""
        loading = FilePool(files.disk, limit=LOADING_FILES, views_limit=LOADING_FILES)
        try:
            loaded = load(loading, directory, config, stopped, now_ms=now_ms)
            for segment in loaded.segments:
                segment.use(files)
        finally:
            loading.close()
        return cls(files, directory, name, config, loaded, keep=keep, random=random)

    def __repr__(self) -> str:
        return f"<Log {self.name} {self.log_start_offset}–{self.log_end_offset}>"

    @property
    def directory(self) -> str:
        return self.segments.directory

    @property
    def has_remote_part(self) -> bool:
        return self.local_log_start_offset > self.log_start_offset

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._validator = BatchValidator(config)
        # Below this size no index of a segment can be full: there is at most one entry for each interval.
        self._indexed_bytes = config.index_interval_bytes * max(config.segment_index_bytes // 12 - 2, 0)
        self.append_limits = append_limits(config, self._indexed_bytes)

    # Appending -------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        buffer: memoryview | bytearray,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Appends one batch, and sets its offsets in place. Raises the error for the client."""
        if self.closed:
            self._refuse()
        buffer, header, append_time_ms = self._validator.validate(buffer, now_ms=now_ms, origin=origin)
        if header.size > self._config.segment_bytes:
            raise RecordListTooLarge(f"{header.size} bytes; a segment has {self._config.segment_bytes}")
        marker = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL:
                marker = marker_of(buffer, header)
                if marker is not None:
                    self.producers.check_marker(header, marker, transaction_version=transaction_version)
            else:
                written = self._find_duplicate(header, origin)
                if written is not None:
                    return AppendResult(
                        written.first_offset, written.last_offset, written.timestamp, self.log_start_offset, True
                    )
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        if leader_epoch != self.epochs.latest_epoch:
            self._begin_epoch(leader_epoch, first_offset)
        segment = self._segment_for(header.size, last_offset, header.max_timestamp, now_ms)
        assign_offset(buffer, 0, first_offset, leader_epoch)
        segment.append(buffer, last_offset, header.max_timestamp, self._config.index_interval_bytes)
        self.log_end_offset = last_offset + 1
        self.appended_batches += 1
        self.appended_bytes += header.size
        self.touched = True

        producers = self.producers
        if marker is not None:
            ended = producers.apply_marker(header, marker, first_offset, header.max_timestamp)
            if ended is not None and ended.aborted:
                self._note_aborted(segment, AbortedTransaction(*ended[:4]))
        elif header.producer_id >= 0:
            producers.apply(header, first_offset, header.max_timestamp)
        producers.end_offset = last_offset + 1
        return AppendResult(first_offset, last_offset, append_time_ms, self.log_start_offset, False)

    def _find_duplicate(self, header: BatchHeader, origin: AppendOrigin) -> WrittenBatch | None:
        """Looks in the producers' batches. If the disk has failed, that is the cause: it refused the batch before."""
        try:
            return self.producers.check(header, sequences=origin is AppendOrigin.CLIENT)
        except KafkaError:
            self.files.disk.exists(self.directory)  # KafkaStorageError, if it is offline
            raise

    def append_as_follower(self, buffer: memoryview | bytearray | bytes, *, now_ms: int) -> AppendResult:
        """Batches as a leader sent them, with their offsets and epochs. A torn last batch is left out. Offsets may
        leave gaps (the leader's log is compacted) but never go back: UnexpectedAppendOffset. One write per segment."""
        if self.closed:
            self._refuse()
        batches = validate_replicated(buffer, self.log_end_offset, self.epochs.latest_epoch)
        if not batches:
            return AppendResult(self.log_end_offset, self.log_end_offset - 1, -1, self.log_start_offset, False)
        view = memoryview(buffer)
        start = 0
        while start < len(batches):
            first = batches[start]
            segment = self._segment_for(first.size, first.last_offset, first.max_timestamp, now_ms)
            end = start + 1
            size = first.size
            free_bytes = self._config.segment_bytes - segment.size
            while (
                end < len(batches)
                and size + batches[end].size <= free_bytes
                and segment.takes(batches[end].last_offset)
            ):
                size += batches[end].size
                end += 1
            self._append_group(segment, view[first.position : first.position + size], batches[start:end])
            start = end
        return AppendResult(batches[0].base_offset, batches[-1].last_offset, -1, self.log_start_offset, False)

    def _append_group(self, segment: Segment, view: memoryview, batches: list[BatchHeader]) -> None:
        start = batches[0].position
        moved = [header._replace(position=header.position - start) for header in batches] if start else batches
        for header in moved:
            if header.leader_epoch > self.epochs.latest_epoch:
                self._begin_epoch(header.leader_epoch, header.base_offset)
        segment.append_batches(view, moved, self._config.index_interval_bytes)
        self.move_end(moved[-1].last_offset + 1)
        self.touched = True
        for header in moved:
            ended = self.producers.replay(view, header)
            if ended is not None and ended.aborted:
                self._note_aborted(segment, AbortedTransaction(*ended[:4]))
        self.producers.end_offset = self.log_end_offset

    def _note_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        segment.txn_index.append(aborted)
        self.segments.on_file_created()  # perhaps: with its first entry

    def _begin_epoch(self, epoch: int, offset: int) -> None:
        if epoch < self.epochs.latest_epoch:
            raise FencedLeaderEpoch(f"{self.name}: epoch {epoch} after {self.epochs.latest_epoch}")
        self.epochs.assign(epoch, offset)

    def begin_epoch(self, epoch: int) -> None:
        """A new leader notes where it starts, before it takes a write (I10). Blocks."""
        if self.closed:
            self._refuse()
        if epoch != self.epochs.latest_epoch:
            self._begin_epoch(epoch, self.log_end_offset)

    def _refuse(self) -> NoReturn:
        raise KafkaStorageError(f"{self.name} is closed")

    # Segments --------------------------------------------------------------------------------------------------------

    def _segment_for(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The active segment, rolled if this batch should not go into it."""
        segment, config = self.segments.active, self._config
        if not segment.ready:
            self.query(segment, Segment.prepare_indexes)
        if segment.size:
            first = segment.first_timestamp()
            waited = timestamp - first if first >= 0 else now_ms - segment.created_ms
            if (
                segment.size + size > config.segment_bytes
                or waited > config.roll_ms - segment.jitter_ms
                or (segment.size >= self._indexed_bytes and segment.is_full(config.segment_index_bytes))
            ):
                segment = self.roll(now_ms=now_ms)
        if not segment.takes(last_offset):
            return self._roll_over_a_gap(last_offset, now_ms)
        return segment

    def _roll_over_a_gap(self, last_offset: int, now_ms: int) -> Segment:
        """An index cannot express so distant an offset. For a follower of a compacted log even a new segment may begin
        too early: so that recovery does not take the gap for a lost write, all before it is made durable (blocks)."""
        segment = self.roll(now_ms=now_ms)
        if not segment.takes(last_offset):
            self.sync()
            self.begin_at(last_offset - MAX_RELATIVE_OFFSET)
            self._keep()
            segment = self.segments.begin_after_gap(self.log_end_offset, now_ms=now_ms)
        return segment

    def roll(self, *, now_ms: int) -> Segment:
        """Close the active segment and begin the next, at the log's end. Nothing is synced: `sync` does it later."""
        active = self.segments.active
        if active.size == 0 and active.base_offset == self.log_end_offset:
            active.created_ms = now_ms
            return active
        if self.closed:
            self._refuse()
        self.producers.end_offset = self.log_end_offset
        self.producers.take_snapshot(sync=False)
        jitter_ms = min(self._config.segment_jitter_ms, self._config.segment_ms)
        jitter_ms = self._random.randrange(jitter_ms) if self._random is not None and jitter_ms else 0
        self.touched = True
        return self.segments.add(self.log_end_offset, now_ms=now_ms, jitter_ms=jitter_ms)

    def sync(self) -> None:
        """Makes durable what was appended before this call; then the recovery point moves (S2). Blocks: for a worker
        thread, where it opens files of its own."""
        try:
            self.segments.sync(self)
        except OSError:  # its files are not where they were; a disk that fails is a KafkaStorageError
            if not self.closed:  # deleted, or replaced by a durable copy: no flush of these bytes is needed
                raise

    flush = sync

    def _keep(self) -> None:
        if self.keep is not None:
            self.keep(self)

    def close(self) -> None:
        """Everything durable: the next start need not look, if the directory's stop is marked as clean. Blocks."""
        if self.closed:
            return
        # After a recovery no snapshot may have the producers yet, though every record is durable.
        if self.touched or self.report is not None or self.recovery_point < self.log_end_offset:
            self.producers.take_snapshot(sync=True)
            self.segments.settle(self)
        self.close_handles()

    def close_handles(self) -> None:
        """Close without a word: the disk has failed, or the partition is deleted."""
        self.closed = True
        self.segments.close_handles()

    # Reading ---------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upto: int | None = None, at_least_one: bool = True) -> LogRead:
        """Whole batches from the one that holds `offset` on, all before `upto` (the log's end, if None).

        OffsetOutOfRange outside of [log start, log end], OffsetMovedToTieredStorage below the local log start;
        CorruptMessage where the log is damaged.
        """
        end = self.log_end_offset
        if not self.local_log_start_offset <= offset <= end:
            error = OffsetMovedToTieredStorage if self.log_start_offset <= offset <= end else OffsetOutOfRange
            raise error(f"{self.name}: {offset} is not in [{self.local_log_start_offset}, {end}]")
        if upto is None or upto > end:
            upto = end
        segments = self.segments
        segment = segments.active
        if offset < segment.base_offset:
            segment = segments.holding(offset)
        while offset < upto:
            try:
                found = None if self.quarantine.damages else plan(segment, offset, max_bytes, upto, at_least_one)
                if found is None or found[2] > offset or not segment.checked.covers(found[0], found[0] + found[1]):
                    found = self._plan(segment, offset, max_bytes, upto, at_least_one)
            except (CorruptIndex, BadBatch):
                found = self.query(segment, lambda at: self._plan(at, offset, max_bytes, upto, at_least_one))
            if found is not None:
                position, size, start_offset, next_offset = found
                if not size:
                    break
                records = segment.files.range(segment.log_path, position, size)
                return tuple.__new__(LogRead, (records, start_offset, next_offset))  # LogRead(…), at half the price
            if segment is segments.active:
                break
            segment = segments[segments.number_for(segment.base_offset) + 1]
        return LogRead(None, offset, offset)

    def _plan(self, segment: Segment, offset: int, max_bytes: int, upto: int, at_least_one: bool) -> ReadPlan | None:
        stop = None
        if self.quarantine.damages:
            upto, stop = self.quarantine.limit(segment.base_offset, offset, upto)
        found = plan(segment, offset, max_bytes, upto, at_least_one, stop)
        if found is not None and found.start_offset <= offset:
            segment.check(found.position, found.end, self.segments.expected_end(segment, self.log_end_offset))
        elif offset < (limit := self.segments.expected_end(segment, self.log_end_offset)):
            # The offset is not there. Compaction leaves gaps, but so does a wrong bit in an offset: make sure.
            end = segment.size if found is None else found.end
            check_around_holes(segment, search_start(segment, offset), end, limit)
        return found

    def query(self, segment: Segment, question: Callable[[Segment], Answer]) -> Answer:
        """Returns `question(segment)`. If it finds a wrong index or a bad batch, the segment is scanned, which blocks:
        afterwards its indexes are right, all of its damage is known, and `question` is called again."""
        try:
            return question(segment)
        except (CorruptIndex, BadBatch):
            self._heal(segment)
        try:
            return question(segment)
        except (CorruptIndex, BadBatch) as error:
            raise CorruptMessage(f"{self.name}: {segment}: {error}") from error

    def _heal(self, segment: Segment) -> None:
        expected = self.segments.expected_end(segment, self.log_end_offset)
        self.quarantine.add(rebuild_indexes(segment, self._config.index_interval_bytes, expected, limit=expected))

    # Offsets ---------------------------------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Records below it are replicated. It never goes back, nor beyond the log's end. True if it moved."""
        offset = offset if offset <= self.log_end_offset else self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark_moved(offset)
        return True

    @property
    def last_stable_offset(self) -> int:
        """Where `read_committed` ends: at the high watermark, or at the first undecided record that is not deleted."""
        return max(self.producers.last_stable_offset(self.high_watermark), self.log_start_offset)

    def aborted_transactions(self, start_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """The transactions with records in [start_offset, upper_bound): `LogRead.next_offset` is such a bound."""
        found: list[AbortedTransaction] = []
        for segment in self.segments[self.segments.number_for(start_offset) :]:
            self._check_txn_index(segment)
            transactions, complete = segment.txn_index.overlapping(start_offset, upper_bound)
            found += transactions
            if complete:
                break
        return found

    def _check_txn_index(self, segment: Segment) -> None:
        """Once for each segment: its transaction index is trusted afterwards. Blocks if it has to be rebuilt."""
        if not segment.txn_checked:
            if not txn_index_agrees(self.segments, segment):
                rebuild_txn_index(self.segments, segment, self.log_start_offset)
            segment.txn_checked = True

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one in the log, and its end (I8). Followers truncate their logs by this, so its
        first use compares it with the batches."""
        if not self._epochs_checked:
            entries = self.epochs.entries
            remote = [entry for entry in entries if entry.start_offset < self.segments[0].base_offset]
            local = remote[-1:] + entries[len(remote) :]
            if not epochs_agree(self.segments, local, self.log_end_offset):
                found = [entry for entry in epochs_of(self.segments) if not remote or entry.epoch > remote[-1].epoch]
                self.epochs = LeaderEpochCache(self.files.disk, self.epochs.path, [*remote, *found])
                if entries and entries[-1].start_offset == self.log_end_offset:
                    self.epochs.assign(*entries[-1])  # begun, and without a record yet
                self.epochs.write()
            self._epochs_checked = True
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Shrinking. All of this blocks -----------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Removes everything from `offset` on (I8: the leader's epochs decide, never the high watermark).

        A batch that contains the offset goes whole, so the log may end a little earlier. An epoch that began at the end
        and wrote nothing goes too: the current leader does not know it."""
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms, log_start_offset=min(self.log_start_offset, offset))
            return
        last = self.segments[self.segments.number_for(offset)]
        end, position = self.query(last, lambda segment: segment.end_before(offset))
        self._check_txn_index(last)
        starts = min(self.log_start_offset, end), min(self.local_log_start_offset, end)
        self._announce_cut(end, *starts, min(self.high_watermark, end))
        self.touched = True
        gone = self.segments.cut(end, last, position)
        self.segments.retire(gone, now_ms + self._config.file_delete_delay_ms)
        self.quarantine.cut(self.log_start_offset, end)
        self.epochs.truncate_from_end(end)
        self.replay_producers_from(self.log_end_offset, now_ms=now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int, log_start_offset: int | None = None) -> None:
        """Empties the log, and continues at this offset; the log start may be lower if what is between is remote."""
        self._announce_cut(offset, offset if log_start_offset is None else log_start_offset, offset, offset)
        self.touched = True
        gone = self.segments.restart_at(offset, now_ms=now_ms)
        self.segments.retire(gone, now_ms + self._config.file_delete_delay_ms)
        self.begin_at(offset)
        self.quarantine.cut(offset, offset)
        self.epochs.truncate_from_end(offset if self.log_start_offset < offset else 0)
        self.producers.truncate_fully_and_start_at(offset)

    def _announce_cut(self, end: int, log_start_offset: int, local_log_start_offset: int, high_watermark: int) -> None:
        """Before a file is changed: lowers the numbers, here and in the checkpoints. If they cannot be written, the log
        is as before, except that less of it counts as durable and compacted."""
        before = self.log_end_offset, self.log_start_offset, self.local_log_start_offset, self.high_watermark
        noted = *before[1:], self.recovery_point, self.first_dirty_offset or 0
        starts = log_start_offset, local_log_start_offset
        self.lower_end(end)
        (self.log_start_offset, self.local_log_start_offset), self.high_watermark = starts, high_watermark
        try:
            if max(noted) > end or starts != before[1:3]:
                self._keep()
        except BaseException:
            self.move_end(before[0])
            self.log_start_offset, self.local_log_start_offset, self.high_watermark = before[1:]
            raise

    def delete_records_before(self, offset: int) -> None:
        """Moves the log start. The next retention removes segments before it, and their epochs."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{self.name}: cannot start at {offset}, beyond {self.high_watermark}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.local_log_start_offset = max(self.local_log_start_offset, offset)
            self.producers.on_log_start_moved(offset)

    def delete_segments(self, gone: Sequence[Segment], *, now_ms: int) -> None:
        """Deletes the oldest segments; if these are all, a new one is created first. The log starts where they end."""
        active = self.segments.active
        if gone and gone[-1] is active:
            if active.size:
                self.roll(now_ms=now_ms)
            else:
                gone = gone[:-1]
        if not gone:
            return
        start = self.segments[len(gone)].base_offset
        assert start <= self.high_watermark, f"{self.name}: {start} is not replicated"
        self.delete_records_before(start)
        self._keep()
        self.epochs.truncate_from_start(start)
        self.producers.snapshots.settle(start)
        self.segments.drop(gone)
        self.segments.retire(gone, now_ms + self._config.file_delete_delay_ms)
        self.quarantine.cut(self.log_start_offset, self.log_end_offset)
        self.producers.snapshots.remove_before(start)

    def new_cleaned_segment(self, base_offset: int, *, now_ms: int) -> Segment:
        """An empty segment beside the log, for a compaction to fill with `append_batches`."""
        return Segment.create(self.files, self.directory, base_offset, now_ms=now_ms, suffix=Suffix.CLEANED)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], *, now_ms: int) -> None:
        """Replaces the source segments by their compacted segment (segment_swap.py)."""
        assert len(new) == 1, "compaction makes one of several"
        if self.closed:
            self._refuse()
        # The checkpoint must have all of it as durable before its offsets get gaps: see recovery.py.
        self.sync()
        self._keep()
        new[0].close_indexes()
        self.segments.replace(new[0], old, self.recovery_point)
        self.segments.retire(old, now_ms + self._config.file_delete_delay_ms)

    def sweep(self, now_ms: int) -> int:
        """Remove the files that were deleted long enough ago. How many bytes that freed."""
        return self.segments.sweep(now_ms)

    def use(self, files: FilePool) -> None:
        """From now on take files from this pool, in this thread."""
        self.files = files
        self.segments.use(files)

    def move(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.segments.move(directory)
        self.quarantine.directory = self.producers.snapshots.directory = directory
        self.epochs.path = f"{directory}/{LEADER_EPOCHS}"

    def replay_producers_from(self, offset: int, *, now_ms: int) -> None:
        """Rebuilds the producers from the log, without any state that a snapshot has from behind this offset."""
        self.producers.truncate_and_reload(
            self.segments[0].base_offset, offset, now_ms=now_ms, expiration_ms=PRODUCER_EXPIRATION_MS
        )
        restore_recent_batches(self.producers, self.segments)
        for segment in self.segments[self.segments.number_for(self.producers.end_offset) :]:
            self.query(segment, lambda segment: replay_into(self.producers, segment, self.log_end_offset))
        self.producers.end_offset = self.log_end_offset
        self.producers.on_high_watermark_moved(self.high_watermark)
