"""Applies metadata changes to this broker's replicas: opens, leads, follows, configures and deletes their logs.

Disk operations run in worker threads, and requests are served meanwhile. A partition is unknown to requests until its
log is open; clients retry after that error.
"""

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol, TypeGuard, TypeVar

import trio

from trioka.cluster.image.brokers import Broker as Registration
from trioka.cluster.image.configs import ConfigResourceType
from trioka.cluster.image.image_delta import Change, ConfigChanged, PartitionChanged, TopicDeleted
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.partition import NO_LEADER, Partition, RecoveryState, is_reserved_directory
from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.replication.leader_state import UNKNOWN, LeaderState
from trioka.protocol.errors import KafkaError, KafkaStorageError
from trioka.protocol.primitives import uuid_text
from trioka.storage.directory import LogDirectory
from trioka.storage.files.failstop_disk import OutOfDescriptors
from trioka.storage.files.layout import TopicPartition
from trioka.storage.files.sync import retry_out_of_descriptors
from trioka.storage.leader_epochs import EpochUpdate
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_move import longer_copy

from ..clock import Clock
from ..network.descriptors import free_descriptors
from .partitions import NO_EPOCH, Partitions, Replica

log = logging.getLogger("trioka.replicas")
lifecycle = logging.getLogger("trioka.lifecycle")

THREADS: Final = 8  # concurrent syncs share one sync of the disk; one after the other, each takes as long as all
APPLY_BATCH: Final = 64  # logs created and led before the next ones are started
MAX_NAMED: Final = 5  # partitions in one log line

WorkItem = TypeVar("WorkItem")
Result = TypeVar("Result")


class ApplierContext(Protocol):
    """The parts of the broker that must be notified of changes of replicas."""

    def registered(self, broker_id: int) -> Registration | None:
        """The broker's registration in the metadata."""

    def max_lag_s(self) -> float:
        """replica.lag.time.max.ms, in seconds: how long an in-sync follower may lag behind."""

    def is_linearizable(self, topic: str) -> bool:
        """Whether reads of the topic are linearizable."""

    def is_memory_topic(self, topic: str) -> bool:
        """Whether the topic's replicas are in memory directories."""

    def is_restorable(self, topic: str) -> bool:
        """Whether it is a memory topic that is also in the object store."""

    def on_leader(self, replica: Replica) -> None:
        """Called when the replica becomes leader or when its ISR or epoch changes."""

    def on_follower(self, replica: Replica) -> None:
        """Called when the replica becomes follower: it must fetch from the leader."""

    def on_offline(self, replica: Replica) -> None:
        """Called when the partition has no leader or the replica was removed."""

    def release(self) -> None:
        """Drop references to removed replicas, which would keep their logs in memory."""


class MetadataApplier:
    def __init__(
        self,
        *,
        node_id: int,
        directories: Sequence[LogDirectory],
        partitions: Partitions,
        log_config: Callable[[str], LogConfig],
        min_in_sync: Callable[[str], int],
        context: ApplierContext,
        clock: Clock,
        random: Random,
    ) -> None:
        self._node_id = node_id
        self._directories = directories
        self._partitions = partitions
        self._log_config = log_config
        self._min_in_sync = min_in_sync
        self._context = context
        self._clock = clock
        self._random = random

    async def apply(self, changes: Sequence[Change]) -> None:
        """Apply metadata changes to this broker's replicas, in their order: a topic may be deleted and created again,
        or a replica removed and added again, between two calls."""
        gone: dict[tuple[str, int], Replica] = {}
        together: list[PartitionChanged] = []  # changes after the last removal, applied together
        for change in changes:
            if isinstance(change, PartitionChanged) and self._node_id in change.after.replicas:
                together.append(change)
            elif self._removes_replica(change):
                if together:
                    await self._remove(gone)
                    await self._apply_partitions(together)
                gone |= self._removed_replicas(change)
        await self._remove(gone)
        await self._apply_partitions(together)
        for other in changes:
            if isinstance(other, ConfigChanged) and other.resource.type == ConfigResourceType.TOPIC:
                self.configure(other.resource.name)

    async def _apply_partitions(self, mine: list[PartitionChanged]) -> None:
        """Create missing logs, then apply the leader of each partition, in order and in groups of APPLY_BATCH: if there
        are thousands, the first partitions are usable while the others are still being created."""
        for start in range(0, len(mine), APPLY_BATCH):
            some = mine[start : start + APPLY_BATCH]
            await self._make_logs(some)
            ahead = await self._write_epochs_ahead(some)
            for change in some:
                self.apply_partition(change.name, change.after, ahead.get((change.name, change.index)))
            await trio.lowlevel.checkpoint()  # let other tasks run
        self._log_new_leaders(mine)
        mine.clear()

    def _log_new_leaders(self, mine: Sequence[PartitionChanged]) -> None:
        """Elections are logged; the first leader of a new partition is not."""
        moved = [each for each in mine if each.before is not None and each.before.leader != each.after.leader]
        gained = [each for each in moved if each.after.leader == self._node_id]
        lost = [each for each in moved if each.before is not None and each.before.leader == self._node_id]
        if gained or lost:
            names = [f"{each.name}-{each.index}" for each in (*gained, *lost)]
            text = ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
            lifecycle.info(
                "new leaders: node %d leads %d more partitions and %d fewer: %s",
                self._node_id,
                len(gained),
                len(lost),
                text,
            )

    async def _make_logs(self, mine: Sequence[PartitionChanged]) -> None:
        """Create the missing logs in several threads, since each takes two syncs, and one more sync covers all."""
        missing = {(c.name, c.index): c for c in mine if self._partitions.find(c.name, c.index) is None}
        configs = {name: self._log_config(name) for name in {name for name, _ in missing}}
        in_memory = {name: self._context.is_memory_topic(name) for name in configs}
        work: list[_LogToCreate] = []
        for change in missing.values():
            if not self._is_offline_replica(change, in_memory=in_memory[change.name]):
                coming = [new.directory for new in work]
                directory = self._least_loaded(coming, in_memory=in_memory[change.name])
                if directory is None:
                    kind = "memory log directory" if in_memory[change.name] else "log directory on a disk"
                    log.error("%s-%d is offline: this broker has no usable %s", change.name, change.index, kind)
                else:
                    work.append(_LogToCreate(change, directory, configs[change.name], self._clock.now_ms()))
        made: dict[LogDirectory, list[tuple[PartitionChanged, Log]]] = {}
        for new, its_log in zip(work, await self._make_each(work), strict=True):
            if its_log is not None:
                made.setdefault(new.directory, []).append((new.change, its_log))
        for directory, logs in made.items():
            try:
                await trio.to_thread.run_sync(directory.admit, [its_log for _, its_log in logs])
            except KafkaStorageError as error:
                log.error("%d logs cannot be created: %s", len(logs), error)
                continue
            for change, its_log in logs:
                self.adopt(change.name, change.topic_id, change.index, its_log)

    async def _make_each(self, work: Sequence["_LogToCreate"]) -> list[Log | None]:
        """The new logs; None if the disk failed. Logs for which there is no file descriptor are created a little
        later."""
        made: dict[int, Log | None] = {}

        async def make_missing() -> None:
            rest = [number for number in range(len(work)) if number not in made]
            shortage: OutOfDescriptors | None = None
            for number, its_log in zip(
                rest, await _in_threads(_LogToCreate.make, [work[each] for each in rest]), strict=True
            ):
                if isinstance(its_log, OutOfDescriptors):
                    shortage = its_log
                else:
                    made[number] = its_log
            if shortage is not None:
                raise shortage

        try:
            await retry_out_of_descriptors(make_missing, self._free_descriptors)
        except OutOfDescriptors as error:
            log.error("%d logs cannot be created: %s", len(work) - len(made), error)
        return [made.get(number) for number in range(len(work))]

    async def _free_descriptors(self) -> None:
        await free_descriptors(directory.files for directory in self._directories)

    async def _write_epochs_ahead(self, mine: Sequence[PartitionChanged]) -> dict[tuple[str, int], EpochUpdate]:
        """Write the epochs of new leaders to disk before they lead (I10). This takes two syncs each and may concern
        thousands of replicas, so several threads do it, without delaying requests. These logs get no appends meanwhile:
        their replicas do not lead yet. A replica that already leads, in an earlier epoch, writes its new epoch when its
        turn comes."""
        last = {(change.name, change.index): change.after for change in mine}
        work: list[EpochUpdate] = []
        names: list[tuple[str, int]] = []
        for name, partition in last.items():
            replica = self._partitions.find(*name)
            if replica is None or replica.leads or partition.leader != self._node_id:
                continue
            if self._is_restored_first(replica, partition):
                continue
            its_log, epoch = replica.log, partition.leader_epoch
            is_new = epoch > max(replica.leader_epoch, its_log.epochs.latest_epoch)
            if is_new and not its_log.closed:
                self._context.on_offline(replica)
                work.append(its_log.epochs.prepared(epoch, its_log.log_end_offset))
                names.append(name)
        are_written = await _in_threads(_write_ahead, work)
        return {name: prepared for name, prepared, done in zip(names, work, are_written, strict=True) if done}

    async def adopt_all(self, metadata: Metadata) -> None:
        """At the start: assigns the existing logs to the partitions in the metadata. A log that belongs to no partition
        of this node, or to a topic that was deleted and created again, is set aside. If a crash has left two logs of a
        replica whose copy was about to replace the original, the shorter one is set aside."""
        wanted = {}
        for topic, partition in metadata.topics.partitions():
            if self._node_id in partition.replicas:
                wanted[TopicPartition(topic.name, partition.index)] = (topic, partition)
        for directory in self._directories:
            strays = {}
            for name in directory.logs:
                if name.topic == CLUSTER_METADATA_TOPIC:
                    continue
                topic_and_partition = wanted.get(name)
                known_id = directory.topic_ids.get(name)
                if topic_and_partition is None or known_id not in (None, topic_and_partition[0].topic_id):
                    log.warning("%s is not in the metadata: renamed to -stray", name)
                    strays[name] = self._unique_suffix()
            if strays:
                await trio.to_thread.run_sync(directory.mark_stray, strays)
        await self._remove_duplicates()
        for directory in self._directories:
            nameless = {name: wanted[name][0].topic_id for name in wanted.keys() & directory.logs.keys()}
            nameless = {name: its_id for name, its_id in nameless.items() if name not in directory.topic_ids}
            try:
                if nameless and directory.failure is None:
                    await trio.to_thread.run_sync(directory.assign_topic_ids, nameless)
            except KafkaStorageError as error:
                log.error("%d logs in %s have no topic id: %s", len(nameless), directory.path, error)
            for name, found in directory.logs.items():
                if name in wanted:
                    if directory.in_memory != self._context.is_memory_topic(name.topic):
                        log.warning(
                            "%s is in %s, which is not of the class of its topic (trioka.log.dir.class): move it to "
                            "another log directory",
                            name,
                            directory.path,
                        )
                    self.adopt(name.topic, wanted[name][0].topic_id, name.partition, found)
        for topic_name in {name.topic for name in wanted}:  # a topic may have thousands of partitions
            self.configure(topic_name)
        await self.apply(
            [
                PartitionChanged(
                    topic_id=topic.topic_id, name=topic.name, index=partition.index, before=None, after=partition
                )
                for topic, partition in wanted.values()
            ]
        )

    async def _remove_duplicates(self) -> None:
        copies: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self._directories:
            for name in directory.logs:
                if name.topic != CLUSTER_METADATA_TOPIC:
                    copies.setdefault(name, []).append(directory)
        for name, directories in copies.items():
            if len(directories) > 1:
                kept = longer_copy(directories, name)
                for other in directories:
                    if other is not kept:
                        log.warning(
                            "%s has a longer log in %s: the log in %s is renamed to -stray", name, kept.path, other.path
                        )
                        await trio.to_thread.run_sync(other.mark_stray, {name: self._unique_suffix()})

    def adopt(self, topic: str, topic_id: bytes, index: int, opened: Log) -> Replica:
        """Add a log of this broker as a replica of its partition."""
        replica = Replica(topic=topic, topic_id=topic_id, index=index, log=opened, now=self._clock.now)
        self._partitions.add(replica)
        return replica

    def apply_partition(self, topic: str, partition: Partition, ahead: EpochUpdate | None = None) -> None:
        """Apply the leader and the ISR of a partition, with the leader epoch written in advance."""
        replica = self._partitions.find(topic, partition.index)
        if replica is None or partition.leader_epoch < replica.leader_epoch:
            return
        replica.replica_count = len(partition.replicas)
        replica.min_in_sync = min(self._min_in_sync(topic), replica.replica_count)
        replica.is_linearizable = self._context.is_linearizable(topic)
        replica.max_lag_s = self._context.max_lag_s()
        replica.deferred = partition if self._is_restored_first(replica, partition) else None
        if replica.deferred is None and partition.leader == self._node_id:
            self._lead(replica, partition, ahead)
            self._context.on_leader(replica)
            return
        replica.leads = replica.is_unreplicated = False
        replica.leadership = None
        replica.leader_id, replica.leader_epoch = partition.leader, partition.leader_epoch
        if replica.deferred is not None:
            replica.leader_id = NO_LEADER
        if replica.leader_id == NO_LEADER:
            self._context.on_offline(replica)
        else:
            self._context.on_follower(replica)

    def _is_restored_first(self, replica: Replica, partition: Partition) -> bool:
        """Whether the replica must not lead yet: after an unclean election the leader of a topic in memory and in the
        object store continues behind the latter (tier/memory_restore.py)."""
        return (
            partition.leader == self._node_id
            and partition.leader_recovery_state is RecoveryState.RECOVERING
            and replica.restored_epoch != partition.leader_epoch
            and self._context.is_restorable(replica.topic)
        )

    def restored(self, replica: Replica) -> None:
        """A replica that was elected leads now."""
        partition = replica.deferred
        assert partition is not None
        replica.restored_epoch = partition.leader_epoch
        replica.leader_epoch = NO_EPOCH  # it begins now
        self.apply_partition(replica.topic, partition)

    def _lead(self, replica: Replica, partition: Partition, ahead: EpochUpdate | None) -> None:
        """Start a new epoch at the end of the log, before a record is appended in it (I10)."""
        epoch, leadership = partition.leader_epoch, replica.leadership
        if epoch != replica.leader_epoch:
            self._begin_epoch(replica, epoch, ahead)
            leadership = None
        if not replica.leads:
            replica.term += 1
        if replica.replica_count == 1:
            leadership = None
        elif leadership is None:
            start = replica.log.epochs.start_offset_of(epoch)
            leadership = LeaderState(
                self._node_id,
                partition,
                log_end_offset=replica.log.log_end_offset if start == UNKNOWN else start,
                now=self._clock.now(),
                registered=self._context.registered,
            )
        else:
            leadership.follow(partition)
        replica.leadership = leadership
        replica.leader_id, replica.leader_epoch, replica.leads = self._node_id, epoch, True
        replica.is_unreplicated = replica.replica_count == 1
        replica.advance()

    def _is_offline_replica(self, change: PartitionChanged, *, in_memory: bool) -> bool:
        """Whether the replica's directory is offline. A new, empty log elsewhere would pass for the complete log: only
        a replica of a memory topic begins again, once the controller counts it neither in sync nor eligible (TM1)."""
        place = change.after.directory(self._node_id)
        online = {d.meta.directory_id for d in self._directories if d.failure is None and d.meta is not None}
        if is_reserved_directory(place) or place in online:
            return False
        if in_memory and self._has_all_memory and not change.after.may_lead_without_fetching(self._node_id):
            log.warning("%s-%d begins empty: its memory directory is gone", change.name, change.index)
            return False
        log.error("%s-%d is offline: its log directory is %s", change.name, change.index, uuid_text(place))
        return True

    def _begin_epoch(self, replica: Replica, epoch: int, ahead: EpochUpdate | None) -> None:
        """A log with a failed disk rejects appends itself, and its intact records stay readable. It must not stop the
        broker from serving other logs."""
        try:
            if ahead is not None:
                replica.log.epochs.take(ahead, replica.log.log_end_offset)
            replica.log.begin_epoch(epoch)
        except KafkaError as error:
            log.error("%s-%d cannot be appended to: %s", replica.topic, replica.index, error)

    def configure(self, topic: str) -> None:
        """Apply the changed configuration of a topic, or changed defaults of the broker."""
        config, min_in_sync = self._log_config(topic), self._min_in_sync(topic)
        is_linearizable = self._context.is_linearizable(topic)
        for replica in self._partitions.of_topic(topic):
            replica.log.config = config
            replica.is_linearizable = is_linearizable
            replica.min_in_sync = min(min_in_sync, replica.replica_count)
            if replica.leadership is not None and replica.advance():  # the new minimum may be lower
                self._context.on_leader(replica)

    def configure_all(self) -> None:
        """Apply changed defaults of the broker to all topics."""
        for topic in {replica.topic for replica in self._partitions}:
            self.configure(topic)
        for replica in self._partitions:
            replica.max_lag_s = self._context.max_lag_s()
            if not replica.leads and replica.leader_id != NO_LEADER:
                self._context.on_follower(replica)  # num.replica.fetchers may have changed

    @property
    def _has_all_memory(self) -> bool:
        """Whether no memory directory has failed: the records of a replica may be in one that has."""
        return all(directory.failure is None for directory in self._directories if directory.in_memory)

    def _least_loaded(self, coming: Sequence[LogDirectory], *, in_memory: bool) -> LogDirectory | None:
        """The directory of the topic's class with the fewest partitions, as in Kafka; partitions that are about to be
        created count."""
        online = [each for each in self._directories if each.failure is None and each.in_memory == in_memory]
        return min(online, key=lambda directory: len(directory.logs) + coming.count(directory), default=None)

    # -- removal ------------------------------------------------------------------------------------------------------

    def _removes_replica(self, change: Change) -> TypeGuard[TopicDeleted | PartitionChanged]:
        """Whether the change deletes a topic or removes this broker's replica of a partition."""
        if isinstance(change, PartitionChanged):
            before, after = change.before, change.after
            return before is not None and self._node_id in before.replicas and self._node_id not in after.replicas
        return isinstance(change, TopicDeleted)

    def _removed_replicas(self, change: TopicDeleted | PartitionChanged) -> dict[tuple[str, int], Replica]:
        if isinstance(change, TopicDeleted):
            here = self._partitions.of_topic(change.name)
        else:
            log.info(
                "%s-%d is no longer assigned to this broker: its replicas are %s",
                change.name,
                change.index,
                change.after.replicas,
            )
            found = self._partitions.find(change.name, change.index)
            here = [] if found is None else [found]
        return {(each.topic, each.index): each for each in here if each.topic_id == change.topic_id}

    async def _remove(self, gone: dict[tuple[str, int], Replica]) -> None:
        """Delete several logs together: writing the checkpoints for one log takes as long as for all."""
        if not gone:
            return
        for replica in gone.values():
            self._partitions.remove(replica)
            replica.leads = replica.is_unreplicated = False
            replica.leadership = replica.deferred = None
            self._context.on_offline(replica)
        self._context.release()
        await trio.to_thread.run_sync(self._delete_logs, [TopicPartition(*name) for name in gone])
        gone.clear()

    def _delete_logs(self, names: Sequence[TopicPartition]) -> None:
        """Runs in a worker thread."""
        for directory in self._directories:
            here = {name: self._unique_suffix() for name in names if name in directory.logs}
            if here and directory.failure is None:
                directory.delete(here, now_ms=self._clock.now_ms())

    def _unique_suffix(self) -> str:
        return f"{self._random.getrandbits(128):032x}"


# In worker threads ----------------------------------------------------------------------------------------------------


class _LogToCreate(NamedTuple):
    """A partition without a log on this broker, and the directory of the new log."""

    change: PartitionChanged
    directory: LogDirectory
    config: LogConfig
    now_ms: int

    def make(self) -> Log | OutOfDescriptors | None:
        name = TopicPartition(self.change.name, self.change.index)
        try:
            return self.directory.begin(name, self.config, now_ms=self.now_ms, topic_id=self.change.topic_id)
        except OutOfDescriptors as shortage:
            return shortage
        except KafkaStorageError as error:
            log.error("%s cannot be created: %s", name, error)
            return None


def _write_ahead(prepared: EpochUpdate) -> bool:
    """A write that fails here is repeated by the leader, which then reports the error."""
    try:
        prepared.cache.write_ahead(prepared)
    except KafkaError:
        return False
    return True


async def _in_threads(do: Callable[[WorkItem], Result], items: Sequence[WorkItem]) -> list[Result]:
    """The results of the blocking function `do` for each item, in order."""
    results: dict[int, Result] = {}

    def work(first: int) -> None:
        for number in range(first, len(items), THREADS):
            results[number] = do(items[number])

    async with trio.open_nursery() as nursery:
        for first in range(min(THREADS, len(items))):
            nursery.start_soon(trio.to_thread.run_sync, work, first)
    return [results[number] for number in range(len(items))]
