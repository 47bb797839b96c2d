"""What a partition knows of its producers: sequences, epochs and open transactions (KIP-98, 360, 890).

An idempotent producer numbers its records; the partition keeps the last five batches of each producer. A batch that it
already has gets the offsets of the first append (T1). A batch that is neither the next one nor a known one is
refused (T2). So a client with up to five requests in flight may repeat any of them after a lost reply, without
duplicates and without a change of order.

    the batch                        known producer, same epoch   newer epoch    older epoch   no such producer
    sequence = last + 1 (mod 2^31)   append                       –              refuse (47)   append
    sequence 0                       –                            append         refuse (47)   append
    same range as one of the five    answer its offsets           –              refuse (47)   –
    any other sequence               refuse (45)                  refuse (45)    refuse (47)   append

A batch of an unknown producer may have any sequence, because its state may have expired or been removed with its
records, and the producer itself keeps the sequence.

A transactional batch opens a transaction at its first offset; a marker (control batch) of the coordinator ends it.
Until its end is replicated, `read_committed` must not pass that offset: it is *unstable*. An aborted transaction goes
into the transaction index (txn_index.py).

Checking and applying are separate: `check` changes nothing, `apply` cannot fail, and the write happens between them.
Followers and recovery call only `replay`: the batches in the log are valid. (Before the first write of a transaction
its coordinator verifies it: T6, in `broker/coordinators/txn_verification.py`.)

Hot path: check and apply run once for each idempotent batch, hence slots and tuples instead of frozen data classes:
together they take 0.84 µs for an idempotent batch and 1.06 µs for a transactional one (`python bench/producers.py`).
"""

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.protocol.batch import TRANSACTIONAL, BatchHeader, records
from trioka.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from trioka.protocol.record import EndTxnMarker, read_marker

from .layout import CorruptFile
from .producer_snapshot import ProducerSnapshot, SnapshotBatch, SnapshotEntry, SnapshotFiles

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WINDOW_BATCHES: Final = 5
"""max.in.flight.requests.per.connection of an idempotent producer is at most this."""

MAX_PRODUCERS: Final = 100_000
"""Producers of one partition. Kafka has no limit, and clients that make a producer for each record exhaust its memory.
At the limit an eighth is dropped, the longest idle first, as if they had expired; open transactions are never
dropped."""

NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NEVER_IDLE_MS: Final = -(2**63)  # as the time of now
MAX_EPOCH: Final = 2**15 - 1

SEQUENCES: Final = 2**31
"""Sequence numbers are taken modulo this: after 2^31 - 1 comes 0."""

BUMPING_TRANSACTION_VERSION: Final = 2
"""From this transaction.version on every end of a transaction bumps the producer's epoch (KIP-890)."""


class WrittenBatch(NamedTuple):
    """One of the last five. A retry of it is answered with these offsets and this timestamp."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """What a marker ended. If `aborted`, it must be in the transaction index before a consumer may read past it."""

    producer_id: int
    first_offset: int
    last_offset: int  # the marker's own
    last_stable_offset: int  # as it would be if everything were replicated
    aborted: bool


_new_tuple: Final = tuple.__new__  # half the time of WrittenBatch(...), which is most of `apply`


class Producer:
    """The state of one producer. `window` has its last batches of this epoch, the newest last."""

    __slots__ = ("coordinator_epoch", "epoch", "last_timestamp", "transaction_first_offset", "window")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.coordinator_epoch = NO_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_first_offset = NO_OFFSET
        self.window: list[WrittenBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.window[-1].last_sequence if self.window else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of its last data batch in this epoch, NO_OFFSET if there is none."""
        return self.window[-1].last_offset if self.window else NO_OFFSET


class ProducerState:
    """The producers of one partition, from the log up to `end_offset` (exclusive)."""

    __slots__ = (
        "_completed",
        "_first_unstable",
        "_open",
        "_producers",
        "_snapshot_offset",
        "end_offset",
        "lacks_batches",
        "snapshots",
    )

    def __init__(self, snapshots: SnapshotFiles, *, end_offset: int = 0) -> None:
        self.snapshots = snapshots
        self.end_offset = end_offset
        self._snapshot_offset = end_offset
        self._producers: dict[int, Producer] = {}
        # First offset → producer id. Offsets only grow, so the order of insertion is the order of offsets.
        self._open: dict[int, int] = {}
        # First offset → marker's offset, of ended transactions whose marker is not yet below the high watermark.
        self._completed: dict[int, int] = {}
        self._first_unstable = NO_OFFSET
        self.lacks_batches = False  # it was loaded from a snapshot that names only the last batch of each producer

    # Questions -------------------------------------------------------------------------------------------------------

    @property
    def producers(self) -> Mapping[int, Producer]:
        return MappingProxyType(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose end is not replicated yet."""
        return None if self._first_unstable == NO_OFFSET else self._first_unstable

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of a transaction that is open, whatever is replicated: compaction stops here."""
        return next(iter(self._open), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where `read_committed` ends (T7). `on_high_watermark_moved` must have been called with this high
        watermark."""
        unstable = self._first_unstable
        return high_watermark if unstable == NO_OFFSET or unstable >= high_watermark else unstable

    # A data batch ----------------------------------------------------------------------------------------------------

    def check(self, batch: BatchHeader, *, sequences: bool = True) -> WrittenBatch | None:
        """Whether a leader may write this batch: None if yes, the earlier batch if it is a retry; raises if not.

        Coordinators write in the name of producers without their sequences: `sequences=False`.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch != producer.epoch:
            self._check_epoch(batch, producer, sequences)
        elif sequences:
            window = producer.window
            sequence = batch.base_sequence
            if sequence != ((window[-1].last_sequence + 1) % SEQUENCES if window else 0):
                return self._retry(batch, producer)
        if producer.transaction_first_offset >= 0 and not batch.is_transactional:
            raise InvalidTxnState(
                f"producer {batch.producer_id} has a transaction open since offset "
                f"{producer.transaction_first_offset} and writes outside of it"
            )
        return None

    def _check_epoch(self, batch: BatchHeader, producer: Producer, sequences: bool) -> None:
        if batch.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} writes with epoch {batch.producer_epoch}, but is at {producer.epoch}"
            )
        if sequences and batch.base_sequence != 0 and producer.epoch != NO_EPOCH:
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} starts epoch {batch.producer_epoch} "
                f"with sequence {batch.base_sequence} instead of 0"
            )

    def _retry(self, batch: BatchHeader, producer: Producer) -> WrittenBatch:
        first, last = batch.base_sequence, batch.last_sequence
        for written in producer.window:
            if written.first_sequence == first and written.last_sequence == last:
                return written
        raise OutOfOrderSequenceNumber(
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}: sequence {first} comes after "
            f"{producer.last_sequence}"
        )

    def apply(self, batch: BatchHeader, first_offset: int, timestamp: int) -> None:
        """The batch was written from `first_offset` on, with this largest timestamp."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._add(batch.producer_id)
        window = producer.window
        if producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            window.clear()
        elif len(window) == WINDOW_BATCHES:
            del window[0]
        delta, first_sequence = batch.last_offset_delta, batch.base_sequence
        last_sequence = NO_SEQUENCE if first_sequence == NO_SEQUENCE else (first_sequence + delta) % SEQUENCES
        fields = (first_sequence, last_sequence, first_offset, first_offset + delta, timestamp)
        window.append(_new_tuple(WrittenBatch, fields))
        producer.last_timestamp = timestamp
        if batch.attributes & TRANSACTIONAL and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = first_offset
            self._open[first_offset] = batch.producer_id
            self._find_first_unstable()

    # A run of data batches (run.py) ----------------------------------------------------------------------------------

    def expected(self, producer_id: int, epoch: int, sequence: int) -> Producer | None:
        """The producer, if it is known and this is exactly its next batch, outside of transactions. If not, `check`
        decides."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch or producer.transaction_first_offset >= 0:
            return None
        window = producer.window
        return producer if window and sequence == (window[-1][1] + 1) % SEQUENCES else None

    @staticmethod
    def apply_batches(producer: Producer, written: Sequence[tuple[int, int, int, int, int]]) -> None:
        """The batches were written. The first was the expected one, and each other follows the one before it."""
        window = producer.window
        for fields in written[-WINDOW_BATCHES:]:
            window.append(_new_tuple(WrittenBatch, fields))
        if len(window) > WINDOW_BATCHES:
            del window[:-WINDOW_BATCHES]
        producer.last_timestamp = written[-1][4]

    # A marker --------------------------------------------------------------------------------------------------------

    def check_marker(self, batch: BatchHeader, marker: EndTxnMarker, *, transaction_version: int = 0) -> None:
        """May a leader write this marker? Raises if not (T3, T5)."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return
        epoch = batch.producer_epoch
        stale = epoch < producer.epoch
        if transaction_version >= BUMPING_TRANSACTION_VERSION and epoch == producer.epoch:
            # The same marker again is harmless once the transaction is over (KAFKA-19999); and the last epoch
            # cannot be bumped, so there the marker comes with the epoch of its data.
            stale = producer.transaction_first_offset >= 0 and epoch != MAX_EPOCH
        if stale:
            raise InvalidProducerEpoch(
                f"a marker for producer {batch.producer_id} has epoch {epoch}, but it is at {producer.epoch}"
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {batch.producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
                f"after one from {producer.coordinator_epoch}"
            )

    def apply_marker(
        self, batch: BatchHeader, marker: EndTxnMarker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """The marker was written at `offset`. None if it ended nothing."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._add(batch.producer_id)
        if producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.window.clear()
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = timestamp
        first_offset = producer.transaction_first_offset
        if first_offset < 0:
            return None
        producer.transaction_first_offset = NO_OFFSET
        self._open.pop(first_offset, None)
        self._completed[first_offset] = offset
        self._find_first_unstable()
        stable = next(iter(self._open), offset + 1)
        return CompletedTransaction(batch.producer_id, first_offset, offset, stable, not marker.commit)

    def replay(self, buffer: "ReadableBuffer", batch: BatchHeader) -> CompletedTransaction | None:
        """Applies a batch of the log, on a follower or after a restart, without checks."""
        if batch.producer_id < 0:
            return None
        if not batch.is_control:
            self.apply(batch, batch.base_offset, batch.max_timestamp)
        elif (marker := marker_of(buffer, batch)) is not None:
            return self.apply_marker(batch, marker, batch.base_offset, batch.max_timestamp)
        return None

    # Time, replication and the ends of the log -----------------------------------------------------------------------

    def on_high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose marker is replicated no longer hold back the last stable offset."""
        if not self._completed:
            return
        done = []
        for first, marker in self._completed.items():  # in the order of their markers
            if marker >= high_watermark:
                break
            done.append(first)
        for first in done:
            del self._completed[first]
        if done:
            self._find_first_unstable()

    def on_log_start_moved(self, log_start: int) -> None:
        """Records below were deleted. Their producers stay: they may still retry, and expire by age."""
        self.on_high_watermark_moved(log_start)
        self.end_offset = max(self.end_offset, log_start)
        latest = self.snapshots.latest
        if latest is not None:
            self._snapshot_offset = latest
        elif self._producers:
            self._snapshot_offset = NO_OFFSET  # no file knows of them, though no record may be left
        else:
            self._snapshot_offset = log_start

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for so long (producer.id.expiration.ms), except in a transaction. How many."""
        idle = [key for key, producer in self._producers.items() if _is_idle(producer, now_ms, expiration_ms)]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    def take_snapshot(self, *, sync: bool) -> bool:
        """Write one for `end_offset`, at a roll (`sync=False`) and at a clean stop. False if there is nothing new."""
        if self.end_offset <= self._snapshot_offset:
            return False
        self.snapshots.write(self.end_offset, self.snapshot(), sync=sync)
        self._snapshot_offset = self.end_offset
        return True

    def snapshot(self) -> ProducerSnapshot:
        ids = sorted(self._producers)
        entries = [_entry(producer_id, self._producers[producer_id]) for producer_id in ids]
        batches = [
            SnapshotBatch(producer_id, first_sequence, first_offset, last_offset - first_offset, timestamp)
            for producer_id in ids
            if len(self._producers[producer_id].window) > 1
            for first_sequence, _, first_offset, last_offset, timestamp in self._producers[producer_id].window
        ]
        return ProducerSnapshot(entries, batches if entries else None)

    def load(self, snapshot: ProducerSnapshot, offset: int) -> None:
        """The state at this offset, whatever its age, of producers that are replayed for another reader."""
        self._forget_all()
        self._load(snapshot, NEVER_IDLE_MS, 0)
        self.end_offset = offset

    def truncate_and_reload(
        self, start: int, log_end: int, *, now_ms: int, expiration_ms: int
    ) -> tuple[CorruptFile, ...]:
        """The files contain the batches of [start, log_end) now; the log may start later. Goes back to the newest
        snapshot in it; the caller recalls what it lacks and replays from `end_offset`. Returns the damaged snapshots
        that it found and removed."""
        self.snapshots.remove_outside(start, log_end)
        if log_end == self.end_offset:
            self.on_log_start_moved(start)
            return ()
        self._forget_all()
        damaged: list[CorruptFile] = []
        while (offset := self.snapshots.latest) is not None:
            try:
                snapshot = self.snapshots.read(offset)
            except CorruptFile as error:
                damaged.append(error)
                self.snapshots.remove(offset)
            else:
                self._load(snapshot, now_ms, expiration_ms)
                break
        self.end_offset = self._snapshot_offset = start if offset is None else offset
        return tuple(damaged)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all producers: the log is empty and continues at this offset."""
        self._forget_all()
        self.snapshots.remove_outside(0, -1)
        self.end_offset = offset
        self._snapshot_offset = 0

    def start_with(self, snapshot: ProducerSnapshot, offset: int, *, now_ms: int, expiration_ms: int) -> None:
        """The log is empty and continues at this offset; these are its producers there."""
        self.truncate_fully_and_start_at(offset)
        self.snapshots.write(offset, snapshot, sync=True)
        self._load(snapshot, now_ms, expiration_ms)
        self._snapshot_offset = offset

    def _forget_all(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._completed.clear()
        self._first_unstable = NO_OFFSET
        self.lacks_batches = False

    def _load(self, snapshot: ProducerSnapshot, now_ms: int, expiration_ms: int) -> None:
        for entry in snapshot.entries:
            producer = _producer(entry)
            if not _is_idle(producer, now_ms, expiration_ms):
                self._producers[entry.producer_id] = producer
        self.lacks_batches = snapshot.batches is None and bool(self._producers)
        windows: dict[int, list[WrittenBatch]] = {}
        for batch in snapshot.batches or ():
            windows.setdefault(batch.producer_id, []).append(_written(batch))
        for producer_id, window in windows.items():
            if producer_id in self._producers:
                self._producers[producer_id].window = window[-WINDOW_BATCHES:]
        transactions = (
            (producer.transaction_first_offset, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset >= 0
        )
        self._open = dict(sorted(transactions))
        self._find_first_unstable()

    def adopt(self, other: "ProducerState") -> None:
        """This log is a copy of the log of `other` and replaces it. `other` has more state than a replay of the copy
        would give: the records of a producer may be deleted, while it may still repeat them."""
        assert other.end_offset == self.end_offset, f"the copy ends at {self.end_offset}, not at {other.end_offset}"
        self._producers, self._open, self._completed = other._producers, other._open, other._completed
        self._snapshot_offset = NO_OFFSET  # no snapshot file has this state yet
        self._find_first_unstable()

    def recall(self, seen: "ProducerState") -> None:
        """Takes these batches from the last part of the log, up to `end_offset`. A producer whose last batch is among
        them gets the earlier ones."""
        for producer_id, producer in self._producers.items():
            other = seen._producers.get(producer_id)
            if other is None or other.epoch != producer.epoch or not other.window or not producer.window:
                continue
            last, found = producer.window[-1], other.window[-1]
            if (last.last_sequence, last.last_offset) == (found.last_sequence, found.last_offset):
                producer.window = other.window
        self.lacks_batches = False

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open), NO_OFFSET)
        if self._completed:
            # As many as were ended since the high watermark last moved: few.
            ended = min(self._completed)
            first = ended if first == NO_OFFSET else min(first, ended)
        self._first_unstable = first

    def _add(self, producer_id: int) -> Producer:
        if len(self._producers) >= MAX_PRODUCERS:
            idle = ((p.last_timestamp, key) for key, p in self._producers.items() if p.transaction_first_offset < 0)
            for _, key in nsmallest(MAX_PRODUCERS // 8, idle):
                del self._producers[key]
        producer = self._producers[producer_id] = Producer()
        return producer


def marker_of(buffer: "ReadableBuffer", batch: BatchHeader) -> EndTxnMarker | None:
    """The marker in a control batch. None if compaction has emptied it (its transaction is gone too), or if it is not
    the end of a transaction."""
    for record in records(buffer, batch):
        return read_marker(record.key, record.value)
    return None


def _is_idle(producer: Producer, now_ms: int, expiration_ms: int) -> bool:
    return producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp >= expiration_ms


def _entry(producer_id: int, producer: Producer) -> SnapshotEntry:
    last = producer.window[-1] if producer.window else None
    return SnapshotEntry(
        producer_id=producer_id,
        epoch=producer.epoch,
        last_sequence=last.last_sequence if last else NO_SEQUENCE,
        last_offset=last.last_offset if last else NO_OFFSET,
        offset_delta=last.last_offset - last.first_offset if last else 0,
        timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        transaction_first_offset=producer.transaction_first_offset,
    )


def _written(batch: SnapshotBatch) -> WrittenBatch:
    first = batch.first_sequence
    last = NO_SEQUENCE if first == NO_SEQUENCE else (first + batch.offset_delta) % SEQUENCES
    return WrittenBatch(first, last, batch.first_offset, batch.last_offset, batch.timestamp)


def _producer(entry: SnapshotEntry) -> Producer:
    producer = Producer()
    producer.epoch = entry.epoch
    producer.coordinator_epoch = entry.coordinator_epoch
    producer.last_timestamp = entry.timestamp
    producer.transaction_first_offset = max(entry.transaction_first_offset, NO_OFFSET)
    if entry.last_offset >= 0:
        producer.window.append(
            WrittenBatch(
                (entry.last_sequence - entry.offset_delta) % SEQUENCES,
                entry.last_sequence,
                entry.last_offset - entry.offset_delta,
                entry.last_offset,
                entry.timestamp,
            )
        )
    return producer
