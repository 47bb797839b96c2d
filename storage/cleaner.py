"""One round of compaction: of each key only its last record is left. Offsets never change, nor does their order.

    1  map the keys of the dirty part to their last offsets (`offset_map.py`), until its end or until the map is full
    2  group the segments from the start of the log up to there, so that small ones become one (`compaction.groups`)
    3  copy each group into a `.cleaned` segment, without what nobody needs any more
    4  put it in the place of the group (`Log.replace_segments`, which no crash interrupts for good: S7)

What stays of a batch:

    record                                        stays
    beyond what was mapped                        always
    of an aborted transaction                     never
    without a key                                 never: a compacted topic admits none; they are from before it was one
    whose key has a later record                  no
    with a value                                  yes
    without a value (a tombstone)                 until the delete horizon of its batch
    that marks the end of a transaction           while the transaction has records; then until the delete horizon

A *delete horizon* is the time at which readers have had delete.retention.ms to see a tombstone, counted from the round
that first could have removed it. It is kept in the batch itself (KIP-534): attribute bit 6, and the base timestamp.

A batch of which no record stays goes, unless it says something itself: it is the last one of a producer that is still
active (its sequence and epoch, which a restart reads from it), or it is the last one of its group. Then an empty batch
stays. Kafka keeps the last of a round only; with the last of each group no segment is ever empty, there are no gaps
between segments, and a `.swap` file found after a crash tells exactly which offsets it stands for.

The work is a generator: it pauses after each piece, so that it can run beside everything else in one thread, and can
be abandoned at each pause. Segments that are closed do not change, except that they may be deleted; then the round
ends without result (`Abandoned`). So it does if the log was cut meanwhile, wherever: the map may say that a key has a
later record which is gone. And if the log was closed: its topic is deleted, and another may be made under its name and
in its directory, where nothing of this round may arrive. A damaged batch ends it too, with `BadBatch` or
`InvalidRecord`; nothing is replaced. A log in quarantine is not compacted at all.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Protocol

from trioka.protocol import batch as batches
from trioka.protocol.batch import BatchHeader
from trioka.protocol.lazy_dataclass import mutable
from trioka.protocol.record import Span

from .batch_scan import Found
from .compaction import Dirt, SegmentFacts, groups, measure
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
"""Between two pauses, roughly: a few milliseconds of work. A batch is never cut."""

MAX_PAYLOAD_BYTES: Final = 512 * 1024 * 1024
"""Of a decompressed batch. More than a client may send: what Kafka once admitted must be readable here."""


class Abandoned(Exception):
    """The log is damaged, or changed under the round (segments were deleted or cut off). Nothing was replaced."""


class CompactedLog(Protocol):
    """What a round needs of a `Log`."""

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

    def ask(self, segment: Segment, question: Callable[[Segment], int]) -> int: ...

    def new_cleaned_segment(self, base_offset: int, *, now_ms: int) -> Segment: ...

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], *, now_ms: int) -> None: ...


@mutable
class Cleaned:
    """What a round did. `first_dirty_offset` goes into the checkpoint: the next round begins there."""

    first_dirty_offset: int
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keyless: int = 0


def dirt_of(log: CompactedLog, checkpoint: int | None, *, now_ms: int) -> Dirt:
    """How much of a log can be compacted. `checkpoint` says where its last round ended."""
    config = log.config
    ages, starts = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms != FOREVER_MS
    facts = [
        SegmentFacts(
            base_offset=segment.base_offset,
            size=segment.size,
            newest_ms=log.ask(segment, lambda segment: segment.largest_timestamp()[0]) if ages else -1,
            first_ms=log.ask(segment, lambda segment: segment.first_timestamp()) if starts else -1,
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
    dirt: Dirt,
    *,
    now_ms: int,
    map_bytes: int = DEFAULT_LIMIT_BYTES,
    step_bytes: int = 0,
) -> Generator[None, None, Cleaned]:
    """One round. Returns what it did; until then each `next` does a piece of it, of so many bytes or of STEP_BYTES."""
    cuts = log.cuts
    work = _round(log, dirt, now_ms, map_bytes, step_bytes or STEP_BYTES)
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                cleaned: Cleaned = done.value
                return cleaned
            yield
            if log.closed or log.cuts != cuts:
                raise Abandoned(f"{log} was {'closed' if log.closed else 'cut'} meanwhile")
    finally:
        work.close()


def _round(
    log: CompactedLog, dirt: Dirt, now_ms: int, map_bytes: int, step_bytes: int
) -> Generator[None, None, Cleaned]:
    end = dirt.first_uncleanable_offset
    _refuse_damage(log)
    if dirt.first_dirty_offset >= end:
        return Cleaned(first_dirty_offset=dirt.first_dirty_offset)
    offsets = OffsetMap(map_bytes)
    yield from _map_keys(log, dirt.first_dirty_offset, end, offsets, step_bytes)
    result = Cleaned(first_dirty_offset=offsets.latest_offset + 1, keys=len(offsets))
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
                continue  # clean; only the first segment has such, and only if the last round ran out of memory
            if offsets.is_full:
                return
            _map_batch(found, start, transactions, offsets)
            offsets.latest_offset = found.header.last_offset
            done += found.header.size
            if done >= step_bytes:
                done = 0
                yield
        # Offsets without records, up to the next segment, are mapped too: there is nothing to map.
        offsets.latest_offset = following - 1


def _map_batch(found: Found, start: int, transactions: TransactionFilter, offsets: OffsetMap) -> None:
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
    """Segments on their way to become one."""

    def __init__(
        self,
        log: CompactedLog,
        offsets: OffsetMap,
        transactions: TransactionFilter,
        result: Cleaned,
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
        """Compact the segments `old`, which end at `end`, and put the result in their place."""
        sizes = [segment.size for segment in old]
        # As of now: a batch that a producer writes while we work may not be durable when this one is dropped.
        self.active = {key: (known.last_offset, known.epoch) for key, known in self.log.producers.producers.items()}
        new = self.log.new_cleaned_segment(old[0].base_offset, now_ms=self.now_ms)
        try:
            yield from self._copy_all(old, end, new)
            if [segment.size for segment in old] != sizes or not _stands_in(self.log.segments, old):
                raise Abandoned(f"{old[0]} and its neighbours are not what they were")
            _refuse_damage(self.log)
        except BaseException:
            # A pause may be the last one (GeneratorExit), and `.cleaned` files are of no use to anybody. Those of a log
            # that is closed go with its directory, or with the next start.
            if not self.log.closed:
                _discard(new)
            raise
        # From here on the files belong to the log: half a swap is finished by the next start, never undone.
        self.log.replace_segments([new], old, now_ms=self.now_ms)

    def _copy_all(self, old: Sequence[Segment], end: int, new: Segment) -> Generator[None, None, None]:
        self.transactions.index = new.txn_index
        last: Found | None = None  # copied when it is known whether it is the last one
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

    def _copy(self, found: Found, *, is_last: bool) -> None:
        """What is left of one batch, to `out`."""
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

    def _kept(self, header: BatchHeader, spans: list[Span]) -> list[Span]:
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

    def _has_mapped_tombstone(self, header: BatchHeader, kept: list[Span]) -> bool:
        """One of which the older records are gone by now. A later one has its round, and its horizon, to come."""
        latest = self.offsets.latest_offset
        return not header.is_control and any(span.is_tombstone and span.offset <= latest for span in kept)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a restart would read an active producer's last sequence, or at least its epoch, from this batch."""
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
    """A log in quarantine is read around its damage. Compacted, the hole would be all that is left of it."""
    if log.quarantine:
        raise Abandoned(f"{log} is quarantined")


def _stands_in(segments: Sequence[Segment], some: Sequence[Segment]) -> bool:
    """Whether these very segments are still part of the log."""
    known = {id(segment) for segment in segments}
    return all(id(segment) in known for segment in some)


def _discard(segment: Segment) -> None:
    disk = segment.files.disk
    for kind in SEGMENT_KINDS:
        path = segment.path(kind)
        segment.files.forget(path)
        if disk.exists(path):
            disk.remove(path)
