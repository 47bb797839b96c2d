"""One round of compaction: keeps only the last record of each key. Offsets and their order never change.

    1  map the keys of the dirty part to their last offsets (`offset_map.py`), until its end or until the map is full
    2  group the segments from the start of the log up to there, so that small ones become one (`compaction.groups`)
    3  copy each group into a `.cleaned` segment, without records that are no longer needed
    4  replace the group by it (`Log.replace_segments`, which recovery completes after a crash: S7)

Which records of a batch are kept:

    record                                        kept
    behind the mapped range                       always
    of an aborted transaction                     never
    without a key                                 never: from before the topic was compacted, which refuses them
    whose key has a later record                  no
    with a value                                  yes
    without a value (a tombstone)                 until the delete horizon of its batch
    that marks the end of a transaction           while the transaction has records; then until the delete horizon

A *delete horizon* is the time at which readers have had delete.retention.ms to see a tombstone, counted from the round
that first could have removed it. It is kept in the batch itself (KIP-534): attribute bit 6, and the base timestamp.

A batch without kept records is dropped, except the last one of an active producer (a restart reads its sequence and
epoch from it) and the last one of its group: of these an empty batch is kept. Kafka keeps only the last one of a round;
with the last of each group no segment is ever empty, there are no gaps between segments, and a `.swap` file found after
a crash shows exactly which offsets it covers.

The work is a generator: it pauses after each step, so that it can share a thread with other work, and can be abandoned
at each pause. Closed segments do not change, but may be deleted; then the round ends without a result
(`CleaningAborted`). It also ends if the log was truncated meanwhile, at any offset, because the map may contain a later
record that is gone; and if the log was closed, because its topic is deleted and a new one may have the same name and
directory. A damaged batch ends it with `BadBatch` or `InvalidRecord`; nothing is replaced. A log in quarantine is not
compacted at all.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Protocol

from trioka.protocol import batch as batches
from trioka.protocol.batch import BatchHeader
from trioka.protocol.lazy_dataclass import mutable
from trioka.protocol.record import RecordSpan

from .batch_scan import ScannedBatch
from .compaction import LogToClean, SegmentFacts, groups, measure
from .layout import SEGMENT_KINDS
from .log_config import FOREVER_MS, LogConfig
from .offset_map import DEFAULT_LIMIT_BYTES, OffsetMap
from .producer_state import ProducerState, marker_of
from .quarantine import Quarantine
from .segment import Segment
from .transaction_filter import TransactionFilter
from .txn_index import AbortedTransaction

INDEX_ENTRY_BYTES: Final = 8
TIME_INDEX_ENTRY_BYTES: Final = 12

STEP_BYTES: Final = 256 * 1024
"""Bytes between two pauses, about a few milliseconds of work. A batch is never split."""

MAX_PAYLOAD_BYTES: Final = 512 * 1024 * 1024
"""Of a decompressed batch. Above the limit for clients, so that batches which Kafka has accepted can be read."""


class CleaningAborted(Exception):
    """The log is damaged, or changed under the round (segments were deleted or cut off). Nothing was replaced."""


class CompactedLog(Protocol):
    """The part of `Log` that a round uses."""

    @property
    def config(self) -> LogConfig: ...

    @property
    def producers(self) -> ProducerState: ...

    @property
    def quarantine(self) -> Quarantine: ...

    @property
    def segments(self) -> Sequence[Segment]: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    @property
    def cuts(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def aborted_transactions(self, start_offset: int, upper_bound: int) -> list[AbortedTransaction]: ...

    def query(self, segment: Segment, question: Callable[[Segment], int]) -> int: ...

    def new_cleaned_segment(self, base_offset: int, *, now_ms: int) -> Segment: ...

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], *, now_ms: int) -> None: ...


@mutable
class CleanResult:
    """The result of a round. `first_dirty_offset` goes into the checkpoint: the next round starts there."""

    first_dirty_offset: int
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keyless: int = 0


def log_to_clean(log: CompactedLog, checkpoint: int | None, *, now_ms: int) -> LogToClean:
    """The part of a log that can be compacted. `checkpoint` is the end of its last round."""
    config = log.config
    ages, starts = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms != FOREVER_MS
    facts = [
        SegmentFacts(
            base_offset=segment.base_offset,
            size=segment.size,
            newest_ms=log.query(segment, lambda segment: segment.largest_timestamp()[0]) if ages else -1,
            first_ms=log.query(segment, lambda segment: segment.first_timestamp()) if starts else -1,
        )
        for segment in log.segments
    ]
    return measure(
        facts,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        checkpoint=checkpoint,
        config=config,
        now_ms=now_ms,
    )


def clean(
    log: CompactedLog,
    to_clean: LogToClean,
    *,
    now_ms: int,
    map_bytes: int = DEFAULT_LIMIT_BYTES,
    step_bytes: int = 0,
) -> Generator[None, None, CleanResult]:
    """One round. Returns its result; each `next` processes about STEP_BYTES, or the given number of bytes."""
    cuts = log.cuts
    work = _round(log, to_clean, now_ms, map_bytes, step_bytes or STEP_BYTES)
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                cleaned: CleanResult = done.value
                return cleaned
            yield
            if log.closed or log.cuts != cuts:
                raise CleaningAborted(f"{log} was {'closed' if log.closed else 'cut'} meanwhile")
    finally:
        work.close()


def _round(
    log: CompactedLog, to_clean: LogToClean, now_ms: int, map_bytes: int, step_bytes: int
) -> Generator[None, None, CleanResult]:
    end = to_clean.first_uncleanable_offset
    _refuse_damage(log)
    if to_clean.first_dirty_offset >= end:
        return CleanResult(first_dirty_offset=to_clean.first_dirty_offset)
    offsets = OffsetMap(map_bytes)
    yield from _map_keys(log, to_clean.first_dirty_offset, end, offsets, step_bytes)
    result = CleanResult(first_dirty_offset=offsets.latest_offset + 1, keys=len(offsets))
    segments = [segment for segment in log.segments if segment.base_offset < result.first_dirty_offset]
    transactions = TransactionFilter()
    for group in groups([_facts(segment) for segment in segments], log.config, end):
        old = [segments[number] for number in group]
        following = segments[group[-1] + 1].base_offset if group[-1] + 1 < len(segments) else end
        work = _Group(log, offsets, transactions, result, now_ms, step_bytes)
        yield from work.replace(old, following)
    return result


def _from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The segment that holds this offset and all after it."""
    first = max((n for n, segment in enumerate(segments) if segment.base_offset <= offset), default=0)
    return segments[first:]


def _facts(segment: Segment) -> SegmentFacts:
    return SegmentFacts(
        base_offset=segment.base_offset,
        size=segment.size,
        index_bytes=len(segment.index.entries) * INDEX_ENTRY_BYTES,
        time_index_bytes=len(segment.time_index.entries) * TIME_INDEX_ENTRY_BYTES,
    )


# Step 1 --------------------------------------------------------------------------------------------------------------


def _map_keys(
    log: CompactedLog, start: int, end: int, offsets: OffsetMap, step_bytes: int
) -> Generator[None, None, None]:
    """Fill the map with the keys of [start, end), or of as much as fits."""
    offsets.latest_offset = start - 1
    dirty = [segment for segment in _from(log.segments, start) if segment.base_offset < end]
    transactions = TransactionFilter()
    done = 0
    for number, segment in enumerate(dirty):
        following = dirty[number + 1].base_offset if number + 1 < len(dirty) else end
        transactions.expect(log.aborted_transactions(max(segment.base_offset, start), following))
        for found in segment.scan():
            if found.header.last_offset < start:
                continue  # clean; only in the first segment, and only if the map was full in the last round
            if offsets.is_full:
                return
            _map_batch(found, start, transactions, offsets)
            offsets.latest_offset = found.header.last_offset
            done += found.header.size
            if done >= step_bytes:
                done = 0
                yield
        # Offsets without records, up to the next segment, count as mapped.
        offsets.latest_offset = following - 1


def _map_batch(found: ScannedBatch, start: int, transactions: TransactionFilter, offsets: OffsetMap) -> None:
    header = found.header
    if header.is_control:
        transactions.is_idle_marker(header, marker_of(found.buffer, header))
    elif not transactions.is_aborted(header):
        data = batches.payload(found.buffer, header, limit=MAX_PAYLOAD_BYTES)
        for span in batches.spans(data, header):
            if span.key is not None and span.offset >= start:
                offsets.put(span.key, span.offset)


# Steps 3 and 4 -------------------------------------------------------------------------------------------------------


class _Group:
    """Segments that are compacted into one."""

    def __init__(
        self,
        log: CompactedLog,
        offsets: OffsetMap,
        transactions: TransactionFilter,
        result: CleanResult,
        now_ms: int,
        step_bytes: int,
    ) -> None:
        self.log = log
        self.offsets = offsets
        self.transactions = transactions
        self.result = result
        self.now_ms = now_ms
        self.step_bytes = step_bytes
        self.active: Mapping[int, tuple[int, int]] = {}  # producer id → last offset of its data (or -1), epoch
        self.out = bytearray()
        self.headers: list[BatchHeader] = []

    def replace(self, old: Sequence[Segment], end: int) -> Generator[None, None, None]:
        """Compacts the segments `old`, which end at `end`, and replaces them by the result."""
        sizes = [segment.size for segment in old]
        # The current value: a batch that a producer writes in this round may not be durable when this one is dropped.
        self.active = {key: (known.last_offset, known.epoch) for key, known in self.log.producers.producers.items()}
        new = self.log.new_cleaned_segment(old[0].base_offset, now_ms=self.now_ms)
        try:
            yield from self._copy_all(old, end, new)
            if [segment.size for segment in old] != sizes or not _is_part_of(self.log.segments, old):
                raise CleaningAborted(f"{old[0]} and the segments beside it have changed")
            _refuse_damage(self.log)
        except BaseException:
            # The generator may be closed here (GeneratorExit), and `.cleaned` files are useless then. Those of a closed
            # log are removed with its directory, or at the next start.
            if not self.log.closed:
                _discard(new)
            raise
        # From here on the files belong to the log: the next start completes an interrupted swap.
        self.log.replace_segments([new], old, now_ms=self.now_ms)

    def _copy_all(self, old: Sequence[Segment], end: int, new: Segment) -> Generator[None, None, None]:
        self.transactions.index = new.txn_index
        last: ScannedBatch | None = None  # copied when it is known whether it is the last one
        read = 0
        for number, segment in enumerate(old):
            following = old[number + 1].base_offset if number + 1 < len(old) else end
            self.transactions.expect(self.log.aborted_transactions(segment.base_offset, following))
            for found in segment.scan():
                if last is not None:
                    self._copy(last, is_last=False)
                last = found
                read += found.header.size
                if read >= self.step_bytes:
                    read = 0
                    self._write(new)
                    yield
        if last is not None:
            self._copy(last, is_last=True)
        self._write(new)
        new.close_indexes()

    def _copy(self, found: ScannedBatch, *, is_last: bool) -> None:
        """Appends the kept part of one batch to `out`."""
        header = found.header
        self.result.bytes_read += header.size
        self.result.records_read += header.record_count
        horizon = header.delete_horizon_ms
        if header.is_control:
            idle = self.transactions.is_idle_marker(header, marker_of(found.buffer, header))
            dropped = idle and horizon is not None and horizon <= self.now_ms
        else:
            idle = False
            dropped = self.transactions.is_aborted(header)
        needed = is_last or self._is_last_of_producer(header)
        if dropped and not needed:
            return
        data = batches.payload(found.buffer, header, limit=MAX_PAYLOAD_BYTES)
        kept = [] if dropped else self._kept(header, list(batches.spans(data, header)))
        if kept:
            waits = horizon is None and (idle or self._has_mapped_tombstone(header, kept))
            if len(kept) == header.record_count and not waits:
                self._put(found.buffer[header.position : header.end])
            else:
                horizon = self.now_ms + self.log.config.delete_retention_ms if waits else None
                self._put(batches.rebuild(header, data, kept, delete_horizon_ms=horizon))
        elif needed:
            self._put(batches.rebuild(header, data, []))

    def _kept(self, header: BatchHeader, spans: list[RecordSpan]) -> list[RecordSpan]:
        if header.is_control:
            return spans
        horizon, latest = header.delete_horizon_ms, self.offsets.latest_offset
        tombstones_stay = horizon is None or self.now_ms < horizon
        kept = []
        for span in spans:
            if span.offset > latest:
                kept.append(span)
            elif span.key is None:
                self.result.keyless += 1
            elif span.offset >= self.offsets.get(span.key) and (tombstones_stay or not span.is_tombstone):
                kept.append(span)
        return kept

    def _has_mapped_tombstone(self, header: BatchHeader, kept: list[RecordSpan]) -> bool:
        """Whether a tombstone's older records are removed by now. An unmapped one gets its horizon in a later round."""
        latest = self.offsets.latest_offset
        return not header.is_control and any(span.is_tombstone and span.offset <= latest for span in kept)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a restart reads an active producer's last sequence, or its epoch, from this batch."""
        known = self.active.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def _put(self, data: bytes | bytearray) -> None:
        position = len(self.out)
        self.out += data
        header = batches.read_header(self.out, position)
        self.headers.append(header)
        self.result.bytes_written += header.size
        self.result.records_written += header.record_count

    def _write(self, new: Segment) -> None:
        if self.out:
            new.append_batches(bytes(self.out), self.headers, self.log.config.index_interval_bytes)
            self.out = bytearray()
            self.headers = []


def _refuse_damage(log: CompactedLog) -> None:
    """Reads of a quarantined log report the damage. Compaction would turn it into a gap without a trace."""
    if log.quarantine:
        raise CleaningAborted(f"{log} is quarantined")


def _is_part_of(segments: Sequence[Segment], some: Sequence[Segment]) -> bool:
    """Whether these same segment objects are still part of the log."""
    known = {id(segment) for segment in segments}
    return all(id(segment) in known for segment in some)


def _discard(segment: Segment) -> None:
    disk = segment.files.disk
    for kind in SEGMENT_KINDS:
        path = segment.path(kind)
        segment.files.forget(path)
        if disk.exists(path):
            disk.remove(path)
