"""Reads records from the object store, for consumers whose offset is below the local log start.

    read ──▶ segment of the offset (remote log metadata, by the log's own leader epochs)
         ──▶ its indexes: cached, two GETs
         ──▶ ranges of 4 MiB: cached, each loaded once however many read it
         ──▶ whole batches, each checked, in a worker thread

**Read-ahead.** A read that continues an earlier one keeps WINDOW ranges in flight, over the end of the segment too: one
GET at a time would reach a few percent of what the object store gives. Other reads load what they need and no more.

**Limits.** remote.log.reader.threads requests at a time; remote.log.reader.max.pending.tasks reads, further ones return
nothing; remote.log.manager.fetch.max.bytes.per.second delays loads; trioka.tier.cache.bytes bounds the memory. A read
that takes longer than remote.fetch.max.wait.ms returns nothing, as in Kafka; what it began goes on, and the
consumer's next fetch finds it.

**Objects that are missing or damaged** are reported (`on_lost`), and the read fails: nothing else is served in their
place. Offsets for which the metadata has no segment are skipped only if it is complete (`may_skip`).
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

from trioka.cluster.remote_log_metadata import (
    Lineage,
    RemoteLogMetadata,
    RemotePartition,
    RemoteSegment,
    lineage_of,
)
from trioka.protocol.errors import CorruptMessage, KafkaStorageError, ProtocolError
from trioka.protocol.remote_segment import object_key
from trioka.protocol.remote_segment.json_fields import UnsupportedManifest
from trioka.protocol.remote_segment.manifest import MAX_MANIFEST_BYTES, SegmentManifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix, TopicIdPartition

from ..config.tier_keys import (
    REMOTE_FETCH_MAX_WAIT_MS,
    REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES,
    REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND,
    REMOTE_LOG_READER_MAX_PENDING_TASKS,
    REMOTE_LOG_READER_THREADS,
)
from ..config.trioka_keys import TIER_CACHE_BYTES
from .batch_range import NOTHING, BatchRangeRequest, Extract, TimedRecord, extract, first_from, joined
from .byte_rate_limit import ByteRateLimit
from .counts import TierCounts
from .loading_cache import LoadingCache, StartSoon
from .object_store import ObjectNotFound, ObjectStore, ObjectStoreError
from .remote_index import RemoteIndex, check_manifest, read_indexes, remote_index
from .remote_read import RemotePlace, RemoteRead, RemoteReadRequest
from .segment_objects import remote_segment_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config.layers import Config

log = logging.getLogger("trioka.tier")

T = TypeVar("T")

RANGE_BYTES: Final = 4 * 1024 * 1024  # smaller ranges cost ten times the CPU per byte
WINDOW: Final = 4  # ranges in flight for a sequential reader
MAX_READ_BYTES: Final = 2 * RANGE_BYTES  # of one partition in one response; a larger batch is returned alone
CHECK_THREADS: Final = 4
SMALL_BYTES: Final = 512 * 1024  # a smaller result is copied, because a view of it keeps a whole range in memory
MAX_INDEX_CACHE_BYTES: Final = 64 * 1024 * 1024
MAX_INDEX_LOADS_AHEAD: Final = 8
MAX_EMPTY_SEGMENTS: Final = 4  # that have nothing from the offset on, because of gaps: looked at in one read
MAX_FOLLOWED: Final = 1000  # readers whose next offset is remembered
SCAN_BYTES: Final = 1024 * 1024  # looked at in a step, in a search for a time


class Loss(Enum):
    """Why a segment cannot be read."""

    MISSING = "an object is missing"
    DAMAGED = "an object is damaged"


class RangeKey(NamedTuple):
    object_key: str
    number: int
    size: int


class RemoteReader:
    def __init__(
        self,
        config: "Callable[[], Config]",
        start_soon: StartSoon,
        store: Callable[[], ObjectStore],
        image: RemoteLogMetadata,
        on_lost: Callable[[TopicIdPartition, RemoteSegment, Loss], None],
        may_skip: Callable[[TopicIdPartition], bool],
        counts: TierCounts,
    ) -> None:
        self._config: Final = config
        self._store: Final = store
        self._image: Final = image
        self._on_lost: Final = on_lost
        self._may_skip: Final = may_skip
        self._threads: Final = trio.CapacityLimiter(config()[REMOTE_LOG_READER_THREADS])
        self._checks: Final = trio.CapacityLimiter(
            CHECK_THREADS
        )  # of their own, because appends need threads for fsyncs
        self.quota: Final = ByteRateLimit(lambda: config()[REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND])
        self._counts: Final = counts
        self.pending = 0  # reads that were begun and have no answer yet
        self.rejected = 0  # since the start, because too many were pending
        cache_bytes = config()[TIER_CACHE_BYTES]
        self.ranges: Final = LoadingCache[RangeKey, memoryview](
            start_soon, self._load_range, len, max_bytes=cache_bytes, max_ahead=max(cache_bytes // RANGE_BYTES // 2, 1)
        )
        self.indexes: Final = LoadingCache[object_key.RemoteSegment, RemoteIndex](
            start_soon,
            self._load_index,
            lambda index: index.memory_bytes,
            max_bytes=min(config()[REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES], MAX_INDEX_CACHE_BYTES),
            max_ahead=MAX_INDEX_LOADS_AHEAD,
        )
        self._last_warning = ""
        self._followed: Final[OrderedDict[tuple[TopicIdPartition, int], bool]] = OrderedDict()

    # -- reads ---------------------------------------------------------------------------------------------------------

    async def read(self, request: RemoteReadRequest) -> RemoteRead | None:
        """None if there is no answer yet. KafkaStorageError if the object store fails, CorruptMessage for damage."""
        config, counts = self._config(), self._counts.of(request.place.about.topic)
        counts.fetch_requests += 1
        if self.pending >= config[REMOTE_LOG_READER_MAX_PENDING_TASKS]:
            self.rejected += 1
            await trio.sleep(config[REMOTE_FETCH_MAX_WAIT_MS] / 1000)
            return None
        self.pending += 1
        found: RemoteRead | None = None
        try:
            with trio.move_on_after(config[REMOTE_FETCH_MAX_WAIT_MS] / 1000):
                found = await self._read(request)
        except (KafkaStorageError, CorruptMessage):
            counts.fetch_errors += 1
            raise
        finally:
            self.pending -= 1
        if found is not None:
            counts.fetched_bytes += len(found.records)
        return found

    async def _read(self, request: RemoteReadRequest) -> RemoteRead:
        about, its_log = request.place
        lineage, partition = lineage_of(its_log), self._partition(about)
        offset = request.offset
        for _ in range(MAX_EMPTY_SEGMENTS):
            segment = partition.segment_at(lineage, offset)
            if segment is None:
                segment = partition.segment_after(lineage, offset)
                if not self._may_skip(about):
                    raise KafkaStorageError(f"{about}: no segment in the object store has offset {offset}")
                if segment is None or segment.start_offset >= its_log.local_log_start_offset:
                    return RemoteRead(NOTHING, its_log.local_log_start_offset)
            reading = _Reading(request, partition, lineage, segment, max(offset, segment.start_offset))
            is_sequential = self._followed.pop((about, request.offset), False)
            found = await self._guarded(reading, partial(self._extract, reading, is_sequential))
            if len(found.records) or found.next_offset <= reading.offset:
                break
            offset = found.next_offset
        if not len(found.records):
            return RemoteRead(NOTHING, request.offset)
        self._followed[about, found.next_offset] = True
        if len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)
        aborted = await self._aborted(reading, found.next_offset) if request.is_committed else ()
        return RemoteRead(found.records, found.next_offset, aborted)

    def _partition(self, about: TopicIdPartition) -> RemotePartition:
        partition = self._image.partition(about.topic_id, about.partition)
        if partition is None:
            raise KafkaStorageError(f"{about}: nothing is known yet about its segments in the object store")
        return partition

    async def _extract(self, reading: "_Reading", is_sequential: bool) -> Extract:
        request = reading.request
        index = await self.indexes.get(reading.name)
        position, anchor = index.place_before(reading.offset)
        number, skipped = divmod(position, RANGE_BYTES)
        ranges = self._ranges(reading.name, index.size, number)
        if not ranges:
            raise CorruptMessage(f"{reading.name}: an index entry points behind its end")
        if is_sequential:
            self._load_ahead(reading, ranges[1:WINDOW])
        views = [await self.ranges.get(ranges[0])]
        limit = RANGE_BYTES - skipped
        while True:
            wanted = BatchRangeRequest(
                offset=reading.offset,
                end_offset=min(request.end_offset, reading.lineage.usable_end(reading.segment)),
                max_bytes=min(request.max_bytes, MAX_READ_BYTES),
                at_least_one=request.at_least_one,
                anchor=anchor,
                is_last_data=len(views) == len(ranges) and skipped + limit >= sum(map(len, views)),
            )
            found = await trio.to_thread.run_sync(
                partial(_extract_from, views, skipped, limit, wanted), limiter=self._checks
            )
            if not found.missing_bytes:
                return found
            # The first batch goes over the end of these bytes: copy what the read may have, from both ranges.
            limit += max(found.missing_bytes, min(wanted.max_bytes, RANGE_BYTES))
            while sum(map(len, views)) < skipped + limit and len(views) < len(ranges):
                views.append(await self.ranges.get(ranges[len(views)]))

    def _ranges(self, name: object_key.RemoteSegment, size: int, first: int) -> list[RangeKey]:
        """The ranges of a segment's bytes from one on."""
        count, key = -(-size // RANGE_BYTES), name.key(ObjectSuffix.LOG)
        return [RangeKey(key, n, min(RANGE_BYTES, size - n * RANGE_BYTES)) for n in range(first, count)]

    def _load_ahead(self, reading: "_Reading", ranges: list[RangeKey]) -> None:
        """These ranges, and as many of the next segment as are missing in the window."""
        for key in ranges:
            self.ranges.load_ahead(key)
        following = None
        if len(ranges) < WINDOW - 1:
            following = reading.partition.segment_at(reading.lineage, reading.lineage.usable_end(reading.segment))
        if following is not None:
            name = remote_segment_of(reading.request.place.about, following)
            self.indexes.load_ahead(name)
            for key in self._ranges(name, following.size_bytes, 0)[: WINDOW - 1 - len(ranges)]:
                self.ranges.load_ahead(key)

    async def _aborted(self, reading: "_Reading", end: int) -> tuple[tuple[int, int], ...]:
        """The aborted transactions with records in [offset, end). An entry is in the segment that has the marker, so
        later segments count too, up to the first that was stable behind the range; then the local ones. Those are taken
        together with the list of segments: while indexes are loaded, they may be copied and deleted here."""
        its_log = reading.request.place.log
        local = its_log.aborted_transactions(its_log.local_log_start_offset, end)
        found: set[tuple[int, int]] = set()
        for segment in _with_transactions(reading):
            entries = reading._replace(segment=segment)
            index = await self._guarded(entries, partial(self.indexes.get, entries.name))
            for entry in index.aborted:
                if entry.last_offset >= reading.offset and entry.first_offset < end:
                    found.add((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= end:
                    return _in_order(found)
        found.update((transaction.producer_id, transaction.first_offset) for transaction in local)
        return _in_order(found)

    async def offset_for_timestamp(self, place: RemotePlace, timestamp: int) -> TimedRecord | None:
        """The first record in the object store that is as late; None if there is none before the local log start."""
        about, its_log = place
        partition, lineage = self._partition(about), lineage_of(its_log)
        offset = its_log.log_start_offset
        while offset < its_log.local_log_start_offset:
            segment = partition.segment_at(lineage, offset) or partition.segment_after(lineage, offset)
            if segment is None:
                return None
            end = lineage.usable_end(segment)
            if segment.max_timestamp_ms >= timestamp:
                request = RemoteReadRequest(place, offset, end, SCAN_BYTES, True, False)
                reading = _Reading(request, partition, lineage, segment, max(offset, segment.start_offset))
                found = await self._guarded(reading, partial(self._find_time, reading, timestamp))
                if found is not None:
                    return found
            offset = end
        return None

    async def _find_time(self, reading: "_Reading", timestamp: int) -> TimedRecord | None:
        index = await self.indexes.get(reading.name)
        start, end = reading.offset, reading.request.end_offset
        reading = reading._replace(offset=max(index.offset_before(timestamp), start))
        while reading.offset < end:
            read = await self._extract(reading, True)
            found = await trio.to_thread.run_sync(
                partial(first_from, read.records, timestamp, start, end), limiter=self._checks
            )
            if found is not None or read.next_offset <= reading.offset:
                return found
            reading = reading._replace(offset=read.next_offset)
        return None

    # -- loads ---------------------------------------------------------------------------------------------------------

    async def _load_range(self, key: RangeKey) -> memoryview:
        await self.quota.acquire(key.size)
        async with self._requests():
            data = await self._store().get_range(key.object_key, key.number * RANGE_BYTES, key.size)
        if len(data) != key.size:
            raise CorruptMessage(f"{key.object_key} has {len(data)} of {key.size} bytes at {key.number * RANGE_BYTES}")
        return data

    async def _load_index(self, name: object_key.RemoteSegment) -> RemoteIndex:
        manifest, indexes = await self.load_indexes(name)
        return await trio.to_thread.run_sync(lambda: remote_index(read_indexes(indexes, manifest), manifest))

    async def load_indexes(self, name: object_key.RemoteSegment) -> tuple[SegmentManifest, memoryview]:
        """The manifest, and the object with the indexes. Raises ObjectStoreError, or ProtocolError for damage."""
        async with self._requests():
            data = await self._store().get(name.key(ObjectSuffix.MANIFEST), max_bytes=MAX_MANIFEST_BYTES)
            manifest = await trio.to_thread.run_sync(lambda: check_manifest(bytes(data), name))
            indexes = await self._store().get(name.key(ObjectSuffix.INDEXES), max_bytes=max(manifest.indexes.size, 1))
        return manifest, indexes

    @property
    def idle_share(self) -> float:
        """The share of remote.log.reader.threads that is not used now."""
        return self._threads.available_tokens / self._threads.total_tokens

    def _requests(self) -> trio.CapacityLimiter:
        threads = self._config()[REMOTE_LOG_READER_THREADS]
        if self._threads.total_tokens != threads:
            self._threads.total_tokens = threads
        return self._threads

    async def _guarded(self, reading: "_Reading", call: Callable[[], Awaitable[T]]) -> T:
        """The result, or the error for the client. Damage may be of the way and not of the object: it is read again
        once."""
        name = reading.name
        for is_last in (False, True):
            try:
                return await call()
            except UnsupportedManifest as error:
                raise KafkaStorageError(f"{name}: {error}") from None
            except (ProtocolError, CorruptMessage) as error:
                self.indexes.drop(name)
                key = name.key(ObjectSuffix.LOG)
                self.ranges.drop_if(lambda each, key=key: each.object_key == key)  # type: ignore[misc]
                if is_last:
                    self._lost(reading, Loss.DAMAGED, error)
                    raise CorruptMessage(f"{name}: {error}") from None
            except ObjectNotFound as error:
                self._lost(reading, Loss.MISSING, error)
                raise KafkaStorageError(f"{name}: {error}") from None
            except (ObjectStoreError, trio.BrokenResourceError) as error:
                self._warn(f"{name}: {error}")
                raise KafkaStorageError(f"{name}: {error}") from None
        raise AssertionError("the second attempt returns or raises")

    def _lost(self, reading: "_Reading", loss: Loss, error: Exception) -> None:
        self._warn(f"{reading.name}: {error}")
        self._on_lost(reading.request.place.about, reading.segment, loss)

    def _warn(self, text: str) -> None:
        """Each consumer meets the same error again and again: it is logged once in a row."""
        if text != self._last_warning:
            self._last_warning = text
            log.warning("a read from the object store failed: %s", text)


class _Reading(NamedTuple):
    """A read of one segment."""

    request: RemoteReadRequest
    partition: RemotePartition
    lineage: Lineage
    segment: RemoteSegment
    offset: int

    @property
    def name(self) -> object_key.RemoteSegment:
        return remote_segment_of(self.request.place.about, self.segment)


def _extract_from(views: list[memoryview], skipped: int, limit: int, wanted: BatchRangeRequest) -> Extract:
    assert not trio.lowlevel.in_trio_run(), "batches would be checked on the event loop"
    found = extract(joined(views, skipped, limit), wanted)
    return found if len(found.records) > SMALL_BYTES else found._replace(records=memoryview(bytes(found.records)))


def _with_transactions(reading: _Reading) -> "Iterator[RemoteSegment]":
    """The segments that end behind the offset and have aborted transactions of this history."""
    for segment in tuple(reading.partition.finished):
        has_entries = segment.next_offset > reading.offset and not segment.txn_index_empty
        if has_entries and reading.lineage.usable_end(segment) > segment.start_offset:
            yield segment


def _in_order(found: set[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(found, key=lambda transaction: transaction[1]))
