"""Tiered storage of this broker: owns the object store, the remote log metadata and the tasks of partitions.

    metadata change ──▶ a task for each tiered partition that this broker leads (partition_task.py)
    replayed record ──▶ the task of its partition; a follower deletes local segments; deleted topics (deletion.py)

`Broker` makes one if trioka.tier.url is set, starts it when the broker has joined, and passes it the changes of the
metadata. Everything runs in one nursery; nothing here blocks the event loop but small checkpoint files.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.image.configs import topic_resource
from trioka.cluster.image.image_delta import Change, ConfigChanged, PartitionChanged, TopicDeleted
from trioka.cluster.image.partition import random_uuid
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.cluster.remote_log.metadata import RemoteSegment, lineage_of
from trioka.cluster.remote_log.plan import Cause, Policy, tiered_end
from trioka.protocol.errors import KafkaError, KafkaStorageError
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.cleaning.local_retention import enforce_local
from trioka.storage.log import Log

from ..config import tier_keys, topic_keys, trioka_keys
from ..replication.partitions import Replica
from .byte_rate_limit import ByteRateLimit
from .cluster_copies import ClusterCopies
from .counts import TierCounts
from .deletion import TopicDeletions
from .early_upload import EarlyUploads
from .log_facts import facts_of, id_of, policy_of
from .memory_restore import MemoryRestore
from .metadata_topic import RemoteLogMetadataTopic
from .partition_task import PartitionTask
from .reads.batch_range import TimedRecord
from .reads.fetch_reads import FetchReads
from .reads.follower_history import FollowerHistory, history_at
from .reads.reader import RemoteReader
from .reads.remote_read import RemotePlace
from .segment_losses import SegmentLosses, open_reader
from .store.object_store import ObjectStore, ObjectStoreError, ObjectStoreRefused
from .store.ownership import Ownership
from .store.probe import check_conditional_create
from .store.segment_objects import Upload
from .sweep import OrphanSweep

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.tier")

CREATE_RETRY_S: Final = 1.0
READ_THREADS: Final = 4  # that read segments to be copied


class TieredStorage:
    def __init__(self, broker: "Broker", store: ObjectStore, create_topic: Callable[[], Awaitable[None]]) -> None:
        self.broker = broker
        self.store = store
        self.counts = TierCounts()
        self.ownership = Ownership(store, broker.cluster_id, broker.config[trioka_keys.TIER_INCARNATION])
        self.copy_limiter, self.delete_limiter = trio.CapacityLimiter(1), trio.CapacityLimiter(1)
        self._size_limiters()
        self.read_limiter = trio.CapacityLimiter(READ_THREADS)
        self.copy_quota = ByteRateLimit(lambda: broker.config[tier_keys.REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND])
        self.tasks: dict[TopicIdPartition, PartitionTask] = {}
        self.early_uploads: set[EarlyUploads] = set()  # that are in progress
        self._restores: dict[TopicIdPartition, MemoryRestore] = {}
        self.sweep = OrphanSweep(self)
        self.copies = ClusterCopies(self)
        self._is_checked = False
        self.topic: RemoteLogMetadataTopic
        self._reader: RemoteReader | None = None
        self.deletions: TopicDeletions
        self.losses: SegmentLosses
        self._create_topic = create_topic
        self._nursery: trio.Nursery | None = None
        self._needs_topic = trio.Event()

    def _size_limiters(self) -> None:
        config = self.broker.config
        self.copy_limiter.total_tokens = config[tier_keys.REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE]
        self.delete_limiter.total_tokens = config[tier_keys.REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE]

    @property
    def is_running(self) -> bool:
        """Whether the metadata is replayed: shortly after the start."""
        return self._nursery is not None

    # -- for tasks -----------------------------------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        return self.broker.node_id

    @property
    def cluster_id(self) -> str:
        return self.broker.cluster_id

    @property
    def incarnation(self) -> int:
        return self.ownership.incarnation

    def require_ownership(self) -> None:
        """Before each request that writes or deletes. Raises ObjectStoreError."""
        if not self._is_checked:
            raise ObjectStoreError(f"{self.store.url} has not answered since the start")
        self.ownership.require()

    def may_write(self) -> bool:
        return self._is_checked and self.ownership.superseded_by is None

    def remove_upload(self, upload: Upload) -> None:
        """It was begun, and will not be completed."""
        if self._nursery is None or not self.may_write():
            upload.abandon()
        elif upload.is_open:
            self._nursery.start_soon(self._remove_upload, upload)

    async def _remove_upload(self, upload: Upload) -> None:
        try:
            await upload.remove()
        except ObjectStoreError as error:
            log.info("an upload to %s was not removed, and is left to a lifecycle rule: %s", upload.key, error)

    async def check_store(self) -> None:
        """Raises ObjectStoreRefused for a store that cannot be used, ObjectStoreError for one that does not answer."""
        await check_conditional_create(self.store, f"{self.broker_id}-{self.broker.random.getrandbits(64):016x}")
        await self.ownership.check()
        self._is_checked = True

    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def new_segment_id(self) -> bytes:
        return random_uuid(self.broker.random)

    async def flush(self, its_log: Log) -> None:
        """What goes to the object store is durable here: otherwise a power loss could cut the log below it."""
        await self.broker.commit.flush(its_log)

    @property
    def retry_interval_s(self) -> float:
        return self.broker.config[tier_keys.REMOTE_LOG_MANAGER_TASK_INTERVAL_MS] / 1000

    def backoff_s(self, failures: int) -> float:
        config = self.broker.config
        first = config[tier_keys.REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS]
        longest = config[tier_keys.REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS]
        jitter = config[tier_keys.REMOTE_LOG_MANAGER_TASK_RETRY_JITTER]
        pause_ms = min(first * 2 ** min(failures, 20), longest)
        return float(pause_ms * self.broker.random.uniform(1 - jitter, 1 + jitter) / 1000)

    def policy_of(self, replica: Replica) -> Policy:
        deletes_all = not replica.log.config.remote_storage and self._deletes_on_disable(replica.topic)
        early = self.broker.config[trioka_keys.TIER_EARLY_UPLOAD]
        return policy_of(replica.log, deletes_all=deletes_all, copies_early=early)

    def _deletes_on_disable(self, topic: str) -> bool:
        config = self.broker.config.topic(self.broker.metadata.configs.get(topic_resource(topic)))
        return config[topic_keys.REMOTE_LOG_DELETE_ON_DISABLE]

    def on_deletion(self, about: TopicIdPartition, segment: RemoteSegment, cause: Cause) -> None:
        """A segment of the object store is about to be deleted."""
        if cause is Cause.MISSING:
            log.error(
                "%s: offsets %d to %d have lost objects in %s",
                about,
                segment.start_offset,
                segment.end_offset,
                self.store.url,
            )
        else:
            log.info("%s: deleting offset %d to %d: %s", about, segment.start_offset, segment.end_offset, cause.value)

    @property
    def reader(self) -> RemoteReader:
        """KafkaStorageError while the broker starts."""
        if self._reader is None:
            raise KafkaStorageError("the remote log metadata is not loaded yet")
        return self._reader

    def fetch_reads(self) -> FetchReads:
        """The reads of one Fetch."""
        return FetchReads(self)

    def last_tiered_offset(self, replica: Replica) -> int:
        """-1 if nothing of this log's history is in the object store, or nothing is known."""
        partition = self.topic.image.partition(replica.topic_id, replica.index) if self._nursery is not None else None
        return -1 if partition is None else partition.highest_offset(lineage_of(replica.log))

    async def offset_for_timestamp(self, replica: Replica, timestamp: int) -> TimedRecord | None:
        """The first record at or after the time, if it is before the local log start."""
        return await self.reader.offset_for_timestamp(RemotePlace(id_of(replica), replica.log), timestamp)

    async def history_at(self, replica: Replica, offset: int, epoch: int) -> FollowerHistory:
        """What a follower needs to begin behind the segment with this record."""
        return await history_at(self, id_of(replica), offset, epoch)

    # -- the broker ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until cancelled, from when the broker has joined."""
        async with trio.open_nursery() as nursery:
            self.topic = RemoteLogMetadataTopic(self.broker, nursery, self._on_replayed)
            self.deletions = TopicDeletions(self, nursery)
            self.losses = SegmentLosses(self, nursery)
            self._reader = open_reader(self, nursery)
            self._nursery = nursery
            nursery.start_soon(self._own)
            nursery.start_soon(self._create_topic_when_needed)
            nursery.start_soon(self.sweep.run)
            nursery.start_soon(self.copies.run)
            for replica in self.broker.partitions:
                self._refresh(replica)

    async def _own(self) -> None:
        failures = 0
        while not self._is_checked:
            await trio.sleep(self.backoff_s(failures))
            failures += 1
            try:
                await self.check_store()
                log.info("the object store answers: %s", self.store.url)
            except ObjectStoreRefused as error:
                self.broker.fail(str(error))
                return
            except ObjectStoreError as error:
                log.warning("the object store does not answer: %s", error)
        await self.ownership.watch()

    def on_changes(self, changes: Sequence[Change]) -> None:
        """The metadata has changed, and the replicas with it."""
        if self._nursery is None:
            return
        topics = {c.resource.name for c in changes if isinstance(c, ConfigChanged)}
        if topics:
            self._size_limiters()
        for change in changes:
            if isinstance(change, PartitionChanged):
                replica = self.broker.partitions.find(change.name, change.index)
                if replica is None:
                    about = TopicIdPartition(change.topic_id, change.name, change.index)
                    self._stop(about)
                    self._stop_restore(about)
                else:
                    self._refresh(replica)
            elif isinstance(change, TopicDeleted) and change.name == REMOTE_LOG_METADATA_TOPIC:
                self._begin_again()
            elif isinstance(change, TopicDeleted):
                for partition in change.partitions:
                    about = TopicIdPartition(change.topic_id, change.name, partition.index)
                    self._stop(about)
                    self._stop_restore(about)
                self.deletions.on_topic_deleted(change.topic_id)
        for topic in topics:
            for replica in self.broker.partitions.of_topic(topic):
                self._refresh(replica)

    def _begin_again(self) -> None:
        """The metadata topic was deleted, and is created again. What is in the object store stays there, unknown; what
        is on the disks is copied again."""
        log.error(
            "%s was deleted: what is only in %s cannot be read any more", REMOTE_LOG_METADATA_TOPIC, self.store.url
        )
        self.topic.on_topic_deleted()
        for about in list(self.tasks):
            self._stop(about)
        for replica in self.broker.partitions:
            self._refresh(replica)

    def _refresh(self, replica: Replica) -> None:
        """Begins or ends the task of a partition; or the replay of a partition of the metadata topic."""
        assert self._nursery is not None
        if replica.topic == REMOTE_LOG_METADATA_TOPIC:
            if replica.leads:
                self.topic.follow(replica.index)
                self.deletions.on_leader(replica.index)
            self._follow_all()
            return
        about = id_of(replica)
        self._refresh_restore(replica, about)
        if not self._is_tiered(replica):
            self._stop(about)
            return
        if self.topic.partition_count:
            self.topic.follow(self.topic.index_of(about))
        else:
            self._needs_topic.set()
        task = self.tasks.get(about)
        if task is not None and (
            not replica.leads or task.epoch != replica.leader_epoch or task.replica is not replica
        ):
            self._stop(about)
            task = None
        if task is not None:
            task.wake()
        elif replica.leads:
            task = self.tasks[about] = PartitionTask(self, replica, about)
            self._nursery.start_soon(self._run_task, task)

    def _refresh_restore(self, replica: Replica, about: TopicIdPartition) -> None:
        """Begins or ends the restore of a replica that was elected without its memory."""
        assert self._nursery is not None
        restore = self._restores.get(about)
        if restore is not None and not (restore.is_current and restore.replica is replica):
            self._stop_restore(about)
            restore = None
        if replica.deferred is not None and restore is None:
            restore = self._restores[about] = MemoryRestore(self, replica, about)
            self._nursery.start_soon(self._run_restore, restore)

    async def _run_restore(self, restore: MemoryRestore) -> None:
        try:
            await restore.run()
        except Exception as mistake:  # must not affect other partitions or the broker
            log.error("internal error: the restore of %s has ended", restore.about, exc_info=mistake)
        finally:
            if self._restores.get(restore.about) is restore:
                del self._restores[restore.about]

    def restored(self, replica: Replica) -> None:
        """The log continues behind the object store: the replica leads now."""
        self.counts.memory_restores += 1
        self.broker.applier.restored(replica)
        self._refresh(replica)

    def _follow_all(self) -> None:
        """The metadata topic was created: all tiered partitions of this broker are replayed."""
        if self.topic.partition_count:
            for replica in self.broker.partitions:
                if self._is_tiered(replica):
                    self.topic.follow(self.topic.index_of(id_of(replica)))

    def _is_tiered(self, replica: Replica) -> bool:
        return replica.log.config.remote_storage or self._deletes_on_disable(replica.topic)

    async def _run_task(self, task: PartitionTask) -> None:
        try:
            await task.run()
        except Exception as mistake:  # must not affect other partitions or the broker
            log.error("internal error: the task of %s has ended", task.about, exc_info=mistake)
        finally:
            if self.tasks.get(task.about) is task:
                del self.tasks[task.about]

    def _stop(self, about: TopicIdPartition) -> None:
        task = self.tasks.pop(about, None)
        if task is not None:
            task.scope.cancel()

    def _stop_restore(self, about: TopicIdPartition) -> None:
        restore = self._restores.pop(about, None)
        if restore is not None:
            restore.scope.cancel()

    def _on_replayed(self, about: TopicIdPartition) -> None:
        task = self.tasks.get(about)
        if task is not None:
            task.wake()
            return
        self.deletions.on_replayed(about)
        replica = self.broker.partitions.find(about.topic, about.partition)
        if replica is not None and replica.topic_id == about.topic_id and not replica.leads:
            self._enforce_quietly(replica)

    def enforce_local_retention(self, replica: Replica, about: TopicIdPartition) -> bool:
        """Deletes local segments that are in the object store, of a leader or a follower. Returns whether the active
        segment was closed, because its records are too old."""
        its_log = replica.log
        if its_log.closed or not its_log.config.remote_storage:
            return False
        end = tiered_end(facts_of(replica), self.topic.partition(about))
        return enforce_local(its_log, tiered_end=end, now_ms=self.now_ms()).roll

    def enforce_all_local_retention(self) -> None:
        """Of followers, as time passes; leaders do it when they decide."""
        for replica in self.broker.partitions:
            if not replica.leads and replica.log.config.remote_storage:
                self._enforce_quietly(replica)

    def _enforce_quietly(self, replica: Replica) -> None:
        try:
            self.enforce_local_retention(replica, id_of(replica))
        except (KafkaError, OSError) as error:
            log.warning("%s: local segments are not deleted: %s", replica.log.name, error)

    async def _create_topic_when_needed(self) -> None:
        while True:
            await self._needs_topic.wait()
            while not self.topic.partition_count:
                await self._create_topic()
                if not self.topic.partition_count:
                    await trio.sleep(CREATE_RETRY_S)
            self._needs_topic = trio.Event()  # the topic may be deleted
            self._follow_all()
