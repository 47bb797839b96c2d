"""The objects of a local segment: read and described in a worker thread, then uploaded.

The indexes are computed from the batches, which are checked on the way: what goes to the object store has been read and
verified once, and damage on this disk never becomes the only copy. The offset and time indexes have an entry for each
index interval, as a leader writes them.
"""

from collections.abc import Callable
from itertools import pairwise
from os.path import dirname
from struct import Struct
from typing import Final, cast

import trio

from trioka.cluster.remote_log.metadata import RemoteSegment
from trioka.protocol.batch import BatchHeader
from trioka.protocol.checksum import crc32c
from trioka.protocol.compression import Codec
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.remote_segment import object_key
from trioka.protocol.remote_segment.indexes import AbortedTransaction as RemoteAborted
from trioka.protocol.remote_segment.indexes import (
    LeaderEpoch,
    SegmentIndexes,
    encode_leader_epochs,
    encode_transactions,
)
from trioka.protocol.remote_segment.manifest import (
    SegmentContent,
    SegmentManifest,
    Tombstone,
    Uploader,
    encode_manifest,
    encode_tombstone,
)
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.files.checkpoint import EpochEntry
from trioka.storage.files.disk import Disk
from trioka.storage.log import Log
from trioka.storage.recovery.producers_at import KnownProducers, SegmentFile, snapshot_at_end
from trioka.storage.segments.batch_scan import NO_EPOCH, BadBatch, scan
from trioka.storage.segments.txn_index import AbortedTransaction

from .object_store import PART_BYTES, UPLOADS_AT_ONCE, ObjectStore, ObjectWriter

EARLY_PARTS_AT_ONCE: Final = 1  # in flight, of a segment that is still written: each holds PART_BYTES

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


@frozen
class SegmentFiles:
    """What a worker thread needs to read a closed segment: taken from the log in its own thread."""

    disk: Disk
    path: str
    base_offset: int
    next_offset: int
    size: int
    local: tuple[SegmentFile, ...]  # the segments on this disk up to this one, for its producer snapshot
    begins_empty: bool  # nothing is before them
    index_interval_bytes: int
    epochs: tuple[EpochEntry, ...]  # the whole chain of the log up to the end of the segment
    aborted: tuple[AbortedTransaction, ...]


@frozen
class Described:
    """What the batches of a segment say: its indexes, and its manifest but for the checksum of the data."""

    indexes: SegmentIndexes
    records: int
    batches: int
    control_batches: int
    codecs: frozenset[Codec]
    min_timestamp_ms: int
    max_timestamp_ms: int


class SegmentGone(Exception):
    """The segment is not on this disk any more: it was deleted, or the log was truncated."""


def files_of(log: Log, base_offset: int) -> SegmentFiles:
    """Raises SegmentGone. Runs in the log's own thread."""
    number = log.segments.number_for(base_offset)
    segment = log.segments[number]
    if log.closed or segment.base_offset != base_offset or segment is log.segments.active:
        raise SegmentGone(f"{log.name}: there is no closed segment at {base_offset}")
    next_offset = log.segments[number + 1].base_offset
    log.aborted_transactions(base_offset, base_offset + 1)  # checks the transaction index before it is trusted
    return SegmentFiles(
        disk=log.files.disk,
        path=segment.log_path,
        base_offset=base_offset,
        next_offset=next_offset,
        size=segment.size,
        local=tuple(
            SegmentFile(each.log_path, each.base_offset, following.base_offset, each.size)
            for each, following in pairwise(log.segments[: number + 2])
        ),
        begins_empty=not log.has_remote_part,
        index_interval_bytes=log.config.index_interval_bytes,
        epochs=tuple(entry for entry in log.epochs.entries if entry.start_offset < next_offset),
        aborted=tuple(segment.txn_index),
    )


def describe(files: SegmentFiles, scanned: "Scan | None" = None, known: KnownProducers | None = None) -> Described:
    """Reads and checks the segment, but for the beginning that was scanned already. Raises BadBatch for damage, OSError
    or KafkaError if it cannot be read; NoProducerSnapshot if only `known` producers can help. Blocks."""
    scanned = scanned or Scan(files.base_offset, files.index_interval_bytes)
    scanned.read(files.disk, files.path, files.size, files.next_offset)
    if scanned.position != files.size:
        raise BadBatch(scanned.position, f"ends behind {files.next_offset}, the end of the segment")
    scanned.end()
    aborted = [RemoteAborted(*entry) for entry in files.aborted]
    indexes = SegmentIndexes(
        offset=bytes(scanned.offsets),
        timestamp=bytes(scanned.times),
        producer_snapshot=snapshot_at_end(
            files.disk, dirname(files.path), files.local, begins_empty=files.begins_empty, known=known
        ),
        leader_epoch=encode_leader_epochs([LeaderEpoch(*entry) for entry in files.epochs]),
        transaction=encode_transactions(aborted) if aborted else None,
    )
    return Described(
        indexes=indexes,
        records=scanned.records,
        batches=scanned.batches,
        control_batches=scanned.control_batches,
        codecs=frozenset(scanned.codecs),
        min_timestamp_ms=scanned.min_timestamp_ms,
        max_timestamp_ms=scanned.max_timestamp_ms,
    )


class Scan:
    """Collects what indexes and manifest say about the batches, from the first one on."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.position = 0  # up to here the segment was read
        self.next_offset = base_offset
        self._epoch = NO_EPOCH
        self.offsets, self.times = bytearray(), bytearray()
        self.records = self.batches = self.control_batches = 0
        self.codecs: set[Codec] = set()
        self.max_timestamp_ms = -1
        self.min_timestamp_ms = -1
        self._base = base_offset
        self._interval = interval_bytes
        self._since_entry = 0
        self._max_at = base_offset
        self._indexed_ms = -1
        self._first = True

    def read(self, disk: Disk, path: str, size: int, end_offset: int) -> None:
        """Goes on with the batches before the offset, and before this size of the file. Raises BadBatch. Blocks."""
        file = disk.open(path)
        try:
            batches = scan(
                file,
                end=size,
                base_offset=self._base,
                position=self.position,
                last_offset=self.next_offset - 1,
                epoch=self._epoch,
            )
            for each in batches:
                if each.header.next_offset > end_offset:
                    break
                self.add(each.position, each.header)
                self.position, self.next_offset = each.position + each.header.size, each.header.next_offset
                self._epoch = max(self._epoch, each.header.leader_epoch)
        finally:
            file.close()

    def add(self, position: int, header: BatchHeader) -> None:
        if self._since_entry > self._interval:
            self.offsets += _OFFSET_ENTRY.pack(header.last_offset - self._base, position)
            self._add_time()
            self._since_entry = 0
        self._since_entry += header.size
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms, self._max_at = header.max_timestamp, header.last_offset
        # The records of a batch have one timestamp if the broker set it; otherwise their smallest is not in the header.
        smallest = header.max_timestamp if header.is_log_append_time else -1
        self.min_timestamp_ms = smallest if self._first else min(self.min_timestamp_ms, smallest)
        self._first = False
        self.batches += 1
        self.records += header.record_count
        self.control_batches += header.is_control
        self.codecs.add(header.codec)

    def _add_time(self) -> None:
        if self.max_timestamp_ms > self._indexed_ms:
            self.times += _TIME_ENTRY.pack(self.max_timestamp_ms, self._max_at - self._base)
            self._indexed_ms = self.max_timestamp_ms

    def end(self) -> None:
        self._add_time()


# Keys and contents ----------------------------------------------------------------------------------------------------


def remote_segment_of(about: TopicIdPartition, segment: RemoteSegment) -> object_key.RemoteSegment:
    """The segment as its keys name it."""
    return object_key.RemoteSegment(about, segment.start_offset, segment.segment_id)


def manifest_of(
    about: TopicIdPartition,
    segment: RemoteSegment,
    described: Described,
    uploader: Uploader,
    *,
    data_crc32c: int,
    retention_ms: int,
) -> bytes:
    is_limited = 0 <= retention_ms < object_key.MAX_OFFSET - described.max_timestamp_ms
    content = SegmentContent(
        crc32c=data_crc32c,
        indexes_crc32c=crc32c(described.indexes.encode()),
        min_timestamp_ms=described.min_timestamp_ms,
        records=described.records,
        batches=described.batches,
        control_batches=described.control_batches,
        codecs=described.codecs,
        retention_until_ms=max(described.max_timestamp_ms, 0) + retention_ms if is_limited else None,
    )
    return encode_manifest(
        SegmentManifest(
            segment=remote_segment_of(about, segment),
            end_offset=segment.end_offset,
            max_timestamp_ms=segment.max_timestamp_ms,
            broker_id=segment.broker_id,
            event_timestamp_ms=segment.event_timestamp_ms,
            leader_epochs=tuple(LeaderEpoch(*entry) for entry in segment.leader_epochs),
            size=segment.size_bytes,
            indexes=described.indexes.ranges(),
            uploader=uploader,
            content=content,
        )
    )


def tombstone_of(
    about: TopicIdPartition, segment: RemoteSegment, uploader: Uploader, *, broker_id: int, now_ms: int
) -> bytes:
    return encode_tombstone(
        Tombstone(
            segment=remote_segment_of(about, segment),
            broker_id=broker_id,
            event_timestamp_ms=now_ms,
            uploader=uploader,
        )
    )


class Upload:
    """The data of a segment on its way to the object store, in parts of PART_BYTES; it may begin while the segment is
    still written."""

    def __init__(self, store: ObjectStore, key: str, limiter: trio.CapacityLimiter) -> None:
        self.key: Final = key
        self.sent_bytes = 0
        self.checksum = 0  # CRC-32C of what was sent
        self._store = store
        self._limiter = limiter
        self._writer: ObjectWriter | None = None

    @property
    def is_open(self) -> bool:
        """It was begun in the store, and neither completed nor abandoned."""
        return self._writer is not None

    async def send(self, disk: Disk, path: str, end: int, *, whole_parts: int = 0) -> None:
        """Sends the file up to this position; if `whole_parts` is set, only so far as parts of this size reach. Raises
        SegmentGone if the file became shorter meanwhile: the log was truncated."""
        part_bytes = whole_parts or PART_BYTES
        file = await trio.to_thread.run_sync(disk.open, path, limiter=self._limiter)
        try:
            while self.sent_bytes < end:
                size = min(part_bytes, end - self.sent_bytes)
                if whole_parts and size < part_bytes:
                    return
                part = await trio.to_thread.run_sync(file.read, self.sent_bytes, size, limiter=self._limiter)
                if len(part) != size:
                    raise SegmentGone(f"{path} ends before byte {self.sent_bytes + size}")
                self.checksum = _continued_crc(part, self.checksum)
                if size == end and not whole_parts:
                    await self._store.put(self.key, part)
                else:
                    if self._writer is None:
                        at_once = EARLY_PARTS_AT_ONCE if whole_parts else UPLOADS_AT_ONCE
                        self._writer = await self._store.open_writer(self.key, at_once)
                    await self._writer.write(part)
                self.sent_bytes += size
        finally:
            file.close()

    async def complete(self, files: SegmentFiles) -> None:
        """Sends the rest of the closed segment. The object exists when this returns."""
        if self.sent_bytes > files.size:
            raise SegmentGone(f"{files.path} has {files.size} bytes, and {self.sent_bytes} are uploaded")
        await self.send(files.disk, files.path, files.size)
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    def abandon(self) -> None:
        """Never complete it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()

    async def remove(self) -> None:
        """The library cannot abort an upload in parts, which would leave them in the bucket, where no listing shows
        them. So the upload is completed, and the object deleted: if that fails, a sweep finds an object without a
        record. Raises ObjectStoreError."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
            await self._store.delete([self.key])


_continued_crc: Final = cast("Callable[[bytes, int], int]", crc32c)  # the compiled function takes a start value
