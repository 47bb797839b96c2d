"""Makes what the metadata says come true here: logs are opened, led or followed, configured, and deleted.

What touches the disk runs in a worker thread, and the requests of other clients go on meanwhile. A partition can be
asked for once its log is there; until then it is unknown, which every client answers with another try.
"""

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol, TypeGuard, TypeVar

import trio

from trioka.cluster.brokers import Broker as Registration
from trioka.cluster.configs import ResourceType
from trioka.cluster.image_delta import Change, ConfigChanged, PartitionChanged, TopicDeleted
from trioka.cluster.leader_state import UNKNOWN, Leadership
from trioka.cluster.metadata import Metadata
from trioka.cluster.partition import NO_LEADER, Partition, is_reserved_directory
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.protocol.errors import KafkaError, KafkaStorageError
from trioka.protocol.primitives import uuid_text
from trioka.storage.directory import LogDirectory
from trioka.storage.failstop_disk import OutOfDescriptors
from trioka.storage.layout import TopicPartition
from trioka.storage.leader_epochs import Prepared
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_move import the_longer
from trioka.storage.sync import despite_shortages

from ..clock import Clock
from ..network.descriptors import free_descriptors
from .partitions import Partitions, Replica

log = logging.getLogger("trioka.replicas")

THREADS: Final = 8  # syncs at the same time share one of the disk's; one by one, each takes as long as all
AT_ONCE: Final = 64  # are made, and lead; then the next ones follow

Item = TypeVar("Item")
Result = TypeVar("Result")


class Surroundings(Protocol):
    """What else must know of a replica's fortunes."""

    def registered(self, broker_id: int) -> Registration | None:
        """A broker, as the metadata has it."""

    def max_lag_s(self) -> float:
        """How long a follower may be behind, and in sync."""

    def leads(self, replica: Replica) -> None:
        """It leads, or goes on leading, with others in sync or without."""

    def follows(self, replica: Replica) -> None:
        """Another broker leads, which is to be asked for records."""

    def rests(self, replica: Replica) -> None:
        """Nobody leads, or the replica is here no longer."""

    def release(self) -> None:
        """Some replicas are here no longer, and nobody may hold them, or their logs stay in memory."""


class Replicas:
    def __init__(
        self,
        *,
        node_id: int,
        directories: Sequence[LogDirectory],
        partitions: Partitions,
        log_config: Callable[[str], LogConfig],
        min_in_sync: Callable[[str], int],
        surroundings: Surroundings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._node_id = node_id
        self._directories = directories
        self._partitions = partitions
        self._log_config = log_config
        self._min_in_sync = min_in_sync
        self._surroundings = surroundings
        self._clock = clock
        self._random = random

    async def act(self, changes: Sequence[Change]) -> None:
        """What a change of the metadata means for this broker. In their order: a topic may be deleted and made again,
        a replica taken away and given back, between two looks at the metadata."""
        gone: dict[tuple[str, int], Replica] = {}
        together: list[PartitionChanged] = []  # and all of it came after what is gone
        for change in changes:
            if isinstance(change, PartitionChanged) and self._node_id in change.after.replicas:
                together.append(change)
            elif self._takes_away(change):
                if together:
                    await self._remove(gone)
                    await self._become(together)
                gone |= self._taken_away(change)
        await self._remove(gone)
        await self._become(together)
        for other in changes:
            if isinstance(other, ConfigChanged) and other.resource.type == ResourceType.TOPIC:
                self.configure(other.resource.name)

    async def _become(self, mine: list[PartitionChanged]) -> None:
        """Logs that are not there are made; then each is led or followed, one change after the other. Some at a time:
        where thousands are made, the first ones are of use while the others are still to come."""
        for start in range(0, len(mine), AT_ONCE):
            some = mine[start : start + AT_ONCE]
            await self._make_logs(some)
            ahead = await self._note_epochs(some)
            for change in some:
                self.follow(change.name, change.after, ahead.get((change.name, change.index)))
            await trio.lowlevel.checkpoint()  # others want to be served, too
        mine.clear()

    async def _make_logs(self, mine: Sequence[PartitionChanged]) -> None:
        """Of those that have none: by several threads, since each takes two syncs, and one more for all together."""
        missing = {(c.name, c.index): c for c in mine if self._partitions.find(c.name, c.index) is None}
        configs = {name: self._log_config(name) for name in {name for name, _ in missing}}
        work: list[_New] = []
        for change in missing.values():
            if not self._is_out_of_reach(change):
                directory = self._least_loaded([new.directory for new in work])
                if directory is not None:
                    work.append(_New(change, directory, configs[change.name], self._clock.now_ms()))
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

    async def _make_each(self, work: Sequence["_New"]) -> list[Log | None]:
        """Their logs, None where the disk has failed. Those that find no descriptor are made a little later."""
        made: dict[int, Log | None] = {}

        async def make_the_rest() -> None:
            rest = [number for number in range(len(work)) if number not in made]
            shortage: OutOfDescriptors | None = None
            for number, its_log in zip(rest, await _in_threads(_New.make, [work[each] for each in rest]), strict=True):
                if isinstance(its_log, OutOfDescriptors):
                    shortage = its_log
                else:
                    made[number] = its_log
            if shortage is not None:
                raise shortage

        try:
            await despite_shortages(make_the_rest, self._free_descriptors)
        except OutOfDescriptors as error:
            log.error("%d logs cannot be created: %s", len(work) - len(made), error)
        return [made.get(number) for number in range(len(work))]

    async def _free_descriptors(self) -> None:
        await free_descriptors(directory.files for directory in self._directories)

    async def _note_epochs(self, mine: Sequence[PartitionChanged]) -> dict[tuple[str, int], Prepared]:
        """Who is to lead notes its epoch on disk first (I10), which takes two syncs: thousands may become leaders at a
        time, so that several threads do it, and nobody is kept waiting. Nothing is appended to these logs meanwhile:
        they rest. One that leads already, in another epoch, has clients, and notes it when its turn comes."""
        last = {(change.name, change.index): change.after for change in mine}
        work: list[Prepared] = []
        names: list[tuple[str, int]] = []
        for name, partition in last.items():
            replica = self._partitions.find(*name)
            if replica is None or replica.leads or partition.leader != self._node_id:
                continue
            its_log, epoch = replica.log, partition.leader_epoch
            is_new = epoch > max(replica.leader_epoch, its_log.epochs.latest_epoch)
            if is_new and not its_log.closed:
                self._surroundings.rests(replica)
                work.append(its_log.epochs.prepared(epoch, its_log.log_end_offset))
                names.append(name)
        are_written = await _in_threads(_write_ahead, work)
        return {name: prepared for name, prepared, done in zip(names, work, are_written, strict=True) if done}

    async def adopt_all(self, metadata: Metadata) -> None:
        """At the start: what the metadata says, and the logs that are already here, come together. A log that is no
        partition of this node any more, or of a topic that was deleted and made again, is set aside. So is the shorter
        of two that a crash has left, when one was about to take the other's place."""
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
                    log.warning("%s is not in the metadata, and is set aside", name)
                    strays[name] = self._unique()
            if strays:
                await trio.to_thread.run_sync(directory.set_aside_as_stray, strays)
        await self._keep_one_of_each()
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
                    self.adopt(name.topic, wanted[name][0].topic_id, name.partition, found)
        for topic_name in {name.topic for name in wanted}:  # once for each: a topic may have thousands of partitions
            self.configure(topic_name)
        await self.act(
            [
                PartitionChanged(
                    topic_id=topic.topic_id, name=topic.name, index=partition.index, before=None, after=partition
                )
                for topic, partition in wanted.values()
            ]
        )

    async def _keep_one_of_each(self) -> None:
        copies: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self._directories:
            for name in directory.logs:
                if name.topic != CLUSTER_METADATA_TOPIC:
                    copies.setdefault(name, []).append(directory)
        for name, directories in copies.items():
            if len(directories) > 1:
                kept = the_longer(directories, name)
                for other in directories:
                    if other is not kept:
                        log.warning(
                            "%s is in %s too, and longer: what is in %s is set aside", name, kept.path, other.path
                        )
                        await trio.to_thread.run_sync(other.set_aside_as_stray, {name: self._unique()})

    def adopt(self, topic: str, topic_id: bytes, index: int, opened: Log) -> Replica:
        """A log of this broker is a partition's replica."""
        replica = Replica(topic=topic, topic_id=topic_id, index=index, log=opened, now=self._clock.now)
        self._partitions.add(replica)
        return replica

    def follow(self, topic: str, partition: Partition, ahead: Prepared | None = None) -> None:
        """Who leads a partition, and who is in sync. With what was written ahead, if it is to lead."""
        replica = self._partitions.find(topic, partition.index)
        if replica is None or partition.leader_epoch < replica.leader_epoch:
            return
        replica.replica_count = len(partition.replicas)
        replica.min_in_sync = min(self._min_in_sync(topic), replica.replica_count)
        replica.max_lag_s = self._surroundings.max_lag_s()
        if partition.leader == self._node_id:
            self._lead(replica, partition, ahead)
            self._surroundings.leads(replica)
            return
        replica.leads = replica.stands_alone = False
        replica.leadership = None
        replica.leader_id, replica.leader_epoch = partition.leader, partition.leader_epoch
        if partition.leader == NO_LEADER:
            self._surroundings.rests(replica)
        else:
            self._surroundings.follows(replica)

    def _lead(self, replica: Replica, partition: Partition, ahead: Prepared | None) -> None:
        """A new epoch begins at the log's end, before anything is written in it (I10)."""
        epoch, leadership = partition.leader_epoch, replica.leadership
        if epoch != replica.leader_epoch:
            self._begin_epoch(replica, epoch, ahead)
            leadership = None
        if not replica.leads:
            replica.reign += 1
        if replica.replica_count == 1:
            leadership = None
        elif leadership is None:
            start = replica.log.epochs.start_offset_of(epoch)
            leadership = Leadership(
                self._node_id,
                partition,
                log_end_offset=replica.log.log_end_offset if start == UNKNOWN else start,
                now=self._clock.now(),
                registered=self._surroundings.registered,
            )
        else:
            leadership.follow(partition)
        replica.leadership = leadership
        replica.leader_id, replica.leader_epoch, replica.leads = self._node_id, epoch, True
        replica.stands_alone = replica.replica_count == 1
        replica.advance()

    def _is_out_of_reach(self, change: PartitionChanged) -> bool:
        """Its log lies in a directory that could not be opened. An empty one elsewhere would be taken for the whole."""
        place = change.after.directory(self._node_id)
        online = {d.meta.directory_id for d in self._directories if d.failure is None and d.meta is not None}
        if is_reserved_directory(place) or place in online:
            return False
        log.error("%s-%d is offline: it is in the log directory %s", change.name, change.index, uuid_text(place))
        return True

    def _begin_epoch(self, replica: Replica, epoch: int, ahead: Prepared | None) -> None:
        """A log whose disk has failed refuses appends by itself, and what is whole can be read: it must not keep the
        broker from serving all the others."""
        try:
            if ahead is not None:
                replica.log.epochs.take(ahead, replica.log.log_end_offset)
            replica.log.begin_epoch(epoch)
        except KafkaError as error:
            log.error("%s-%d takes no records: %s", replica.topic, replica.index, error)

    def configure(self, topic: str) -> None:
        """A topic's configuration, or the broker's defaults for it, have changed."""
        config, min_in_sync = self._log_config(topic), self._min_in_sync(topic)
        for replica in self._partitions.of_topic(topic):
            replica.log.config = config
            replica.min_in_sync = min(min_in_sync, replica.replica_count)
            if replica.leadership is not None and replica.advance():  # fewer may be enough now
                self._surroundings.leads(replica)

    def configure_all(self) -> None:
        """The broker's defaults have changed, for all topics."""
        for topic in {replica.topic for replica in self._partitions}:
            self.configure(topic)
        for replica in self._partitions:
            replica.max_lag_s = self._surroundings.max_lag_s()
            if not replica.leads and replica.leader_id != NO_LEADER:
                self._surroundings.follows(replica)  # by another fetcher, perhaps

    def _least_loaded(self, coming: Sequence[LogDirectory]) -> LogDirectory | None:
        """New partitions go where the fewest are, as in Kafka; those count that are about to come."""
        online = [directory for directory in self._directories if directory.failure is None]
        return min(online, key=lambda directory: len(directory.logs) + coming.count(directory), default=None)

    # -- what leaves ---------------------------------------------------------------------------------------------------

    def _takes_away(self, change: Change) -> TypeGuard[TopicDeleted | PartitionChanged]:
        """A topic is deleted, or one of its replicas was reassigned: others have it now."""
        if isinstance(change, PartitionChanged):
            before, after = change.before, change.after
            return before is not None and self._node_id in before.replicas and self._node_id not in after.replicas
        return isinstance(change, TopicDeleted)

    def _taken_away(self, change: TopicDeleted | PartitionChanged) -> dict[tuple[str, int], Replica]:
        if isinstance(change, TopicDeleted):
            here = self._partitions.of_topic(change.name)
        else:
            log.info("%s-%d is no longer here: its replicas are %s", change.name, change.index, change.after.replicas)
            found = self._partitions.find(change.name, change.index)
            here = [] if found is None else [found]
        return {(each.topic, each.index): each for each in here if each.topic_id == change.topic_id}

    async def _remove(self, gone: dict[tuple[str, int], Replica]) -> None:
        """All together: to tell the checkpoints of one takes as long."""
        if not gone:
            return
        for replica in gone.values():
            self._partitions.remove(replica)
            replica.leads = replica.stands_alone = False
            replica.leadership = None
            self._surroundings.rests(replica)
        self._surroundings.release()
        await trio.to_thread.run_sync(self._delete_logs, [TopicPartition(*name) for name in gone])
        gone.clear()

    def _delete_logs(self, names: Sequence[TopicPartition]) -> None:
        """In a worker thread."""
        for directory in self._directories:
            here = {name: self._unique() for name in names if name in directory.logs}
            if here and directory.failure is None:
                directory.delete(here, now_ms=self._clock.now_ms())

    def _unique(self) -> str:
        return f"{self._random.getrandbits(128):032x}"


# In worker threads ----------------------------------------------------------------------------------------------------


class _New(NamedTuple):
    """A partition of which there is no log yet, and where it is to be."""

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


def _write_ahead(prepared: Prepared) -> bool:
    """One that fails is tried again by its leader, and said to have failed then."""
    try:
        prepared.cache.write_ahead(prepared)
    except KafkaError:
        return False
    return True


async def _in_threads(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What `do`, which blocks, makes of each, in their order."""
    results: dict[int, Result] = {}

    def work(first: int) -> None:
        for number in range(first, len(items), THREADS):
            results[number] = do(items[number])

    async with trio.open_nursery() as nursery:
        for first in range(min(THREADS, len(items))):
            nursery.start_soon(trio.to_thread.run_sync, work, first)
    return [results[number] for number in range(len(items))]
