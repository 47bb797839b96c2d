"""Carries out the jobs of cluster/remote_log/jobs.py: requests to the object store, records of the metadata topic.

A command that fails ends its job; the next decision starts from what the records say. Retries, and the limits of how
much is done at a time, are the callers' business (partition_task.py, deletion.py).
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.remote_log.jobs import (
    Command,
    CreateManifest,
    CreateTombstone,
    DeleteObjects,
    Job,
    ManifestKey,
    ObjectKind,
    Outcome,
    PutSegment,
    ReadManifestKey,
    RecordNotWritten,
    Result,
    StoreFailed,
    WriteRecord,
)
from trioka.cluster.remote_log.metadata import RemoteSegment
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.remote_segment.manifest import MAX_MANIFEST_BYTES, Tombstone, Uploader, decode_manifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix, TopicIdPartition
from trioka.storage.files.layout import CorruptFile
from trioka.storage.log import Log
from trioka.storage.recovery.producers_at import KnownProducers, NoProducerSnapshot
from trioka.storage.segments.batch_scan import BadBatch

from .early_upload import BegunUpload
from .reads.follower_history import history_at
from .store.object_store import ObjectNotFound, ObjectStore, ObjectStoreError
from .store.segment_objects import (
    Described,
    SegmentFiles,
    SegmentGone,
    Upload,
    describe,
    files_of,
    manifest_of,
    remote_segment_of,
    tombstone_of,
)

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

log = logging.getLogger("trioka.tier")

SUFFIXES: Final = {
    ObjectKind.MANIFEST: ObjectSuffix.MANIFEST,
    ObjectKind.INDEXES: ObjectSuffix.INDEXES,
    ObjectKind.DATA: ObjectSuffix.LOG,
}


FAILURES: Final = (RecordNotWritten, SegmentGone, BadBatch, CorruptFile, KafkaError, ProtocolError, OSError)


class JobFailed(Exception):
    """A step of a job failed, in a sentence. Whether it took effect is unknown."""


class JobRunner:
    """Runs one job about one partition, in the epoch of a leader."""

    def __init__(
        self,
        tier: "TieredStorage",
        about: TopicIdPartition,
        epoch: int,
        source: Log | None = None,
        begun: BegunUpload | None = None,
    ) -> None:
        self._tier = tier
        self._about = about
        self._epoch = epoch
        self._source = source  # the log whose segment is copied
        self._begun = begun  # what was sent while the segment was written
        self._retention_ms = -1 if source is None else source.config.retention_ms
        self._described: Described | None = None
        self._checksum: int | None = None  # of the data

    async def run(self, job: Job) -> Outcome:
        """Raises JobFailed."""
        result: Result = None
        try:
            command = next(job)
            while True:
                result = await self._execute(command)
                command = job.send(result)
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome
        except (ObjectStoreError, StoreFailed) as error:
            self._tier.counts.errors += 1
            raise JobFailed(str(error)) from None
        except FAILURES as error:
            raise JobFailed(str(error)) from None
        finally:
            job.close()

    async def _execute(self, command: Command) -> Result:
        store = self._tier.store
        if isinstance(command, WriteRecord):
            return await self._tier.topic.write(self._about, command.record, command.epoch)
        self._tier.require_ownership()
        if isinstance(command, PutSegment):
            await self._put(store, command.segment)
            return None
        if isinstance(command, CreateManifest):
            return await self._create_manifest(store, command.segment)
        if isinstance(command, CreateTombstone):
            data = tombstone_of(
                self._about,
                command.segment,
                self._uploader,
                broker_id=self._tier.broker_id,
                now_ms=self._tier.now_ms(),
            )
            self._tier.counts.requests += 1
            return await store.create(self._key(command.segment, ObjectKind.MANIFEST), data)
        if isinstance(command, ReadManifestKey):
            return await self._read_manifest_key(store, command.segment)
        assert isinstance(command, DeleteObjects)
        for kind in command.kinds:
            self._tier.counts.requests += 1
            await store.delete([self._key(command.segment, kind)])
        return None

    def _key(self, segment: RemoteSegment, kind: ObjectKind) -> str:
        return remote_segment_of(self._about, segment).key(SUFFIXES[kind])

    @property
    def _uploader(self) -> Uploader:
        epoch = min(self._epoch, 2**31 - 1)
        return Uploader(cluster_id=self._tier.cluster_id, incarnation=self._tier.incarnation, leader_epoch=epoch)

    async def describe(self, segment: RemoteSegment) -> None:
        """Reads and checks the segment that is to be copied, before a record names it: what is wrong with it on this
        disk leaves no trace in the topic or in the object store. Raises JobFailed."""
        assert self._source is not None, "only a leader copies"
        scanned = None if self._begun is None else self._begun.scan
        limiter = self._tier.read_limiter
        try:
            files = self._files(segment)
            await self._tier.flush(self._source)
            try:
                self._described = await trio.to_thread.run_sync(describe, files, scanned, limiter=limiter)
            except NoProducerSnapshot:
                known = await self._known_producers(files)
                log.info("%s: the producers before %d come from the object store", self._about, known.offset)
                self._described = await trio.to_thread.run_sync(describe, files, scanned, known, limiter=limiter)
        except FAILURES as error:
            raise JobFailed(str(error)) from None

    async def _known_producers(self, files: SegmentFiles) -> KnownProducers:
        """Those at the end of the remote segment before the local log: a crash has taken them from this disk."""
        offset = files.local[0].base_offset - 1
        epoch = next((each.epoch for each in reversed(files.epochs) if each.start_offset <= offset), -1)
        history = await history_at(self._tier, self._about, offset, epoch)
        return KnownProducers(history.next_offset, history.producer_snapshot)

    def _files(self, segment: RemoteSegment) -> SegmentFiles:
        assert self._source is not None, "only a leader copies"
        files = files_of(self._source, segment.start_offset)
        if files.next_offset != segment.next_offset or files.size != segment.size_bytes:
            raise SegmentGone(f"{self._about}: the segment at {segment.start_offset} has changed")
        return files

    async def _put(self, store: ObjectStore, segment: RemoteSegment) -> None:
        assert self._described is not None, "the segment is described first"
        files, limiter = self._files(segment), self._tier.read_limiter
        upload = Upload(store, self._key(segment, ObjectKind.DATA), limiter)
        if self._begun is not None:
            upload = self._begun.upload
        try:
            await self._tier.copy_quota.acquire(files.size - upload.sent_bytes)
            await upload.complete(files)
        finally:
            self._tier.remove_upload(upload)  # unless it was completed
        await store.put(self._key(segment, ObjectKind.INDEXES), self._described.indexes.encode())
        self._tier.counts.requests += 2
        self._checksum = upload.checksum

    async def _create_manifest(self, store: ObjectStore, segment: RemoteSegment) -> bool:
        assert self._described is not None and self._checksum is not None, "data and indexes are uploaded first"
        manifest = manifest_of(
            self._about,
            segment,
            self._described,
            self._uploader,
            data_crc32c=self._checksum,
            retention_ms=self._retention_ms,
        )
        self._tier.counts.requests += 1
        return await store.create(self._key(segment, ObjectKind.MANIFEST), manifest)

    async def _read_manifest_key(self, store: ObjectStore, segment: RemoteSegment) -> ManifestKey:
        self._tier.counts.requests += 1
        try:
            data = await store.get(self._key(segment, ObjectKind.MANIFEST), MAX_MANIFEST_BYTES)
        except ObjectNotFound:
            return ManifestKey.NOTHING
        found = decode_manifest(bytes(data))
        return ManifestKey.TOMBSTONE if isinstance(found, Tombstone) else ManifestKey.MANIFEST
