"""A log whose closed segments are in an object store and not on its disk, without a broker."""

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import trio
from support.log_fixtures import NAME, NOW_MS

from trioka.broker.tier.store.object_store import Data, Listing, ObjectNotFound, ObjectStoreError, ObjectWriter
from trioka.broker.tier.store.segment_objects import describe, files_of, manifest_of, remote_segment_of
from trioka.cluster.remote_log.metadata import (
    RemoteLogMetadata,
    RemoteSegment,
    SegmentState,
    segment_record,
    update_record,
)
from trioka.protocol.checksum import crc32c
from trioka.protocol.remote_segment.manifest import Uploader
from trioka.protocol.remote_segment.object_key import ObjectSuffix, TopicIdPartition
from trioka.storage.cleaning.local_retention import enforce_local
from trioka.storage.log import Log

ABOUT = TopicIdPartition(bytes(range(16)), NAME.topic, NAME.partition)


class MemoryStore:
    """Objects in memory. It counts requests, and `gate` delays ranges: how many of them wait is in `waiting`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.ranges: list[tuple[str, int]] = []
        self.gets: list[str] = []
        self.gate: trio.Event | None = None
        self.waiting = 0
        self.fails = False

    @property
    def url(self) -> str:
        return "memory:///"

    def _object(self, key: str) -> bytes:
        if self.fails:
            raise ObjectStoreError("503 Slow Down")
        if key not in self.objects:
            raise ObjectNotFound(f"{key}: there is no such object")
        return self.objects[key]

    async def get(self, key: str, max_bytes: int = 1 << 30) -> memoryview:
        await trio.lowlevel.checkpoint()
        self.gets.append(key)
        return memoryview(self._object(key))

    async def get_range(self, key: str, start: int, length: int) -> memoryview:
        self.ranges.append((key, start))
        self.waiting += 1
        if self.gate is not None:
            await self.gate.wait()
        await trio.lowlevel.checkpoint()
        self.waiting -= 1
        return memoryview(self._object(key))[start : start + length]

    async def size(self, key: str) -> int:
        await trio.lowlevel.checkpoint()
        return len(self._object(key))

    async def create(self, key: str, data: Data) -> bool:
        raise NotImplementedError

    async def put(self, key: str, data: Data) -> None:
        raise NotImplementedError

    async def list(self, prefix: str) -> Listing:
        raise NotImplementedError

    async def delete(self, keys: Iterable[str]) -> None:
        raise NotImplementedError

    async def open_writer(self, key: str, parts_at_once: int = 4) -> ObjectWriter:
        raise NotImplementedError

    def list_pages(self, prefix: str) -> object:
        raise NotImplementedError


def copy_closed_segments(
    log: Log, store: MemoryStore, image: RemoteLogMetadata, *, epoch: int = 9
) -> list[RemoteSegment]:
    """Puts the objects of all closed segments into the store, replays their records, and deletes them locally."""
    log.sync()
    random, copied = Random(len(image)), []
    for start, end in pairwise([segment.base_offset for segment in log.segments]):
        files = files_of(log, start)
        described = describe(files)
        epochs = [entry for entry in log.epochs.entries if entry.start_offset < end]
        first = max((number for number, entry in enumerate(epochs) if entry.start_offset <= start), default=0)
        segment = RemoteSegment(
            segment_id=random.randbytes(16),
            start_offset=start,
            end_offset=end - 1,
            broker_id=1,
            max_timestamp_ms=described.max_timestamp_ms,
            event_timestamp_ms=NOW_MS,
            leader_epochs=tuple(epochs[first:]),
            size_bytes=files.size,
            state=SegmentState.COPY_SEGMENT_STARTED,
            uploader_epoch=epoch,
            txn_index_empty=not files.aborted,
        )
        name, data = remote_segment_of(ABOUT, segment), bytes(log.files.disk.read(files.path))
        uploader = Uploader(cluster_id="cluster", incarnation=1, leader_epoch=epoch)
        store.objects[name.key(ObjectSuffix.LOG)] = data
        store.objects[name.key(ObjectSuffix.INDEXES)] = described.indexes.encode()
        store.objects[name.key(ObjectSuffix.MANIFEST)] = manifest_of(
            ABOUT, segment, described, uploader, data_crc32c=crc32c(data), retention_ms=-1
        )
        assert image.replay(segment_record(ABOUT, segment), epoch)
        finished = update_record(
            ABOUT, segment.segment_id, SegmentState.COPY_SEGMENT_FINISHED, broker_id=1, now_ms=NOW_MS
        )
        assert image.replay(finished, epoch)
        copied.append(segment)
    enforce_local(log, tiered_end=log.segments.active.base_offset, now_ms=NOW_MS)
    return copied
