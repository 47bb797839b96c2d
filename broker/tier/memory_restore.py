"""A partition in memory whose replicas all lost it continues behind what is in the object store (decision 41).

An unclean election made this broker the leader. Its log may be empty, and an empty leader would have no part in the
history of the remote segments: they would be deleted. So the replica does not lead yet (`Replica.deferred`). First:

    record of the leader's epoch, read back ──▶ copies that were under way are adopted if complete, or cancelled
        ──▶ the lineage of the finished segments ──▶ the log begins behind them, unless it has all of it and more
        ──▶ transactions without a marker are aborted ──▶ the replica leads

A step that fails is tried again, and meanwhile the partition has no leader: nothing is written to it, nothing deleted.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from trioka.archive.catalog import read_manifest
from trioka.archive.errors import ArchiveError, DamagedSegment, MissingObject, StoreUnavailable
from trioka.archive.lineage import Lineage, agrees
from trioka.archive.partition import ArchivedPartition
from trioka.archive.store import ReadOnlyStore
from trioka.cluster.remote_log.jobs import Author, RecordNotWritten, cancel_copy
from trioka.cluster.remote_log.metadata import RemoteSegment, SegmentState, epoch_record
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.remote_segment.indexes import LeaderEpoch, decode_open_transactions
from trioka.protocol.remote_segment.manifest import SegmentManifest, Tombstone
from trioka.protocol.remote_segment.object_key import ObjectSuffix, TopicIdPartition, parse_key
from trioka.storage.files.checkpoint import EpochEntry
from trioka.storage.files.layout import CorruptFile
from trioka.storage.log import Log
from trioka.storage.tiered_log import begin_behind_remote_part

from ..config.trioka_keys import TIER_MISSING_POLICY
from ..replication.partitions import Replica
from .jobs import JobFailed, JobRunner
from .segment_losses import CONFIRM_S, SKIP
from .store.object_store import ObjectNotFound, ObjectStore, ObjectStoreError
from .store.segment_objects import remote_segment_of
from .undecided import abort_undecided

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

T = TypeVar("T")

log = logging.getLogger("trioka.tier")

READERS: Final = 8  # manifests that are read at the same time


class NotRestored(Exception):
    """The partition cannot be restored now; the text says why."""


class MemoryRestore:
    """Of one partition, in one leader epoch."""

    def __init__(self, tier: "TieredStorage", replica: Replica, about: TopicIdPartition) -> None:
        assert replica.deferred is not None
        self.replica = replica
        self.about = about
        self.epoch = replica.deferred.leader_epoch
        self.scope = trio.CancelScope()
        self._tier = tier
        self._lost: set[bytes] = set()  # segments with a missing object

    @property
    def is_current(self) -> bool:
        deferred = self.replica.deferred
        return deferred is not None and deferred.leader_epoch == self.epoch and not self.replica.log.closed

    async def run(self) -> None:
        """Until the replica leads, or another leader was elected."""
        failures = 0
        with self.scope:
            while self.is_current:
                try:
                    await self._restore()
                    return
                except (NotRestored, RecordNotWritten, JobFailed, ArchiveError, ObjectStoreError) as error:
                    reason = str(error)
                except (KafkaError, ProtocolError, CorruptFile, OSError) as error:
                    reason = f"{type(error).__name__}: {error}"
                pause_s = self._tier.backoff_s(failures)
                failures += 1
                log.warning(
                    "%s lost its memory and cannot continue behind the object store: %s; it has no leader until then, "
                    "and the next attempt is in %.1f s",
                    self.about,
                    reason,
                    pause_s,
                )
                await trio.sleep(pause_s)

    async def _restore(self) -> None:
        tier = self._tier
        tier.require_ownership()
        record = epoch_record(self.about, broker_id=tier.broker_id, now_ms=tier.now_ms())
        if not await tier.topic.write(self.about, record, self.epoch):
            raise NotRestored("a later leader has written to the remote log metadata")
        for segment in list(tier.topic.partition(self.about).segments.values()):
            if segment.state is SegmentState.COPY_SEGMENT_STARTED:
                author = Author(broker_id=tier.broker_id, epoch=self.epoch, now_ms=tier.now_ms())
                job = cancel_copy(self.about, segment, author)
                await JobRunner(tier, self.about, self.epoch).run(job)
        archived, producer_snapshot = await self._archived()
        if self.is_current:
            self._begin(archived, producer_snapshot)
            tier.restored(self.replica)

    async def _archived(self) -> tuple[ArchivedPartition, bytes]:
        """What the object store has of the partition, and the producers at its end. A segment that lost an object is
        left out, if the policy allows it."""
        store = _SegmentStore(self._tier.store)
        while True:
            finished = self._tier.topic.partition(self.about).finished
            try:
                manifests = await self._manifests(
                    store, [each for each in finished if each.segment_id not in self._lost]
                )
                return await trio.to_thread.run_sync(_read, store, self.about, manifests)
            except MissingObject:
                if self._tier.broker.config[TIER_MISSING_POLICY] != SKIP:
                    raise
                for key in store.missing:
                    log.error("%s: %s has no object %s: the segment's records are lost", self.about, store.name, key)
                    self._lost.add(parse_key(key)[0].segment_id)
                store.missing.clear()

    async def _manifests(self, store: "_SegmentStore", segments: Sequence[RemoteSegment]) -> list[SegmentManifest]:
        found: list[SegmentManifest] = []
        errors: list[ArchiveError] = []
        left = list(segments)

        async def read() -> None:
            while left and not errors:
                name = remote_segment_of(self.about, left.pop())
                try:
                    manifest = await trio.to_thread.run_sync(read_manifest, store, name)
                    if isinstance(manifest, Tombstone):
                        raise DamagedSegment(f"{name} is finished, and has a tombstone in place of its manifest")
                    found.append(manifest)
                except ArchiveError as error:
                    errors.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(min(READERS, len(left))):
                nursery.start_soon(read)
        if errors:
            raise errors[0]
        return found

    def _begin(self, archived: ArchivedPartition, producer_snapshot: bytes) -> None:
        """Without a pause, so that no other leader can be elected meanwhile. Blocks for a few small files."""
        its_log, now_ms = self.replica.log, self._tier.now_ms()
        if not archived.slices:
            log.warning("%s lost its memory, and nothing of it is in the object store", self.about)
            return
        if is_ahead(its_log, archived.lineage):
            log.info("%s goes on to offset %d, behind the object store", self.about, its_log.log_end_offset)
        else:
            begin_behind_remote_part(
                its_log,
                archived.end_offset,
                log_start_offset=archived.start_offset,
                epochs=[EpochEntry(entry.epoch, entry.start_offset) for entry in archived.lineage.chain],
                producer_snapshot=producer_snapshot,
                now_ms=now_ms,
            )
            log.warning(
                "%s lost its memory, and continues at offset %d: records from there on were not in the object store, "
                "and are lost",
                self.about,
                archived.end_offset,
            )
        undecided = decode_open_transactions(producer_snapshot)
        aborted = abort_undecided(its_log, undecided, leader_epoch=self.epoch, now_ms=now_ms)
        if aborted:
            log.warning("%s: the markers of transactions of producers %s are lost: aborted", self.about, aborted)


def is_ahead(its_log: Log, lineage: Lineage) -> bool:
    """Whether the log has the history in the object store to its end, and perhaps more."""
    chain = tuple(LeaderEpoch(entry.epoch, entry.start_offset) for entry in its_log.epochs.entries)
    return its_log.log_end_offset >= lineage.end_offset and agrees(lineage, chain)


def _read(
    store: "_SegmentStore", about: TopicIdPartition, manifests: Sequence[SegmentManifest]
) -> tuple[ArchivedPartition, bytes]:
    """Also looks for all objects of the last segment, which decides where the log continues. MissingObject."""
    archived = ArchivedPartition(store, about.topic, about.partition, manifests)
    last = archived.last_slice()
    if last is None:
        return archived, b""
    store.size_of(last.manifest.segment.key(ObjectSuffix.LOG))
    return archived, archived.indexes(last.manifest).producer_snapshot


class _SegmentStore(ReadOnlyStore):
    """The broker's object store for the archive's readers, which block: to be used in worker threads of trio."""

    def __init__(self, store: ObjectStore) -> None:
        self.url = self.name = store.url
        self.missing: set[str] = set()  # keys of objects that are gone
        self._requests = store

    def read(self, key: str, *, limit: int) -> bytes:
        return bytes(trio.from_thread.run(self._confirmed, key, self._requests.get, limit))

    def size_of(self, key: str) -> int:
        return trio.from_thread.run(self._confirmed, key, self._requests.size)

    async def _confirmed(self, key: str, ask: Callable[..., Awaitable[T]], *more: int) -> T:
        """An object that seems to be missing is looked for again after a while."""
        try:
            try:
                return await ask(key, *more)
            except ObjectNotFound:
                await trio.sleep(CONFIRM_S)
                return await ask(key, *more)
        except ObjectNotFound:
            self.missing.add(key)
            raise MissingObject(f"{self.name} has no object {key}") from None
        except ObjectStoreError as error:
            raise StoreUnavailable(f"{key}: {error}") from error
