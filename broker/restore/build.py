"""Writes the data directories of restored nodes, from a plan. Blocks.

They are built under another name and renamed when all are whole, so that no broker ever starts on half of them.
Its metadata log begins with a snapshot, as that of a node that has fetched one. Its logs begin behind their remote
part, as those of a follower that skips what is in the object store.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Final

from trioka.cluster.image.configs import topic_resource
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.partition import random_uuid
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.cluster.quorum.snapshot import SnapshotId, build_snapshot, read_snapshot
from trioka.cluster.quorum.voters import ReplicaKey, VoterSet
from trioka.cluster.remote_log.codec import encode_record, epoch_headers, partition_of
from trioka.cluster.remote_log.metadata import RemoteSegment, SegmentState, segment_record, update_record
from trioka.coordinator import partitioning
from trioka.coordinator.decision import StoredRecord
from trioka.coordinator.offsets import CommittedOffset, GroupTopicPartition
from trioka.coordinator.record_codec import GROUPS
from trioka.protocol import batch
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.record import Record
from trioka.protocol.remote_segment.manifest import SegmentManifest
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.directory import LogDirectory
from trioka.storage.files.checkpoint import EpochEntry, MetaProperties, write_meta_properties
from trioka.storage.files.disk import Disk, make_durable_directory
from trioka.storage.files.layout import META_PROPERTIES, TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.producers.producer_snapshot import ProducerSnapshot
from trioka.storage.producers.producer_snapshot import encode as encode_snapshot
from trioka.storage.tiered_log import begin_behind_remote_part

from ..clock import Clock
from ..config.layers import Config, log_config
from ..quorum.store import METADATA_PARTITION, QuorumSettings, QuorumStore
from ..tier.undecided import FENCED, abort_undecided
from .plan import METADATA_OFFSET_GAP, OFFSETS_TOPIC, PartitionPlan, Place, place, restored_records
from .source import CannotRestore, RestorePlan

UNFINISHED: Final = ".restoring"
RECORDS_PER_BATCH: Final = 200


def check_directory(disk: Disk, path: str) -> None:
    """CannotRestore unless there is nothing yet, or an empty directory that can be replaced."""
    for name in (path, path + UNFINISHED):
        if disk.exists(name) and (name != path or not disk.is_directory(path) or disk.list(path)):
            reason = "is not empty" if name == path else "is left of an interrupted restore; delete it"
            raise CannotRestore(f"{name} {reason}")


def build_directories(
    plan: RestorePlan, path: str, *, nodes: Sequence[int], disk: Disk, clock: Clock, random: Random
) -> None:
    """One node gets the directory `path`, several get directories in it, named like their ids."""
    path = path.rstrip("/")
    check_directory(disk, path)
    unfinished = path + UNFINISHED
    make_durable_directory(disk, unfinished)
    target = _Target(
        nodes={node: random_uuid(random) for node in nodes},
        placed=place(plan.image, nodes),
        now_ms=clock.now_ms(),  # the replicas of a partition are equal to the byte
    )
    for node in nodes:
        own = unfinished if len(nodes) == 1 else f"{unfinished}/{node}"
        make_durable_directory(disk, own)
        meta = MetaProperties(cluster_id=plan.cluster_id, node_id=node, directory_id=target.nodes[node])
        write_meta_properties(disk, f"{own}/{META_PROPERTIES}", meta)
        _Builder(plan, target, own, node_id=node, disk=disk, clock=clock, random=random).build()
    disk.rename(unfinished, path)  # over an empty directory, if there is one
    disk.sync_directory(os.path.dirname(os.path.abspath(path)))


@frozen
class _Target:
    """The restored cluster."""

    nodes: Mapping[int, bytes]  # by id: the id of the directory
    placed: Mapping[Place, tuple[int, ...]]
    now_ms: int


class _Builder:
    def __init__(
        self,
        plan: RestorePlan,
        target: _Target,
        path: str,
        *,
        node_id: int,
        disk: Disk,
        clock: Clock,
        random: Random,
    ) -> None:
        self._plan = plan
        self._target = target
        self._clock = clock
        self._now_ms = target.now_ms
        self._partitions = [each for each in plan.partitions if node_id in target.placed[each.topic_id, each.index]]
        self._config = Config()
        self._quorum = QuorumSettings.of(self._config)
        self._directory = LogDirectory.open(disk, path, self._config_of, now_ms=self._now_ms, random=random)

    def _config_of(self, name: TopicPartition) -> LogConfig:
        if name == METADATA_PARTITION:
            return self._quorum.log
        return log_config(self._config.topic(self._plan.image.configs.get(topic_resource(name.topic))))

    def build(self) -> None:
        directory = self._directory
        try:
            self._write_metadata()
            logs = {}
            for plan in self._partitions:
                name = TopicPartition(plan.topic, plan.index)
                logs[name] = directory.begin(name, self._config_of(name), now_ms=self._now_ms, topic_id=plan.topic_id)
                if plan.log is not None:
                    self._begin_behind(logs[name], plan)
            directory.admit(logs.values())
            epochs = {TopicPartition(plan.topic, plan.index): plan.leader_epoch for plan in self._partitions}
            for name, records in self._internal_records():
                if name not in logs:
                    continue  # other nodes have it
                for part in _parts(records):
                    self._append(logs[name], batch.build(part), epochs[name])
            if directory.failure is not None:
                raise directory.failure
            directory.close(broker_epoch=0)
        finally:
            directory.close_handles()

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _write_metadata(self) -> None:
        plan = self._plan
        snapshot = SnapshotId(plan.snapshot.offset + METADATA_OFFSET_GAP, plan.snapshot.epoch + 1)
        records = list(
            restored_records(plan.image, plan.partitions, placed=self._target.placed, directories=self._target.nodes)
        )
        Metadata().load(records, snapshot.offset - 1, snapshot.epoch)  # what a broker could not replay fails here
        data = b"".join(
            build_snapshot(
                records,
                epoch=snapshot.epoch,
                now_ms=self._now_ms,
                last_contained_log_timestamp_ms=plan.snapshot_ms,
                metadata_version=plan.image.features.metadata_version,
            )
        )
        voters = VoterSet.of(map(ReplicaKey, self._target.nodes))
        store = QuorumStore.open(self._directory, self._clock, self._quorum, voters)
        store.write_snapshot(snapshot, data)
        store.reset_to_snapshot(snapshot, read_snapshot(data))

    # -- tiered partitions ---------------------------------------------------------------------------------------------

    def _begin_behind(self, log: Log, plan: PartitionPlan) -> None:
        archived = plan.log
        assert archived is not None
        snapshot = archived.producer_snapshot
        begin_behind_remote_part(
            log,
            plan.end_offset,
            log_start_offset=plan.start_offset,
            epochs=[EpochEntry(entry.epoch, entry.start_offset) for entry in archived.chain],
            producer_snapshot=encode_snapshot(ProducerSnapshot([])) if snapshot is None else snapshot,
            now_ms=self._now_ms,
        )
        abort_undecided(
            log, plan.open_transactions, leader_epoch=plan.leader_epoch, now_ms=self._now_ms, epoch_gap=FENCED
        )
        log.advance_high_watermark(log.log_end_offset)

    def _append(self, log: Log, data: bytearray, leader_epoch: int) -> None:
        log.append_as_leader(
            memoryview(data), leader_epoch=leader_epoch, now_ms=self._now_ms, origin=AppendOrigin.COORDINATOR
        )
        log.advance_high_watermark(log.log_end_offset)

    # -- internal topics -----------------------------------------------------------------------------------------------

    def _internal_records(self) -> Iterator[tuple[TopicPartition, list[Record]]]:
        topics = self._plan.image.topics
        metadata_topic, offsets_topic = topics.by_name(REMOTE_LOG_METADATA_TOPIC), topics.by_name(OFFSETS_TOPIC)
        by_partition: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        assert metadata_topic is not None, "read_plan requires it"
        for plan in self._plan.partitions:
            index = partition_of(plan.topic_id, plan.index, len(metadata_topic.partitions))
            by_partition[TopicPartition(REMOTE_LOG_METADATA_TOPIC, index)] += self._segment_records(plan)
        if offsets_topic is not None:
            for place, committed in self._plan.offsets.kept.items():
                index = partitioning.partition_of(place.group, len(offsets_topic.partitions))
                by_partition[TopicPartition(OFFSETS_TOPIC, index)].append(self._commit(place, committed))
        yield from by_partition.items()

    def _segment_records(self, plan: PartitionPlan) -> Iterator[Record]:
        """In the order of their uploaders' epochs: a record of an older epoch behind one of a newer would not count."""
        slices = () if plan.log is None else plan.log.slices
        manifests = {slice_.manifest.segment.segment_id: slice_.manifest for slice_ in slices}
        for manifest in sorted(manifests.values(), key=lambda each: (each.uploader_epoch, each.start_offset)):
            about, segment_id = manifest.segment.topic_id_partition, manifest.segment.segment_id
            started = segment_record(about, _remote_segment(manifest))
            finished = update_record(
                about,
                segment_id,
                SegmentState.COPY_SEGMENT_FINISHED,
                broker_id=manifest.broker_id,
                now_ms=manifest.event_timestamp_ms,
            )
            headers = epoch_headers(manifest.uploader_epoch)
            yield Record(0, self._now_ms, None, encode_record(started), headers)
            yield Record(0, self._now_ms, None, encode_record(finished), headers)

    def _commit(self, place: GroupTopicPartition, committed: CommittedOffset) -> Record:
        key = OffsetCommitKey(group=place.group, topic=place.topic, partition=place.partition)
        value = OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_ms,
            expire_timestamp=committed.expire_ms,
            topic_id=committed.topic_id,
        )
        return Record(0, self._now_ms, *GROUPS.encode(StoredRecord(key, value)))


def _remote_segment(manifest: SegmentManifest) -> RemoteSegment:
    return RemoteSegment(
        segment_id=manifest.segment.segment_id,
        start_offset=manifest.start_offset,
        end_offset=manifest.end_offset,
        broker_id=manifest.broker_id,
        max_timestamp_ms=manifest.max_timestamp_ms,
        event_timestamp_ms=manifest.event_timestamp_ms,
        leader_epochs=tuple(EpochEntry(entry.epoch, entry.start_offset) for entry in manifest.leader_epochs),
        size_bytes=manifest.size,
        state=SegmentState.COPY_SEGMENT_STARTED,
        uploader_epoch=manifest.uploader_epoch,
        txn_index_empty=manifest.indexes.transaction is None,
    )


def _parts(records: Iterable[Record]) -> Iterator[list[Record]]:
    """For one batch each; the records are numbered from 0 in each of them."""
    left = iter(records)
    while part := list(islice(left, RECORDS_PER_BATCH)):
        yield [record._replace(offset=number) for number, record in enumerate(part)]
