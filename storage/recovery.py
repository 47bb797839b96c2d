"""Loads a log at the start: without a scan after a clean stop, with every batch checked after an unclean one.

The order is Kafka's (LogLoader):

    1  drop .deleted and .cleaned, finish .swap                                              (segment_swap.py)
    2  open the segments; indexes without a log are strays
    3  after an unclean stop: scan from the segment that holds the recovery point, each batch checked; write its
       indexes, its transaction index and the epochs; cut at the first bad batch, and drop what comes behind it
    4  the epochs end where the log does, and start where it does
    5  the producers: the newest whole snapshot, then the batches behind it

Three rules differ from Kafka:

**Damage below the recovery point is not cut** (S6) but quarantined (quarantine.py), and the scan continues behind it.
The same goes for missing bytes between two segments. This is safe because the recovery point on disk is lowered
*before* a log is truncated (`Log.truncate_to`), never after. Damage recorded by an earlier process is checked again by
scanning its segments, because it may have been mended just before a crash (mend.py). A log that ends before the
recovery point continues there, as in Kafka, and the report has the missing offsets: the bytes that exist are valid.

**A gap above the recovery point is a lost write.** Segments are created without gaps, and only synced ones are
compacted, so a segment that does not begin at the end of the previous one was created after bytes that are lost: it is
deleted too. Kafka's cleaner does not wait for a sync and leaves gaps: below the cleaner's checkpoint a gap is not a
lost write. (Kafka's followers leave gaps too when their leader is compacted; a Kafka directory that was stopped
uncleanly may lose such a tail, which is then fetched again.)

**A missing index is rebuilt at once**, a wrong one when a read notices it (segment.py).

All functions block, and are called in a worker thread with a file pool of its own.
"""

from bisect import bisect_right
from contextlib import suppress
from dataclasses import field

from trioka.protocol.lazy_dataclass import frozen, mutable

from .batch_scan import MAX_OFFSET, NO_EPOCH, NO_OFFSET, BadBatch
from .file_pool import FilePool
from .index import CorruptIndex
from .index_rebuild import (
    PRODUCER_EXPIRATION_MS,
    check_last_batch,
    damage_at,
    is_still_missing,
    rebuild_indexes,
    replay_batch,
    replay_into,
    restore_recent_batches,
)
from .layout import LEADER_EPOCHS, CorruptFile, Kind, Suffix, parse_segment_file, segment_file
from .leader_epochs import LeaderEpochCache
from .log_config import LogConfig
from .producer_snapshot import SnapshotFiles
from .producer_state import ProducerState
from .quarantine import Damage, merge, read_damages, write_damages
from .segment import Segment
from .segment_swap import finish_swaps


@frozen
class ShutdownState:
    """What the checkpoints of the log directory contain about a log."""

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_upto: int = 0  # compacted up to here: there may be gaps between segments
    local_log_start_offset: int | None = None  # if offsets between the log's start and this are only in a remote store

    @property
    def first_local_offset(self) -> int:
        return max(self.log_start_offset, self.local_log_start_offset or 0)


@mutable
class RecoveryReport:
    """What loading found and changed; logged at the start."""

    scanned_segments: int = 0
    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_reason: str = ""
    dropped_segments: int = 0
    missing_offsets: int = 0  # between the log end and the recovery point: synced, but lost
    rebuilt_indexes: int = 0
    damaged_files: list[str] = field(default_factory=list)
    damages: tuple[Damage, ...] = ()

    @property
    def has_findings(self) -> bool:
        """Whether there is anything to report."""
        return bool(
            self.scanned_segments or self.rebuilt_indexes or self.missing_offsets or self.damaged_files or self.damages
        )


@mutable
class LoadedLog:
    """The loaded state of a log."""

    segments: list[Segment]
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochCache
    producers: ProducerState
    report: RecoveryReport


def load(files: FilePool, directory: str, config: LogConfig, stopped: ShutdownState, *, now_ms: int) -> LoadedLog:
    """Raises OSError or KafkaStorageError if the disk fails, and no other error for any content of the files."""
    return _Loader(files, directory, config, stopped, now_ms).load()


class _Loader:
    def __init__(self, files: FilePool, directory: str, config: LogConfig, stopped: ShutdownState, now_ms: int) -> None:
        self.files = files
        self.disk = files.disk
        self.directory = directory
        self.config = config
        self.stopped = stopped
        self.now_ms = now_ms
        self.report = RecoveryReport()
        self.segments: list[Segment] = []
        self.noted: tuple[Damage, ...] = ()
        self.damages: list[Damage] = []
        self.start_offset = stopped.first_local_offset

    def load(self) -> LoadedLog:
        names = self.disk.list(self.directory)
        if finish_swaps(self.files, self.directory, names, now_ms=self.now_ms):
            names = self.disk.list(self.directory)
        self._open_segments(names)
        everything_known = self._read_damages()
        everything_known = self._load_epochs() and everything_known
        snapshots = SnapshotFiles(self.disk, self.directory, _snapshot_offsets(names))
        snapshots.remove_strays(segment.base_offset for segment in self.segments)
        self.producers = ProducerState(snapshots)

        scanned = len(self.segments) if self.stopped.clean else self._first_to_scan()
        if not everything_known:
            scanned = 0
        self._rebuild_missing_indexes(names, scanned)
        self._recheck_damages(scanned)
        if self.stopped.clean and everything_known:
            end_offset = self._end_of_clean_log()
            self._load_producers(end_offset)
        else:
            end_offset = self._recover(scanned)
        return self._finish(end_offset)

    # What is there ---------------------------------------------------------------------------------------------------

    def _open_segments(self, names: list[str]) -> None:
        parsed = [file for file in map(parse_segment_file, names) if file is not None and not file.suffix]
        bases = sorted(file.base_offset for file in parsed if file.kind is Kind.LOG)
        for file in parsed:
            if file.kind not in (Kind.LOG, Kind.SNAPSHOT) and file.base_offset not in bases:
                self.disk.remove(f"{self.directory}/{segment_file(*file)}")
        # Whole segments below the log's start were to be deleted when the process stopped, unless it did so cleanly:
        # then retention decides.
        keep = 0 if self.stopped.clean else max(bisect_right(bases, self.start_offset) - 1, 0)
        for base in bases[:keep]:
            self._open(base).remove()
            self.report.dropped_segments += 1
        self.segments = [self._open(base) for base in bases[keep:]]

    def _open(self, base_offset: int) -> Segment:
        return Segment.open(self.files, self.directory, base_offset, now_ms=self.now_ms)

    def _rebuild_missing_indexes(self, names: list[str], until: int) -> None:
        """Of the segments before number `until`; the others are scanned anyway."""
        present = set(names)
        for segment in self.segments[:until]:
            wanted = {segment_file(segment.base_offset, kind) for kind in (Kind.INDEX, Kind.TIME_INDEX)}
            if wanted <= present:
                continue
            if segment.size:
                self._rebuild_indexes(segment)
            else:
                segment.make_index_files()

    def _rebuild_indexes(self, segment: Segment) -> None:
        self.report.rebuilt_indexes += 1
        expected = self._expected_end(segment)
        last = segment is self.segments[-1]
        self.damages += rebuild_indexes(
            segment,
            self.config.index_interval_bytes,
            expected,
            limit=MAX_OFFSET if last else expected,
            recovery_point=self.stopped.recovery_point,
        )

    def _expected_end(self, segment: Segment) -> int:
        """The end offset of a segment whose last bytes are damaged: the start of the next one, or the recovery
        point."""
        following = [other.base_offset for other in self.segments if other.base_offset > segment.base_offset]
        return following[0] if following else self.stopped.recovery_point

    def _read_damages(self) -> bool:
        """Reads the recorded damage. False if the file is corrupt: then all segments are scanned."""
        try:
            self.noted = read_damages(self.disk, self.directory)
        except CorruptFile as error:
            self.report.damaged_files.append(str(error))
            return False
        return True

    def _recheck_damages(self, until: int) -> None:
        """Checks recorded damage again in the segments before number `until`; the others are scanned anyway. A scan
        cannot see missing bytes, so records of those are kept until there are batches with these offsets."""
        bases = {damage.base_offset for damage in self.noted}
        seen = {damage.base_offset for damage in self.damages}  # their indexes were missing, and so they were scanned
        for segment in self.segments[:until]:
            if segment.base_offset in bases - seen:
                self._rebuild_indexes(segment)

    def _still_missing(self) -> list[Damage]:
        """The recorded missing ranges that are still missing."""
        by_base = {segment.base_offset: segment for segment in self.segments}
        return [
            damage
            for damage in self.noted
            if damage.position == damage.end_position
            and (damage.base_offset not in by_base or is_still_missing(by_base[damage.base_offset], damage))
        ]

    def _load_epochs(self) -> bool:
        """False if the file is corrupt: then the epochs are read from the batches."""
        path = f"{self.directory}/{LEADER_EPOCHS}"
        try:
            self.epochs = LeaderEpochCache.load(self.disk, path)
        except CorruptFile as error:
            self.report.damaged_files.append(str(error))
            self.epochs = LeaderEpochCache(self.disk, path)
            return False
        return True

    # A clean stop ----------------------------------------------------------------------------------------------------

    def _end_of_clean_log(self) -> int:
        """The log end offset. If it is not the recovery point, the stop was not clean: scans the last segment."""
        if not self.segments:
            return self.start_offset
        last = self.segments[-1]
        try:
            end = last.end_offset()
        except (CorruptIndex, BadBatch):
            end = -1
        if end != self.stopped.recovery_point and last.size:
            self._rebuild_indexes(last)
            end = last.next_offset
        return end

    def _load_producers(self, end_offset: int) -> None:
        """Loads the newest snapshot and replays the batches behind it (none after a clean stop)."""
        self._reload_producers(self.segments[0].base_offset if self.segments else self.start_offset, end_offset)
        self._replay(end_offset)

    def _reload_producers(self, start: int, end: int) -> None:
        """Loads the newest snapshot in [start, end]. It includes batches below the log start offset that still exist:
        a client may repeat them."""
        damaged = self.producers.truncate_and_reload(
            start, end, now_ms=self.now_ms, expiration_ms=PRODUCER_EXPIRATION_MS
        )
        self.report.damaged_files += map(str, damaged)
        restore_recent_batches(self.producers, self.segments)

    def _replay(self, upto: int) -> None:
        """Replays the batches behind the producer snapshot, up to an offset."""
        if self.producers.end_offset >= upto:
            return
        bases = [segment.base_offset for segment in self.segments]
        for segment in self.segments[max(bisect_right(bases, self.producers.end_offset) - 1, 0) :]:
            if segment.base_offset >= upto:
                break  # not recovered yet: its indexes may be anything
            try:
                replay_into(self.producers, segment, upto)
            except CorruptIndex:
                self._rebuild_indexes(segment)
                with suppress(BadBatch):
                    replay_into(self.producers, segment, upto)
            except BadBatch:
                pass  # unreadable batches have no producer state; a read reports them
        self.producers.end_offset = max(self.producers.end_offset, upto)

    # Any other -------------------------------------------------------------------------------------------------------

    def _first_to_scan(self) -> int:
        bases = [segment.base_offset for segment in self.segments]
        return max(bisect_right(bases, self.stopped.recovery_point) - 1, 0)

    def _recover(self, first: int) -> int:
        """Scans from segment number `first` on. Returns the log end offset."""
        if not self.segments:
            self.producers.end_offset = self.start_offset
            return self.start_offset
        base = self.segments[first].base_offset
        self.damages = [damage for damage in self.damages if damage.first_offset < base]
        self._reload_producers(self.segments[0].base_offset, base)
        self._replay(base)
        epoch = self._epoch_before(base)
        end = base
        number = first
        while number < len(self.segments):
            segment = self.segments[number]
            is_gap = number > first and segment.base_offset != end
            if is_gap and not end < segment.base_offset <= self.stopped.cleaned_upto:
                if end >= self.stopped.recovery_point or segment.base_offset < end:
                    self._drop_from(number, f"a segment begins at {segment.base_offset}, the log ends at {end}")
                    break
                self._note_gap(self.segments[number - 1], end, segment.base_offset)
            end, epoch, whole = self._recover_segment(segment, epoch)
            number += 1
            if not whole:
                self._drop_from(number, self.report.cut_reason)
                break
        return end

    def _epoch_before(self, base: int) -> int:
        epoch = self.epochs.epoch_for_offset(base - 1) if base else NO_EPOCH
        return epoch if self.epochs.latest_epoch >= 0 else NO_EPOCH

    def _recover_segment(self, segment: Segment, epoch: int) -> tuple[int, int, bool]:
        """Checks and indexes every batch. Returns end offset, last epoch, and whether the segment was not cut."""
        interval = self.config.index_interval_bytes
        if self.producers.end_offset <= segment.base_offset:
            self.producers.end_offset = segment.base_offset
            self.producers.take_snapshot(sync=False)
        segment.begin_rebuild()
        segment.txn_index.reset()
        segment.txn_checked = True
        self.report.scanned_segments += 1
        self.report.scanned_bytes += segment.size
        position, last_offset, end, whole = 0, NO_OFFSET, segment.base_offset, True
        following = [other.base_offset for other in self.segments if other.base_offset > segment.base_offset]
        limit = following[0] if following else MAX_OFFSET
        while position < segment.size:
            try:
                for found in segment.scan(position, last_offset=last_offset, epoch=epoch, limit=limit):
                    header = found.header
                    check_last_batch(segment, found, end, self.stopped.recovery_point)
                    segment.note(found, interval)
                    if header.leader_epoch > self.epochs.latest_epoch:
                        self.epochs.assign(header.leader_epoch, header.base_offset)
                    aborted = replay_batch(self.producers, found)
                    if aborted is not None:
                        segment.txn_index.append(aborted)
                    epoch = max(epoch, header.leader_epoch)
                    position, last_offset = found.position + header.size, header.last_offset
                    end = last_offset + 1
                    self.producers.end_offset = end
            except BadBatch as bad:
                if end >= self.stopped.recovery_point:
                    self.report.cut_reason = str(bad)
                    self.report.cut_bytes += segment.size - position
                    segment.cut(position)
                    whole = False
                else:
                    position, end = self._note_damage(segment, bad, last_offset, end, limit)
                    last_offset = end - 1
        segment.close_indexes()
        return end, epoch, whole

    def _note_damage(
        self, segment: Segment, bad: BadBatch, last_offset: int, first_offset: int, limit: int
    ) -> tuple[int, int]:
        """Damage in a range that must have none; with the position and the offset at which the log continues."""
        damage = damage_at(segment, bad, last_offset, first_offset, self._expected_end(segment), limit)
        self.damages.append(damage)
        segment.next_offset = damage.end_offset
        return damage.end_position, damage.end_offset

    def _note_gap(self, segment: Segment, first_offset: int, end_offset: int) -> None:
        self.damages.append(
            Damage(
                first_offset=first_offset,
                end_offset=end_offset,
                base_offset=segment.base_offset,
                position=segment.size,
                end_position=segment.size,
                reason="bytes that were synced are not there",
            )
        )

    def _drop_from(self, number: int, reason: str) -> None:
        """Drops segments behind a lost range. The newest goes first, so that there is never a gap."""
        for segment in reversed(self.segments[number:]):
            self.report.cut_bytes += segment.size
            self.report.cut_reason = self.report.cut_reason or reason
            self.report.dropped_segments += 1
            segment.rename(Suffix.DELETED)
            self.disk.sync_directory(self.directory)
            segment.remove()
        del self.segments[number:]

    # The end ---------------------------------------------------------------------------------------------------------

    def _finish(self, end_offset: int) -> LoadedLog:
        if self.stopped.clean and self.start_offset > end_offset:
            self.report.damaged_files.append(
                f"{self.directory}: the checkpointed log start offset is {self.start_offset}"
            )
            self.start_offset = 0  # a clean stop does not leave that, so the checkpoint is ignored
        if self.segments and self.start_offset > end_offset:
            # According to the checkpoint all of this was deleted. (As in Kafka.)
            self._drop_from(0, f"the log starts at {self.start_offset}, its segments end at {end_offset}")
            self._reload_producers(self.start_offset, self.start_offset)
            end_offset = self.start_offset
        if not self.segments:
            self.segments.append(Segment.create(self.files, self.directory, end_offset, now_ms=self.now_ms))
        local_start = log_start = max(self.start_offset, self.segments[0].base_offset)
        if self.stopped.local_log_start_offset is not None:
            log_start = min(self.stopped.log_start_offset, local_start)
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(log_start)
        known = (*self.damages, *self._still_missing())
        damages = merge(
            damage for damage in known if damage.end_offset > local_start and damage.first_offset < end_offset
        )
        if damages != self.noted or self.report.damaged_files:
            write_damages(self.disk, self.directory, damages)
        self.report.damages = damages
        # A recovery point beyond the end is ignored, as in Kafka. But it is logged: unless a checkpoint was wrong,
        # records are gone that a crash must not remove.
        self.report.missing_offsets = max(self.stopped.recovery_point - end_offset, 0)
        recovery_point = min(self.stopped.recovery_point, end_offset) if not self.stopped.clean else end_offset
        for segment in self.segments[:-1]:
            segment.synced = segment.end_offset() <= recovery_point if segment.next_offset >= 0 else True
        return LoadedLog(
            segments=self.segments,
            log_start_offset=log_start,
            local_log_start_offset=local_start,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            epochs=self.epochs,
            producers=self.producers,
            report=self.report,
        )


def _snapshot_offsets(names: list[str]) -> list[int]:
    parsed = map(parse_segment_file, names)
    return [file.base_offset for file in parsed if file is not None and file.kind is Kind.SNAPSHOT and not file.suffix]
